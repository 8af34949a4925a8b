"""From the traces of single calls to one observation of the delay model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import median

from combee.work.asker import CallRow, modelled_seconds

STRAGGLER = 4.0
"""A call counts at most this many times the median of its stage and role."""


def typical_seconds(rows: list[CallRow], slots: int) -> float:
    """``modelled_seconds`` with stragglers cut: what this many examples take on an ordinary day.

    One call that is ten times as slow as its like is a fault met, which says nothing of how time
    grows with the batch and would look like a change of the workload; when all are slower, so is
    their median. Seconds; never more than ``modelled_seconds``.
    """
    latencies: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        latencies[row.stage, row.role].append(row.seconds)
    most = {key: STRAGGLER * median(seconds) for key, seconds in latencies.items()}
    cut = [replace(row, seconds=min(row.seconds, most[row.stage, row.role])) for row in rows]
    return modelled_seconds(cut, slots)
