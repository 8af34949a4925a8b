"""``Sequential`` with examples begun ahead, from the recorded calls of a ``Sequential`` cell.

It is the time of a plain loop that waits for nothing it need not wait for. It learns the same playbook,
so no model is asked. Each call begun ahead is given the pace of one call alone, which is up to 4 % too
fast for eight: the doubt is the baseline's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from combee.algo.ahead import Turn, begun_ahead
from combee.algo.latency import LatencyLaw
from combee.compare.facts import CellFacts, Part
from combee.compare.strategies import REFERENCE
from combee.plan.types import StepSummary
from combee.steps import LEADING, kind_of
from combee.work.asker import CallRow

AHEAD = 8
"""Examples worked on at once."""


def with_ahead(
    facts: CellFacts,
    steps: Sequence[StepSummary],
    rows: Mapping[str, Sequence[CallRow]],
    law: LatencyLaw,
) -> list[CellFacts]:
    """Return the facts of a cell, and those of ``Sequential`` with examples begun ahead.

    ``steps``: in the order in which they were done. A cell of a version that did not record what was shown
    has its own facts alone.
    """
    ahead = _ahead(facts, steps, rows, law) if facts.cell.strategy.label == REFERENCE else None
    return [facts] if ahead is None else [facts, ahead]


def _ahead(
    facts: CellFacts,
    steps: Sequence[StepSummary],
    rows: Mapping[str, Sequence[CallRow]],
    law: LatencyLaw,
) -> CellFacts | None:
    ends = [step for step in steps if kind_of(step.kind).sums_up]
    shown = [step.outputs.get("shown") for step in ends]
    if None in shown or not shown:
        return None
    work: dict[int, list[CallRow]] = {step.counts["iteration"]: [] for step in ends}
    for step in steps:
        if step.kind in LEADING:
            work[step.counts["iteration"]] += rows[step.step]
    kept = [part for part in facts.parts if part.iteration < 0 or part.step not in LEADING]
    turns = [
        Turn(
            work_seconds=sum(
                law.seconds(row.completion_tokens, 1, row.uncached_tokens)
                for row in work[step.counts["iteration"]]
            ),
            then_seconds=sum(part.seconds for part in kept if part.iteration == step.counts["iteration"]),
            changes=after != before,
        )
        for step, before, after in zip(ends, shown, [*shown[1:], shown[-1]], strict=True)
    ]
    most = min(AHEAD, facts.slots)
    done = begun_ahead(turns, most)
    parts = [
        Part(
            name=f"map and leaf, {most} at once",
            step=LEADING[0],
            iteration=step.counts["iteration"],
            calls=begun * len(calls),
            tokens=begun * sum(row.tokens for row in calls),
            seconds=seconds,
        )
        for step, begun, seconds in zip(ends, done.begun, done.waits, strict=True)
        for calls in [work[step.counts["iteration"]]]
    ]
    cell = replace(facts.cell, strategy=replace(facts.cell.strategy, ahead=most))
    return replace(facts, cell=cell, parts=(*kept, *parts))
