"""What a finished cell says: held-out scores, the recorded call graph in modelled time, counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from combee.algo.latency import LatencyLaw
from combee.compare.cells import Cell
from combee.compare.gate import Scores
from combee.plan.types import StepSummary
from combee.report.result import Result
from combee.steps import EVALUATE, kind_of
from combee.work.asker import CallRow
from combee.work.callgraph import graph_of, retimed

LOOK = EVALUATE.part
"""The part of a run that is the comparison's own measurement and charged to nobody."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a run. ``seconds`` is its modelled share of the critical path."""

    name: str
    step: str
    """the kind of step that it is a stage of."""
    iteration: int
    calls: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CellFacts:
    """The facts of a finished cell. Seconds are modelled."""

    cell: Cell
    result: Result
    scores: Scores
    parts: tuple[Part, ...]
    slots: int

    @property
    def charged(self) -> list[Part]:
        """Everything but the look at gate: profiling, learning, verification, select."""
        return [part for part in self.parts if part.name != LOOK]

    @property
    def seconds(self) -> float:
        """The modelled time of everything that is charged."""
        return sum(part.seconds for part in self.charged)

    @property
    def calls(self) -> int:
        """The model calls that are charged, memo hits among them."""
        return sum(part.calls for part in self.charged)

    @property
    def tokens(self) -> int:
        """The tokens in and out that are charged."""
        return sum(part.tokens for part in self.charged)

    @property
    def best(self) -> float:
        """The score on gate of the playbook that was best on select."""
        return mean(self.scores["best"].values())

    @property
    def baseline(self) -> float:
        """The score on gate of the start."""
        return mean(self.scores["baseline"].values())


def facts_of(
    cell: Cell,
    result: Result,
    steps: Sequence[StepSummary],
    rows: Mapping[str, Sequence[CallRow]],
    scores: Scores,
    slots: int,
    law: LatencyLaw,
) -> CellFacts:
    """Return the facts of a cell, its recorded calls re-timed on ``slots``."""
    parts = [part for step in steps for part in _parts(step, rows[step.step], slots, law)]
    return CellFacts(cell, result, scores, tuple(parts), slots)


def _parts(step: StepSummary, rows: Sequence[CallRow], slots: int, law: LatencyLaw) -> list[Part]:
    graph = graph_of(rows)
    times = retimed(graph, slots, law).per_stage
    parts = []
    for stage, chains, seconds in zip(graph.names, graph.stages, times, strict=True):
        calls = [row for chain in chains for row in chain]
        parts.append(
            Part(
                name=part_name(step.kind, stage),
                step=step.kind,
                iteration=step.counts.get("iteration", -1),
                calls=len(calls),
                tokens=sum(row.tokens for row in calls),
                seconds=seconds,
            )
        )
    return parts


def part_name(kind: str, stage: str) -> str:
    """Return the words of a table for a stage of a step."""
    return kind_of(kind).part or stage


def mean(values: Iterable[float]) -> float:
    """Return the mean, or 0 where there are no values."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
