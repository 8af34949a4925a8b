"""Reads a finished cell: its result, its scores, the calls that its steps recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from combee.algo.latency import LatencyLaw
from combee.clients.store.store import Store
from combee.compare.ahead import with_ahead
from combee.compare.cells import Cell
from combee.compare.facts import CellFacts, facts_of
from combee.compare.gate import Scores, read_scores
from combee.errors import DataError
from combee.plan.types import StepSummary
from combee.report.bundle import RESULT_FILE
from combee.report.result import Result, read_result
from combee.steps import kind_of, turn_of
from combee.work.asker import CallRow, decode_rows


def collect(cell: Cell, slots: Sequence[int], law: LatencyLaw) -> list[CellFacts]:
    """Read a finished cell and re-time its calls on each of ``slots``; ``Sequential`` comes twice, see
    ``ahead``.

    Raises DataError when its store is gone.
    """
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
    record = looked.outputs["record"] if looked is not None else ""
    rows = {step.step: _rows(store, cell.folder, step) for step in steps}
    scores = read_scores(cell, record, store)
    return timed(cell, result, steps, rows, scores, slots, law)


def timed(
    cell: Cell,
    result: Result,
    steps: Sequence[StepSummary],
    rows: Mapping[str, Sequence[CallRow]],
    scores: Scores,
    slots: Sequence[int],
    law: LatencyLaw,
) -> list[CellFacts]:
    """Return the facts of what a cell recorded, on each of ``slots``; a cell that chose its sizes for its
    slots is timed on these alone."""
    own = cell.strategy.slots
    return [
        facts
        for number in (slots if own is None else [own])
        for facts in with_ahead(facts_of(cell, result, steps, rows, scores, number, law), steps, rows, law)
    ]


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
