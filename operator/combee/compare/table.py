"""Rows of the comparison, and the documented form of compare.json.

A row is one strategy of one method on one task over all seeds, timed on one number of slots. Differences are
strategy minus ``Sequential`` of the same method, paired two ways: *by example* (every gate example of every
seed is a pair) and *over seeds* (each seed's mean difference is one value; Student's t). Examples of one
seed share a playbook, so the second is the more careful one, and verdicts rest on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from combee.algo.grouping import grouped
from combee.algo.latency import LatencyLaw
from combee.algo.stats import MeanInterval, Paired, mean_interval, paired_difference
from combee.compare.facts import CellFacts, mean
from combee.compare.strategies import REFERENCE

VERSION = 1
PAIRING_SEED = 7
MARGIN = 0.02
"""A strategy counts as no worse when its interval over seeds lies at most this far below the reference."""
FEWEST_SEEDS = 3
"""Two seeds can agree by chance, and their interval would then show no variation."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Strategy minus reference on gate, in units of the score."""

    by_example: Paired
    over_seeds: MeanInterval


@dataclass(frozen=True, slots=True)
class OverPlain:
    """The fastest plain strategy that is not shown to be worse than the reference, and its modelled time
    divided by this one's, seed by seed."""

    strategy: str
    ratio: MeanInterval


@dataclass(frozen=True, slots=True)
class PartMean:
    """One kind of stage, as means over seeds: modelled seconds, calls, and number of stages."""

    name: str
    seconds: float
    calls: float
    stages: float


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy of one method on one task. Counts and seconds are means over seeds."""

    task: str
    method: str
    strategy: str
    """The strategy's label, after the method's name where methods are compared."""
    reference: bool
    """Whether the others of its task and method are compared with it."""
    plain: bool
    """Whether it is a loop that anybody would write."""
    ahead: bool
    """Whether it is the reference with examples begun ahead, which learns the same."""
    slots: int
    """The slots that its seconds are of."""
    cells: tuple[CellFacts, ...]
    score: MeanInterval
    start: float
    partial: float | None
    """The partial credit beside ``score``; None where the task has none, or a seed's is unknown."""
    difference: Difference | None
    """The difference to the reference; None for the reference itself, and without a reference."""
    distinct: float
    """The distinct lessons, summed over iterations."""
    carried: float
    """The distinct lessons that are in the ledger with their anchors."""
    entries: float
    """The entries of the ledger."""
    rendered: float
    """The entries that are in the playbook."""
    playbook_tokens: float
    calls: float
    tokens: float
    seconds: float
    speed_up: MeanInterval | None
    """The reference's modelled time divided by this one's, seed by seed."""
    over_plain: OverPlain | None
    """Its speed against the best plain strategy; None for a plain one, and without one to compare with."""
    tokens_per_point: float | None
    """The tokens for each point (0.01) gained over the start; None without a gain."""
    parts: tuple[PartMean, ...]


def make_rows(facts: Sequence[CellFacts]) -> list[Row]:
    """Return one row for each (task, method, strategy, slots), in the order of the cells."""
    by_row, starts = grouped(facts, _row_key), _start_partials(facts)
    rows = [
        _row(
            cells,
            {
                cell_facts.cell.seed: cell_facts
                for cell_facts in by_row.get((task, method, REFERENCE, slots), [])
            },
            starts,
        )
        for (task, method, _, slots), cells in by_row.items()
    ]
    return [replace(row, over_plain=_over_plain(row, rows)) for row in rows]


def _row_key(facts: CellFacts) -> tuple[str, str, str, int]:
    cell = facts.cell
    return cell.task.name, cell.learns_by, cell.strategy.label, facts.slots


def _over_plain(row: Row, rows: Sequence[Row]) -> OverPlain | None:
    """Return the row's speed against the fastest plain row of its task, method and slots that is not shown to
    be worse: an opponent has the benefit of the doubt, which what is claimed to be no worse has not."""
    terms = row.task, row.method, row.slots
    others = [
        other
        for other in rows
        if other.plain and not _shown_worse(other) and (other.task, other.method, other.slots) == terms
    ]
    if row.plain or not others:
        return None
    best = min(others, key=lambda other: other.seconds)
    seconds = {facts.cell.seed: facts.seconds for facts in best.cells}
    ratios = [
        seconds[facts.cell.seed] / facts.seconds
        for facts in row.cells
        if facts.cell.seed in seconds and facts.seconds > 0
    ]
    return OverPlain(best.strategy, mean_interval(ratios)) if ratios else None


def no_worse(row: Row) -> bool:
    """Return whether a row is the reference, learns what it does, or is at most MARGIN below, as shown."""
    if row.difference is None:
        return row.reference or row.ahead
    return not _too_few(row.difference.over_seeds) and row.difference.over_seeds.low >= -MARGIN


def _shown_worse(row: Row) -> bool:
    """Return whether a row is shown to be more than MARGIN below the reference."""
    if row.difference is None or _too_few(row.difference.over_seeds):
        return False
    return row.difference.over_seeds.high < -MARGIN


def _too_few(over_seeds: MeanInterval) -> bool:
    """Return whether seeds say nothing of chance: too few of them, or all the same run."""
    return over_seeds.n < FEWEST_SEEDS or over_seeds.low == over_seeds.high


def _start_partials(facts: Sequence[CellFacts]) -> dict[tuple[str, int], float]:
    """Return the start's partial credit on gate by task and seed, from the cells that looked at gate."""
    looked = (
        (cell_facts, cell_facts.result.held_out.gate) for cell_facts in facts if cell_facts.result.held_out
    )
    return {
        (cell_facts.cell.task.name, cell_facts.cell.seed): gate.partial_baseline
        for cell_facts, gate in looked
        if gate and gate.partial_baseline is not None
    }


def _partial(cells: Sequence[CellFacts], starts: Mapping[tuple[str, int], float]) -> float | None:
    """Return the mean partial credit over seeds. A cell that never looked at gate has its start's."""
    values = []
    for facts in cells:
        gate = facts.result.held_out.gate if facts.result.held_out else None
        values.append(gate.partial_best if gate else starts.get((facts.cell.task.name, facts.cell.seed)))
    known_values = [value for value in values if value is not None]
    return mean(known_values) if len(known_values) == len(values) else None


def _row(
    cells: list[CellFacts], reference: dict[int, CellFacts], starts: Mapping[tuple[str, int], float]
) -> Row:
    cell = cells[0].cell
    paired = [(reference[facts.cell.seed], facts) for facts in cells if facts.cell.seed in reference]
    strategy = cell.strategy
    compared = bool(paired) and strategy.label != REFERENCE
    speed = [base.seconds / facts.seconds for base, facts in paired if facts.seconds > 0]
    start, best = mean([facts.baseline for facts in cells]), [facts.best for facts in cells]
    gained_points = 100 * (mean(best) - start)
    tokens = mean([facts.tokens for facts in cells])
    retention = [
        [iteration.retention for iteration in facts.result.iterations if iteration.retention]
        for facts in cells
    ]
    return Row(
        task=cell.task.name,
        method=cell.learns_by,
        strategy=cell.label,
        reference=strategy.label == REFERENCE,
        plain=strategy.plain,
        ahead=bool(strategy.ahead),
        slots=cells[0].slots,
        cells=tuple(cells),
        score=mean_interval(best),
        start=start,
        partial=_partial(cells, starts),
        difference=_difference(paired) if compared and not strategy.ahead else None,
        distinct=mean([sum(r.distinct for r in iterations) for iterations in retention]),
        carried=mean([sum(r.carried for r in iterations) for iterations in retention]),
        entries=mean([len(facts.result.entries) for facts in cells]),
        rendered=mean([sum(entry.rendered for entry in facts.result.entries) for facts in cells]),
        playbook_tokens=mean(
            [facts.result.playbook.tokens if facts.result.playbook else 0 for facts in cells]
        ),
        calls=mean([facts.calls for facts in cells]),
        tokens=tokens,
        seconds=mean([facts.seconds for facts in cells]),
        speed_up=mean_interval(speed) if compared and speed else None,
        over_plain=None,
        tokens_per_point=tokens / gained_points if gained_points > 0 else None,
        parts=_parts(cells),
    )


def _difference(paired: Sequence[tuple[CellFacts, CellFacts]]) -> Difference:
    reference_scores = {f"{b.cell.seed}/{key}": v for b, _ in paired for key, v in b.scores["best"].items()}
    strategy_scores = {f"{o.cell.seed}/{key}": v for _, o in paired for key, v in o.scores["best"].items()}
    return Difference(
        paired_difference(reference_scores, strategy_scores, seed=PAIRING_SEED),
        mean_interval([o.best - b.best for b, o in paired]),
    )


def _parts(cells: Sequence[CellFacts]) -> tuple[PartMean, ...]:
    """Return the critical path by kind of stage, longest first."""
    names = dict.fromkeys(part.name for facts in cells for part in facts.charged)
    means = []
    for name in names:
        stage_parts = [part for facts in cells for part in facts.charged if part.name == name]
        n = len(cells)
        means.append(
            PartMean(
                name,
                sum(p.seconds for p in stage_parts) / n,
                sum(p.calls for p in stage_parts) / n,
                len(stage_parts) / n,
            )
        )
    return tuple(sorted(means, key=lambda part: (-part.seconds, part.name)))


def verdict(row: Row) -> str:
    """Return the verdict on a row in words, by its interval over seeds."""
    if row.ahead:
        return "learns what the reference learns"
    if row.difference is None:
        return "the reference" if row.reference else "no Sequential to compare with"
    interval = row.difference.over_seeds
    if interval.n < FEWEST_SEEDS:
        return "too few seeds to say"
    if _too_few(interval):
        return "all seeds are equal: too few to say"
    if interval.high < 0:
        return "worse"
    if interval.low > 0:
        return "better"
    return f"no worse by more than {abs(100 * interval.low):.1f} points"


def to_json(rows: Sequence[Row], *, law: LatencyLaw, slots: dict[str, int], evaluate_every: int) -> Any:
    """Return the content of compare.json, which docs/compare.md describes."""
    cells = [facts for row in rows for facts in row.cells]
    return {
        "version": VERSION,
        "simulated": any(facts.result.simulated for facts in cells),
        "reference": REFERENCE,
        "latencyLaw": {
            "decodeSeconds": law.decode_seconds,
            "decodePerConcurrent": law.decode_per_concurrent,
            "prefillSecondsPerToken": law.prefill_seconds_per_token,
        },
        "slots": slots,
        "evaluateEvery": evaluate_every,
        "rows": [_row_json(row) for row in rows],
        "cells": [_cell_json(facts) for facts in cells],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "task": row.task,
        "method": row.method,
        "strategy": row.strategy,
        "slots": row.slots,
        "seeds": [facts.cell.seed for facts in row.cells],
        "heldOut": {"start": row.start, **_interval(row.score)},
        "partialCredit": row.partial,
        "difference": _difference_json(row.difference),
        "verdict": verdict(row),
        "noWorse": no_worse(row),
        "lessons": {"distinct": row.distinct, "carried": row.carried},
        "entries": {"carried": row.entries, "rendered": row.rendered},
        "playbookTokens": row.playbook_tokens,
        "calls": row.calls,
        "tokens": row.tokens,
        "embeddings": _embeddings(row.cells),
        "modelledSeconds": row.seconds,
        "speedUp": _interval(row.speed_up) if row.speed_up else None,
        "overPlain": {"strategy": row.over_plain.strategy, **_interval(row.over_plain.ratio)}
        if row.over_plain
        else None,
        "tokensPerPoint": row.tokens_per_point,
        "criticalPath": [
            {"stage": part.name, "seconds": part.seconds, "calls": part.calls, "stages": part.stages}
            for part in row.parts
        ],
    }


def _embeddings(cells: Sequence[CellFacts]) -> dict[str, float] | None:
    """Return the embedder's mean calls and tokens, which ``calls`` and ``tokens`` include; None without an
    embedder."""
    usages = [facts.result.usage["embedder"] for facts in cells if "embedder" in facts.result.usage]
    if not usages:
        return None
    calls, tokens = sum(usage.calls for usage in usages), sum(usage.prompt_tokens for usage in usages)
    return {"calls": calls / len(cells), "tokens": tokens / len(cells)}


def _difference_json(difference: Difference | None) -> dict[str, Any] | None:
    if difference is None:
        return None
    pairs = difference.by_example
    return {
        "byExample": {
            "mean": pairs.mean,
            "low": pairs.low,
            "high": pairs.high,
            "n": pairs.n,
            "discordant": pairs.discordant,
            "pValue": pairs.p_value,
        },
        "overSeeds": _interval(difference.over_seeds),
    }


def _cell_json(facts: CellFacts) -> dict[str, Any]:
    return {
        "task": facts.cell.task.name,
        "method": facts.cell.learns_by,
        "strategy": facts.cell.label,
        "seed": facts.cell.seed,
        "slots": facts.slots,
        "folder": f"cells/{facts.cell.name}",
        "outcome": facts.result.outcome,
        "heldOut": facts.best,
        "start": facts.baseline,
        "calls": facts.calls,
        "tokens": facts.tokens,
        "modelledSeconds": facts.seconds,
        "iterations": len(facts.result.iterations),
    }


def _interval(interval: MeanInterval) -> dict[str, Any]:
    """Return an interval as JSON; its bounds are null for a single seed."""
    has_bounds = interval.n > 1
    return {
        "mean": interval.mean,
        "low": interval.low if has_bounds else None,
        "high": interval.high if has_bounds else None,
        "n": interval.n,
    }
