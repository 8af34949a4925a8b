"""The times of a comparison on several numbers of slots, side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from combee.algo.stats import MeanInterval
from combee.compare.table import Row
from combee.report.text import duration

Table = tuple[list[str], list[list[str]]]
"""Heads and lines."""


def table(rows: Sequence[Row], task: str) -> Table | None:
    """Return a task's strategies with three columns for each number of slots, and the best plain loop of each
    number in its head; None where the task was timed on one number."""
    own_rows = [row for row in rows if row.task == task]
    numbers = sorted({row.slots for row in own_rows})
    if len(numbers) < 2:
        return None
    by_key = {(row.strategy, row.slots): row for row in own_rows}
    heads = ["strategy"]
    for number in numbers:
        heads += [
            f"{number} slots",
            f"{number} slots: speed-up",
            f"{number} slots: over {_plain(own_rows, number)}",
        ]
    return heads, [
        [name, *(cell for number in numbers for cell in cells(by_key.get((name, number))))]
        for name in dict.fromkeys(row.strategy for row in own_rows)
    ]


def times(ratio: MeanInterval) -> str:
    """Return a ratio of times with its interval, such as ``1.9x (1.7 to 2.1)``."""
    bounds = f" ({ratio.low:.1f} to {ratio.high:.1f})" if ratio.n > 1 else ""
    return f"{ratio.mean:.1f}x{bounds}"


def _plain(rows: Sequence[Row], number: int) -> str:
    names = {row.over_plain.strategy for row in rows if row.slots == number and row.over_plain}
    return " or ".join(sorted(names)) or "the best plain loop"


def cells(row: Row | None) -> list[str]:
    """Return a row's modelled time, its speed-up and its speed over the best plain loop."""
    if row is None:
        return [""] * 3
    speed = times(row.speed_up) if row.speed_up else "1x" if row.reference else ""
    return [duration(row.seconds), speed, times(row.over_plain.ratio) if row.over_plain else ""]
