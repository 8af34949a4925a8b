"""List scheduling: how long recorded calls take on a run's slots (modelled time, critical path)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.errors import BugError

Chain = Sequence[float]
Stage = Sequence[Chain]


@dataclass(frozen=True, slots=True)
class Schedule:
    """``seconds`` of all stages one after the other; ``per_stage`` their parts, same order."""

    seconds: float
    per_stage: tuple[float, ...]


def list_schedule(stages: Sequence[Stage], slots: int) -> Schedule:
    """Time of the stages on ``slots`` parallel call slots, in the unit of the durations (seconds).

    A stage is a set of chains, a chain is the durations of calls made one after the other (roll out,
    reflect, ...). Each call takes one slot; ready calls are served first come, first served (ties in
    the order of the chains), as a run's fair limiter serves them; the next call of a chain becomes
    ready when the previous ends. A stage starts when the one before has ended (a barrier). Empty
    stages and chains take no time. ``slots`` < 1, NaN, infinite or negative durations raise
    ``BugError``. Source: DESIGN section 6 ("Modelled time") and section 10; Graham 1966: at most
    (2 - 1/slots) of the best. Cost: O(c log c) for c calls.

    >>> list_schedule([[[3.0], [2.0, 1.0], [2.0]], [[5.0]]], slots=2)
    Schedule(seconds=9.0, per_stage=(4.0, 5.0))
    """
    if slots < 1:
        raise BugError(f"slots must be at least 1, not {slots}", where="list_schedule")
    per_stage = tuple(_stage_seconds(_checked(stage), slots) for stage in stages)
    return Schedule(math.fsum(per_stage), per_stage)


def critical_path(stages: Sequence[Stage]) -> float:
    """Time with a slot for every call: the longest chain of each stage, summed. Seconds.

    Nothing in any schedule is faster. Empty gives 0; errors as ``list_schedule``. Source: DESIGN
    section 10. Cost: O(c).

    >>> critical_path([[[3.0], [2.0, 2.0]], [[5.0]]])
    9.0
    """
    return math.fsum(max(map(math.fsum, _checked(stage)), default=0.0) for stage in stages)


def _checked(stage: Stage) -> Stage:
    for chain in stage:
        for seconds in chain:
            if not (math.isfinite(seconds) and seconds >= 0):
                raise BugError(f"a call cannot take {seconds} s", where="list_schedule")
    return stage


def _stage_seconds(stage: Stage, slots: int) -> float:
    calls = sum(len(chain) for chain in stage)
    free = [0.0] * min(slots, max(calls, 1))
    ready = [(0.0, k, 0) for k, chain in enumerate(stage) if chain]
    end = 0.0
    while ready:
        ready_at, k, position = heapq.heappop(ready)
        end_at = max(ready_at, heapq.heappop(free)) + stage[k][position]
        heapq.heappush(free, end_at)
        end = max(end, end_at)
        if position + 1 < len(stage[k]):
            heapq.heappush(ready, (end_at, k, position + 1))
    return end
