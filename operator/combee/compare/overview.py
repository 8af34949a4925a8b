"""The overview of a comparison: every strategy on every task in one table, and their order beside the
paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from combee.algo.grouping import grouped
from combee.algo.stats import MeanInterval, Paired
from combee.compare.paper import published
from combee.compare.table import Row
from combee.report.text import duration, score, signed

PAPERS = "by GEPA with DeepSeek-V3.1"


def heads(tasks: Sequence[str]) -> list[str]:
    """Return the table's heads: the strategy, then four columns for each task."""
    columns = ("held-out", "minus Sequential", "modelled time", "the paper, GEPA")
    return ["strategy", *(f"{task}: {column}" for task in tasks for column in columns)]


def table(rows: Sequence[Row], types: Mapping[str, str]) -> list[list[str]]:
    """Return a line for each strategy (of each method), with 95 % intervals over seeds. ``types``: task name
    -> task type."""
    rows_by_key = {(row.strategy, row.task): row for row in rows}
    return [
        [name, *(cell for task in types for cell in _cells(rows_by_key.get((name, task)), types[task]))]
        for name in dict.fromkeys(row.strategy for row in rows)
    ]


def _cells(row: Row | None, task_type: str) -> list[str]:
    if row is None:
        return [""] * 4
    point = published(task_type, row.cells[0].cell.strategy)
    return [
        span(row.score, score),
        span(row.difference.over_seeds if row.difference else None),
        duration(row.seconds),
        score(point.accuracy) if point is not None else "",
    ]


def span(interval: MeanInterval | Paired | None, write: Callable[[float], str] = signed) -> str:
    """Return an interval like ``+0.012 (−0.003 to +0.027)``; empty for None."""
    if interval is None:
        return ""
    mean = write(interval.mean)
    return f"{mean} ({write(interval.low)} to {write(interval.high)})" if interval.n > 1 else mean


def orders(rows: Sequence[Row], task_type: str) -> list[str]:
    """Return a sentence for each method of one task: the strategies that the paper has too, best first, and
    the order of the paper's runs, by the paper's names. A method with fewer than two such strategies has no
    sentence."""
    sentences = []
    for method, method_rows in grouped(rows, lambda row: row.method).items():
        pairs = [(row, published(task_type, row.cells[0].cell.strategy)) for row in method_rows]
        matched = [(row, point) for row, point in pairs if point is not None]
        if len(matched) < 2:
            continue
        own_order = sorted((row for row, _ in matched), key=lambda row: -row.score.mean)
        paper_order = sorted(dict.fromkeys(point for _, point in matched), key=lambda point: -point.accuracy)
        sentences.append(
            f"Order by held-out, {method}: "
            f"{', '.join(f'{_name(row)} {score(row.score.mean)}' for row in own_order)}. "
            f"The paper's, {PAPERS}: "
            f"{', '.join(f'{point.name} {score(point.accuracy)}' for point in paper_order)}."
        )
    return sentences


def _name(row: Row) -> str:
    return row.cells[0].cell.strategy.label
