"""Energy from counters that were read before and after each step. Pure.

A GPU's counter only rises, but for a reset (its driver was loaded anew), after which it counts from 0. Steps
and their shards overlap, so their intervals are united, in the counter's own unit: nothing counts twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Counters = Mapping[str, float]
"""GPU -> what its counter shows, in joules."""
SKEW_JOULES = 20_000.0
"""What a GPU of 2 kW uses in ten seconds. Pods' clocks differ, so that readings can seem to be in the wrong
order: a counter that falls by less than this was not reset."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All GPUs at one moment. ``at``: seconds since 1970."""

    at: float
    counters: Counters


Interval = tuple[Reading, Reading]
"""Before and after something."""


def used(intervals: Sequence[Interval]) -> float | None:
    """Return the joules that all GPUs used in these intervals together; None where no GPU was
    read at both ends of one.

    What a GPU used up to a reset since its reading before is not known and not counted. Cost: O(n log n) for
    n readings of a GPU.

    >>> before, after = Reading(0.0, {"a": 5.0, "b": 1.0}), Reading(9.0, {"a": 8.0, "b": 1.5})
    >>> used([(before, after), (before, after)])
    3.5
    >>> used([(Reading(0.0, {"a": 1e6}), Reading(9.0, {"a": 2.0}))])
    2.0
    """
    gpus = sorted({gpu for first, last in intervals for gpu in first.counters if gpu in last.counters})
    if not gpus:
        return None
    return math.fsum(_of_gpu(gpu, intervals) for gpu in gpus)


def _of_gpu(gpu: str, intervals: Iterable[Interval]) -> float:
    own = [(first, last) for first, last in intervals if gpu in first.counters and gpu in last.counters]
    readings = sorted({(one.at, one.counters[gpu]) for pair in own for one in pair})
    unrolled = _unrolled(readings)
    spans = sorted(
        (unrolled[first.at, first.counters[gpu]], unrolled[last.at, last.counters[gpu]])
        for first, last in own
    )
    parts, reached = list[float](), -math.inf
    for low, high in spans:
        parts.append(max(0.0, high - max(low, reached)))
        reached = max(reached, high)
    return math.fsum(parts)


def _unrolled(readings: Sequence[tuple[float, float]]) -> dict[tuple[float, float], float]:
    """Return by (time, counter) what the counter would show if it had never been reset."""
    whole, total, before = dict[tuple[float, float], float](), 0.0, None
    for at, value in readings:
        if before is None or before <= value:
            total += value - (value if before is None else before)
            before = value
        elif before - value > SKEW_JOULES:
            total += value
            before = value
        whole[at, value] = total - (before - value)
    return whole
