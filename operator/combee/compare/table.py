"""Rows of the comparison, and the documented form of compare.json.

A row is one strategy of one method on one task over all seeds. Differences are strategy minus ``Sequential`` of
the same method, paired two ways: *by example* (every gate example of every seed is a pair) and *over seeds* (each seed's mean
difference is one value; Student's t). Examples of one seed share a playbook, so the second is the
careful one and the one that verdicts rest on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from combee.algo.latency import LatencyLaw
from combee.algo.stats import MeanInterval, Paired, mean_interval, paired_difference
from combee.compare.collect import CellFacts
from combee.compare.strategies import REFERENCE

VERSION = 1
PAIRING_SEED = 7
FEWEST_SEEDS = 3
"""Two seeds can agree by luck, and their interval then says that nothing varies."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Strategy minus reference on gate, in units of the score."""

    by_example: Paired
    over_seeds: MeanInterval


@dataclass(frozen=True, slots=True)
class PartMean:
    """One kind of stage, mean over seeds: modelled seconds, calls, how often it came."""

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
    """as it is written; after its method where methods are compared."""
    reference: bool
    """whether the others of its task and method are compared with it."""
    cells: tuple[CellFacts, ...]
    score: MeanInterval
    start: float
    partial: float | None
    """partial credit beside ``score``; None where the task has none, or a seed's is not known."""
    difference: Difference | None
    """None for the reference, and where there is none."""
    distinct: float
    """distinct lessons, summed over iterations."""
    carried: float
    """of these, in the ledger with their anchors."""
    entries: float
    """entries of the ledger."""
    rendered: float
    """of these, in the playbook."""
    playbook_tokens: float
    calls: float
    tokens: float
    seconds: float
    speed_up: MeanInterval | None
    """the reference's modelled time over this one's, seed by seed."""
    tokens_per_point: float | None
    """tokens for each point (0.01) gained over the start; None without a gain."""
    parts: tuple[PartMean, ...]


def make_rows(facts: Sequence[CellFacts]) -> list[Row]:
    """One row for each (task, method, strategy), in the order of the cells."""
    grouped: dict[tuple[str, str, str], list[CellFacts]] = {}
    starts = _start_partials(facts)
    for one in facts:
        key = one.cell.task.name, one.cell.learns_by, one.cell.strategy.label
        grouped.setdefault(key, []).append(one)
    return [
        _row(cells, {one.cell.seed: one for one in grouped.get((task, method, REFERENCE), [])}, starts)
        for (task, method, _), cells in grouped.items()
    ]


def _start_partials(facts: Sequence[CellFacts]) -> dict[tuple[str, int], float]:
    """Partial credit of the start on gate by task and seed, where a cell looked."""
    looked = ((one, one.result.held_out.gate) for one in facts if one.result.held_out)
    return {
        (one.cell.task.name, one.cell.seed): gate.partial_baseline
        for one, gate in looked
        if gate and gate.partial_baseline is not None
    }


def _partial(cells: Sequence[CellFacts], starts: Mapping[tuple[str, int], float]) -> float | None:
    """Mean over seeds; a cell that found nothing better never looked at gate and has its start's."""
    found = []
    for one in cells:
        gate = one.result.held_out.gate if one.result.held_out else None
        found.append(gate.partial_best if gate else starts.get((one.cell.task.name, one.cell.seed)))
    known = [value for value in found if value is not None]
    return _mean(known) if len(known) == len(found) else None


def _row(
    cells: list[CellFacts], reference: dict[int, CellFacts], starts: Mapping[tuple[str, int], float]
) -> Row:
    what = cells[0].cell
    paired = [(reference[one.cell.seed], one) for one in cells if one.cell.seed in reference]
    compared = bool(paired) and what.strategy.name != REFERENCE
    speed = [base.seconds / one.seconds for base, one in paired if one.seconds > 0]
    start, best = _mean([one.baseline for one in cells]), [one.best for one in cells]
    gained = 100 * (_mean(best) - start)
    tokens = _mean([one.tokens for one in cells])
    retention = [[it.retention for it in one.result.iterations if it.retention] for one in cells]
    return Row(
        task=what.task.name,
        method=what.learns_by,
        strategy=what.label,
        reference=what.strategy.name == REFERENCE,
        cells=tuple(cells),
        score=mean_interval(best),
        start=start,
        partial=_partial(cells, starts),
        difference=_difference(paired) if compared else None,
        distinct=_mean([sum(r.distinct for r in found) for found in retention]),
        carried=_mean([sum(r.carried for r in found) for found in retention]),
        entries=_mean([len(one.result.entries) for one in cells]),
        rendered=_mean([sum(entry.rendered for entry in one.result.entries) for one in cells]),
        playbook_tokens=_mean([one.result.playbook.tokens if one.result.playbook else 0 for one in cells]),
        calls=_mean([one.calls for one in cells]),
        tokens=tokens,
        seconds=_mean([one.seconds for one in cells]),
        speed_up=mean_interval(speed) if compared and speed else None,
        tokens_per_point=tokens / gained if gained > 0 else None,
        parts=_parts(cells),
    )


def _difference(paired: Sequence[tuple[CellFacts, CellFacts]]) -> Difference:
    base = {f"{b.cell.seed}/{key}": v for b, _ in paired for key, v in b.scores["best"].items()}
    ours = {f"{o.cell.seed}/{key}": v for _, o in paired for key, v in o.scores["best"].items()}
    return Difference(
        paired_difference(base, ours, seed=PAIRING_SEED), mean_interval([o.best - b.best for b, o in paired])
    )


def _parts(cells: Sequence[CellFacts]) -> tuple[PartMean, ...]:
    """The critical path by kind of stage, longest first."""
    names = dict.fromkeys(part.name for one in cells for part in one.charged)
    found = []
    for name in names:
        mine = [part for one in cells for part in one.charged if part.name == name]
        n = len(cells)
        found.append(
            PartMean(name, sum(p.seconds for p in mine) / n, sum(p.calls for p in mine) / n, len(mine) / n)
        )
    return tuple(sorted(found, key=lambda part: (-part.seconds, part.name)))


def verdict(row: Row) -> str:
    """In words, on the interval over seeds."""
    if row.difference is None:
        return "the reference" if row.reference else "no Sequential to compare with"
    found = row.difference.over_seeds
    if found.n < FEWEST_SEEDS:
        return "too few seeds to say"
    if found.high < 0:
        return "worse"
    if found.low > 0:
        return "better"
    return f"no worse by more than {abs(100 * found.low):.1f} points"


def to_json(rows: Sequence[Row], *, law: LatencyLaw, slots: dict[str, int], evaluate_every: int) -> Any:
    """compare.json: described in docs/compare.md."""
    cells = [one for row in rows for one in row.cells]
    return {
        "version": VERSION,
        "simulated": any(one.result.simulated for one in cells),
        "reference": REFERENCE,
        "latencyLaw": {
            "decodeSeconds": law.decode_seconds,
            "decodePerConcurrent": law.decode_per_concurrent,
            "prefillSecondsPerToken": law.prefill_seconds_per_token,
        },
        "slots": slots,
        "evaluateEvery": evaluate_every,
        "rows": [_row_json(row) for row in rows],
        "cells": [_cell_json(one) for one in cells],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "task": row.task,
        "method": row.method,
        "strategy": row.strategy,
        "seeds": [one.cell.seed for one in row.cells],
        "heldOut": {"start": row.start, **_interval(row.score)},
        "partialCredit": row.partial,
        "difference": _difference_json(row.difference),
        "verdict": verdict(row),
        "lessons": {"distinct": row.distinct, "carried": row.carried},
        "entries": {"carried": row.entries, "rendered": row.rendered},
        "playbookTokens": row.playbook_tokens,
        "calls": row.calls,
        "tokens": row.tokens,
        "embeddings": _embeddings(row.cells),
        "modelledSeconds": row.seconds,
        "speedUp": _interval(row.speed_up) if row.speed_up else None,
        "tokensPerPoint": row.tokens_per_point,
        "criticalPath": [
            {"stage": part.name, "seconds": part.seconds, "calls": part.calls, "stages": part.stages}
            for part in row.parts
        ],
    }


def _embeddings(cells: Sequence[CellFacts]) -> dict[str, float] | None:
    """Mean calls and tokens of the embedder, which ``calls`` and ``tokens`` include; None where none was asked."""
    used = [one.result.usage["embedder"] for one in cells if "embedder" in one.result.usage]
    if not used:
        return None
    calls, tokens = sum(one.calls for one in used), sum(one.prompt_tokens for one in used)
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


def _cell_json(one: CellFacts) -> dict[str, Any]:
    return {
        "task": one.cell.task.name,
        "method": one.cell.learns_by,
        "strategy": one.cell.label,
        "seed": one.cell.seed,
        "folder": f"cells/{one.cell.name}",
        "outcome": one.result.outcome,
        "heldOut": one.best,
        "start": one.baseline,
        "calls": one.calls,
        "tokens": one.tokens,
        "modelledSeconds": one.seconds,
        "iterations": len(one.result.iterations),
    }


def _interval(found: MeanInterval) -> dict[str, Any]:
    """One seed has no interval: null."""
    known = found.n > 1
    return {
        "mean": found.mean,
        "low": found.low if known else None,
        "high": found.high if known else None,
        "n": found.n,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
