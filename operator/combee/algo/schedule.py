"""List scheduling: how long recorded calls take on a run's slots (modelled time, critical path)."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from cronsim import CronSim, CronSimError

from combee.errors import BugError, ManifestError
from combee.times import utc

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


_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_SPAN = re.compile(r"([0-9]{1,2})-([0-9]{1,2})(?:/([0-9]{1,2}))?")


def next_time(schedule: str, after: float) -> float | None:
    """Return the first time later than ``after``, in seconds since 1970; None if fifty years hold none.

    Raises a ManifestError that names the wrong field.

    >>> next_time("0 3 * * 1", 0.0) / 3600   # Monday, 5 January 1970, at three
    99.0
    """
    fields = schedule.split()
    try:
        if len(fields) != len(_RANGES):
            raise CronSimError(f"it has {len(fields)} fields")
        times = CronSim(" ".join(map(_unrolled, fields, _RANGES)), utc(after))
    except CronSimError as error:
        reason = str(error)
        raise ManifestError(
            f"{schedule[:100]!r} is not a schedule: {reason[0].lower()}{reason[1:]}",
            where="spec.learn.schedule",
            fix='Write five fields of cron, such as "0 3 * * 1" for Mondays at three, UTC',
        ) from None
    upcoming = next(times, None)
    return None if upcoming is None else upcoming.timestamp()


def _unrolled(field: str, bounds: tuple[int, int]) -> str:
    """Return ``field`` with ranges that wrap around written as lists, and ranges of one value as that value:
    cronsim would let a step run on from it."""
    low, high = bounds
    parts = field.split(",")
    for index, part in enumerate(parts):
        if (match := _SPAN.fullmatch(part)) is None:
            continue
        start, end, step = (int(number or 1) for number in match.groups())
        if low <= end <= start <= high and step:
            values = [start] if start == end else [*range(start, high + 1), *range(low, end + 1)]
            parts[index] = ",".join(map(str, values[::step]))
    return ",".join(parts)
