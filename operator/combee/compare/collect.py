"""What a finished cell says: held-out scores, the recorded call graph in modelled time, counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from combee.algo.latency import LatencyLaw, retime
from combee.clients.store.store import Store
from combee.compare.cells import Cell
from combee.compare.gate import Scores, read_scores
from combee.errors import DataError
from combee.plan.types import StepSummary
from combee.report.bundle import RESULT_FILE
from combee.report.result import Result, read_result
from combee.steps import EVALUATE, kind_of, turn_of
from combee.work.asker import CallRow, decode_rows

LOOK = EVALUATE.part
"""The part of a run that is the comparison's own measurement and charged to nobody."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a run. ``seconds`` is its modelled share of the critical path."""

    name: str
    iteration: int
    calls: int
    tokens: int
    longest_output: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CellFacts:
    """The facts of a finished cell. Seconds are modelled."""

    cell: Cell
    result: Result
    scores: Scores
    parts: tuple[Part, ...]

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


def collect(cell: Cell, slots: int, law: LatencyLaw) -> CellFacts:
    """Read a finished cell and re-time its calls on ``slots``. Raises DataError when its store is gone."""
    file = cell.folder / RESULT_FILE
    result = read_result(file.read_bytes(), where=str(file))
    if not (cell.folder / "store").is_dir():
        raise DataError(
            "its store is gone, and with it the recorded calls",
            where=str(cell.folder),
            fix="Delete the folder and run the same command again",
        )
    store = Store.open(str(cell.folder / "store"))
    steps = read_steps(cell.folder)
    looked = next((step for step in steps if kind_of(step.kind).looks_at_gate), None)
    record = json.loads(store.get_blob(looked.outputs["record"])) if looked is not None else None
    rows = {step.step: _rows(store, cell.folder, step) for step in steps}
    return facts_of(cell, result, steps, rows, read_scores(cell, record, store), slots, law)


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
    return CellFacts(cell, result, scores, tuple(parts))


def read_steps(folder: Path) -> list[StepSummary]:
    """Return the summaries of the finished steps, in the order in which they were done."""
    read = [StepSummary.decode(path.read_bytes()) for path in (folder / "steps").glob("*.json")]
    good = [summary for summary in read if summary is not None and not summary.error]
    return sorted(good, key=lambda step: turn_of(step.kind, step.counts.get("iteration", 0)))


def _rows(store: Store, folder: Path, step: StepSummary) -> list[CallRow]:
    """Return the calls that a step's shards recorded."""
    rows: list[CallRow] = []
    for path in sorted((folder / "store" / "runs").glob(f"*/steps/{step.step}/*.manifest.json")):
        digest = json.loads(path.read_bytes())["outputs"].get("calls")
        if digest is not None:
            rows += decode_rows(store.get_blob(digest))
    return rows


def _parts(step: StepSummary, rows: Sequence[CallRow], slots: int, law: LatencyLaw) -> list[Part]:
    stages: dict[str, dict[int, list[CallRow]]] = {}
    for row in rows:
        stages.setdefault(row.stage, {}).setdefault(row.chain, []).append(row)
    parts = []
    for stage, by_chain in stages.items():
        chains = [
            [(max(0, row.prompt_tokens - row.cached_tokens), row.completion_tokens) for row in by_chain[key]]
            for key in sorted(by_chain)
        ]
        calls = [row for chain in by_chain.values() for row in chain]
        parts.append(
            Part(
                name=part_name(step.kind, stage),
                iteration=step.counts.get("iteration", -1),
                calls=len(calls),
                tokens=sum(row.prompt_tokens + row.completion_tokens for row in calls),
                longest_output=max(row.completion_tokens for row in calls),
                seconds=retime([chains], slots, law).seconds,
            )
        )
    return parts


def part_name(kind: str, stage: str) -> str:
    """Return the words of a table for a stage of a step."""
    if part := kind_of(kind).part:
        return part
    if stage == "reduce":
        return "one call"
    return stage.replace("reduce round", "leaf round")


def mean(values: Iterable[float]) -> float:
    """Return the mean, or 0 where there are no values."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
