"""What a comparison says at a glance: every strategy on every task in one table, and its order beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from combee.algo.stats import MeanInterval
from combee.compare.paper import published
from combee.compare.table import Row
from combee.report.text import duration, score, signed

PAPERS = "by GEPA with DeepSeek-V3.1"


def heads(tasks: Sequence[str]) -> list[str]:
    """The heads of the table: the strategy, then the same four of each task."""
    each = ("held-out", "minus Sequential", "modelled time", "the paper, GEPA")
    return ["strategy", *(f"{task}: {what}" for task in tasks for what in each)]


def table(rows: Sequence[Row], types: Mapping[str, str]) -> list[list[str]]:
    """A line for each strategy (of each method), with 95 % intervals over seeds. ``types``: task name -> task type."""
    found = {(row.strategy, row.task): row for row in rows}
    return [
        [name, *(cell for task in types for cell in _cells(found.get((name, task)), types[task]))]
        for name in dict.fromkeys(row.strategy for row in rows)
    ]


def _cells(row: Row | None, task_type: str) -> list[str]:
    if row is None:
        return [""] * 4
    difference = _span(row.difference.over_seeds, signed) if row.difference else ""
    point = published(task_type, row.cells[0].cell.strategy)
    return [
        _span(row.score, score),
        difference,
        duration(row.seconds),
        score(point.accuracy) if point is not None else "",
    ]


def _span(found: MeanInterval, write: Callable[[float], str]) -> str:
    mean = write(found.mean)
    return f"{mean} ({write(found.low)} to {write(found.high)})" if found.n > 1 else mean


def orders(rows: Sequence[Row], task_type: str) -> list[str]:
    """For each method of one task: its strategies that the paper has, too, best first, and the order of the paper's
    runs that they stand beside, by the paper's names; nothing where these are fewer than two."""
    said = []
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        pairs = [(row, published(task_type, row.cells[0].cell.strategy)) for row in mine]
        known = [(row, point) for row, point in pairs if point is not None]
        if len(known) < 2:
            continue
        ours = sorted((row for row, _ in known), key=lambda row: -row.score.mean)
        theirs = sorted(dict.fromkeys(point for _, point in known), key=lambda point: -point.accuracy)
        said.append(
            f"Order by held-out, {method}: {', '.join(f'{_name(row)} {score(row.score.mean)}' for row in ours)}. "
            f"The paper's, {PAPERS}: {', '.join(f'{point.name} {score(point.accuracy)}' for point in theirs)}."
        )
    return said


def _name(row: Row) -> str:
    return row.cells[0].cell.strategy.label
