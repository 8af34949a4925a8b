"""The facts of a finished cell: held-out scores, counts, and its recorded call graph in modelled time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from combee.algo.latency import LatencyLaw, replay
from combee.clients.store.store import Store
from combee.compare.cells import Cell
from combee.compare.gate import Scores, read_scores
from combee.errors import DataError
from combee.plan.types import StepSummary
from combee.report.result import Result, read_result
from combee.work.asker import CallRow, decode_rows

_ORDER = {"profile": 0, "map": 1, "reduce": 2, "finish": 3, "evaluate": 4}
LOOK = "gate"
"""The part of a run that is the comparison's own measurement, and is not charged."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a run, with its calls and tokens. ``seconds`` are modelled: its share of the critical
    path."""

    name: str
    iteration: int
    calls: int
    tokens: int
    longest_output: int
    seconds: float


@dataclass(frozen=True, slots=True)
class CellFacts:
    """The facts of one finished cell. Seconds are modelled."""

    cell: Cell
    result: Result
    scores: Scores
    parts: tuple[Part, ...]

    @property
    def charged(self) -> list[Part]:
        """All parts but the look at gate: profiling, learning, verification, select."""
        return [part for part in self.parts if part.name != LOOK]

    @property
    def seconds(self) -> float:
        """The modelled seconds of the charged parts."""
        return sum(part.seconds for part in self.charged)

    @property
    def calls(self) -> int:
        """The charged model calls, memo hits included."""
        return sum(part.calls for part in self.charged)

    @property
    def tokens(self) -> int:
        """The charged tokens, in and out."""
        return sum(part.tokens for part in self.charged)

    @property
    def best(self) -> float:
        """The score on gate, in [0, 1], of the playbook that was best on select."""
        return _mean(self.scores["best"].values())

    @property
    def baseline(self) -> float:
        """The score of the start on gate, in [0, 1]."""
        return _mean(self.scores["baseline"].values())


def collect(cell: Cell, slots: int, law: LatencyLaw) -> CellFacts:
    """Read a finished cell and re-time its calls on ``slots``. Raises DataError when its store is gone."""
    result = read_result((cell.folder / "result.json").read_bytes(), where=str(cell.folder / "result.json"))
    if not (cell.folder / "store").is_dir():
        raise DataError(
            "its store is gone, and with it the recorded calls",
            where=str(cell.folder),
            fix="Delete the folder and run the same command again",
        )
    store = Store.open(str(cell.folder / "store"))
    steps = read_steps(cell.folder)
    evaluation = next((step for step in steps if step.kind == "evaluate"), None)
    record = json.loads(store.get_blob(evaluation.outputs["record"])) if evaluation is not None else None
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
    """Return the facts of a cell whose calls, ``rows`` by step, are re-timed on ``slots``."""
    parts = [part for step in steps for part in _parts(step, rows[step.step], slots, law)]
    return CellFacts(cell, result, scores, tuple(parts))


def read_steps(folder: Path) -> list[StepSummary]:
    """Return the summaries of the finished steps, in the order of the steps."""
    summaries = [StepSummary.decode(path.read_bytes()) for path in (folder / "steps").glob("*.json")]
    finished = [summary for summary in summaries if summary is not None and not summary.error]
    return sorted(
        finished,
        key=lambda step: (
            {"profile": 0, "evaluate": 2}.get(step.kind, 1),
            step.counts.get("iteration", 0),
            _ORDER[step.kind],
        ),
    )


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
                seconds=replay([chains], slots, law).seconds,
            )
        )
    return parts


def part_name(kind: str, stage: str) -> str:
    """Return the name of a step's stage in a table."""
    if kind == "profile":
        return "profile"
    if kind == "evaluate":
        return LOOK
    if stage == "reduce":
        return "one call"
    return stage.replace("reduce round", "leaf round")


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
