"""``combee preview``."""

from __future__ import annotations

import json
import shlex
import textwrap
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from combee.algo.gates import POWER
from combee.api.local import lacking
from combee.cli.errors import guarded
from combee.local.flags import StandInFlags
from combee.local.session import Prepared, prepare, preview_here
from combee.local.sources import parse_stand_ins
from combee.plan.diagnosis import TRIED_ROWS
from combee.plan.preview import Batch, Preview
from combee.report.shape import lines as shape_lines
from combee.report.text import amount, price


def run_preview(path: Path, flags: StandInFlags, *, as_json: bool) -> int:
    """Print what the run would do."""

    def work() -> int:
        prepared = prepare(path, parse_stand_ins(flags), for_preview=True)
        shown = preview_here(prepared)
        command = next_command(path, flags, prepared)
        print(shown_as(prepared.run.name, command, shown, as_json=as_json))  # noqa: T201
        return 0

    return guarded(work, as_json=as_json)


def next_command(path: Path, flags: StandInFlags, prepared: Prepared) -> str:
    """Return what starts this run, with the flags that it lacks. Only a cluster takes a suspended run."""
    if prepared.run.spec.suspend:
        return shlex.join(["kubectl", "apply", "-f", str(path)])
    more = lacking(prepared.run, parse_stand_ins(flags).names())
    folder = f"out/{prepared.run.name}"
    return shlex.join(["combee", "run", "-f", str(path), "-o", folder, *flags.words(), *more])


LISTED = 12
WIDTH = 80
"""of a wrapped text, in columns."""


def shown_as(name: str, next_command: str, shown: Preview, *, as_json: bool) -> str:
    """Return batches, tree, calls, tokens, gain, warnings and the next command for people, or JSON."""
    if as_json:
        return json.dumps(asdict(shown), indent=1, default=dict)
    between = f"from {amount(shown.tokens.low)} to {amount(shown.tokens.high)}"
    lines = [
        f"{name}: {len(shown.batches)} iterations at the sizes known now",
        "",
        f"batch size: {shown.batch_reason}",
        "",
        "  iterations   batch  leaves  inputs/leaf  levels above  aggregator calls",
    ]
    rows = [list(group) for _, group in groupby(shown.batches, key=_key)]
    lines += [_row(group) for group in rows[:LISTED]]
    if len(rows) > LISTED:
        lines.append(f"  ... and {len(rows) - LISTED} more")
    lines += [
        "",
        f"rollouts (map, replay, heldOut)   {shown.rollouts}",
        f"reflections                       {shown.reflections}",
        f"aggregator calls                  {shown.aggregator_calls}",
        f"tokens, likely                    about {amount(shown.likely_tokens)}, {between}",
        f"tokens, with a full playbook      {amount(shown.most_tokens)}{_ended(shown)}",
        *_cost(shown),
        *_diagnosis(shown),
        *_held_out(shown),
        f"hardware                          {shown.hardware}",
        *_shape(shown),
        "",
    ]
    lines += [f"warning: {warning}" for warning in shown.all_warnings]
    if shown.refused:
        lines.append(f"would be refused: {shown.refused}")
    lines.append("Nothing was spent." if shown.refused else f"Nothing was spent. Next: {next_command}")
    return "\n".join(lines)


def _ended(shown: Preview) -> str:
    if shown.token_limit is None or shown.token_limit >= shown.most_tokens:
        return ""
    return f"; spec.budget.tokens ends the run at {amount(shown.token_limit)}"


def _cost(shown: Preview) -> list[str]:
    if (cost := shown.cost) is None:
        return []
    gpus = "; GPU time comes on top" if cost.per_gpu_hour else ""
    return [
        f"cost of the likely tokens         {price(cost.low)} to {price(cost.high)} {cost.currency}{gpus}"
    ]


def _diagnosis(shown: Preview) -> list[str]:
    shape = shown.diagnosis
    if shape is None:
        return []
    most, no_go = f"{shape.most_rollouts:,}", f"{shape.no_go_rollouts:,}"
    return [
        f"diagnosis of serial learning      {TRIED_ROWS} to {most} rollouts on top: can a playbook",
        f"                                  help, does serial learning rise? A no by {no_go} ends the run",
    ]


def _shape(shown: Preview) -> list[str]:
    """Return the shape of the run's parallelism, what was rejected and what it can bring, wrapped."""
    if shown.shape is None:
        return []
    (_, head), *more = shape_lines(shown.shape)
    texts = [head, *(f"{what}: {words}" for what, words in more)]
    first, *rest = (line for text in texts for line in textwrap.wrap(text, WIDTH))
    return [f"{'shape of parallelism, expected':<34}{first}", *(f"{'':<34}{line}" for line in rest)]


def _held_out(shown: Preview) -> list[str]:
    outlook = shown.outlook
    if outlook is None:
        return ["heldOut                           none: what is learned from traces is scored on nothing"]
    least = "none" if outlook.detectable_gain is None else f"{outlook.detectable_gain:.3f}"
    ends = f"ends as Learned in {100 * outlook.power:.0f} % of runs, else as Unsure or NothingBetter"
    lines = [
        f"heldOut                           {shown.held_out[0]} rows select, {shown.held_out[1]} rows gate",
        f"smallest detectable gain          {least} on gate (paired, power {POWER} at 5 %)",
        f"{f'a true gain of {outlook.target_gain:g}, the target':<34}{ends}",
    ]
    if shown.look_rollouts:
        lines.append(
            f"{'kept for the look at gate':<34}{shown.look_rollouts:,} rollouts and what they take of each "
            "limit, time at profile's pace"
        )
    if outlook.rows_needed:
        lines.append(f"{f'heldOut rows for power {POWER}':<34}about {outlook.rows_needed:,}")
    return lines


def _key(batch: Batch) -> tuple[object, ...]:
    return (batch.size, batch.leaves, batch.leaf_inputs, batch.levels, batch.aggregator_calls)


def _row(group: list[Batch]) -> str:
    first, last = group[0], group[-1]
    which = f"{first.iteration + 1}" if first is last else f"{first.iteration + 1}-{last.iteration + 1}"
    above = "none" if first.leaves == 1 else "group-by"
    levels = " -> ".join(str(calls) for calls in first.levels) or above
    return (
        f"  {which:<11}{first.size:>7}{first.leaves:>8}{first.leaf_inputs:>13}{levels:>14}"
        f"{first.aggregator_calls!s:>18}"
    )
