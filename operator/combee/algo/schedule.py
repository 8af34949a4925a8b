"""List scheduling: how long recorded calls take on a run's slots (modelled time, critical path)."""

from __future__ import annotations

import heapq
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

from cronsim import CronSim, CronSimError

from combee.errors import BugError, ManifestError
from combee.times import utc

Call = TypeVar("Call")
Chain = Sequence[Call]
"""Calls made one after the other (roll out, reflect, ...)."""
Stage = Sequence[Chain[Call]]
Beside = Mapping[int, Sequence[Sequence[int]]]
"""By the index of a stage that is no barrier: for each of its chains, the chains of the stage before that it
waits for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """``seconds`` of all stages; ``per_stage`` what each adds to those before it, same order."""

    seconds: float
    per_stage: tuple[float, ...]


class _Starts:
    """Which chains may begin, as others end.

    A stage begins when all before it have ended, but for those of ``beside``: each of their chains begins
    when the chains that it names have ended. A chain without calls has ended from the start. Raises
    ``BugError`` for a first stage that is beside another, and for a chain that names one that does not exist.
    """

    def __init__(self, stages: Sequence[Stage[object]], beside: Beside) -> None:
        self._stages, self._beside, self._opened = stages, beside, 0
        self._left = [sum(map(bool, stage)) for stage in stages]
        self._waits: dict[tuple[int, int], int] = {}
        self._then: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for stage, waited in beside.items():
            self._wait(stage, waited)

    def _wait(self, stage: int, waited: Sequence[Sequence[int]]) -> None:
        if not 0 < stage < len(self._stages) or len(waited) != len(self._stages[stage]):
            raise BugError(f"stage {stage} of {len(self._stages)} is beside none", where="schedule")
        before = self._stages[stage - 1]
        for chain, names in enumerate(waited):
            if any(not 0 <= name < len(before) for name in names):
                raise BugError(f"chain {chain} of stage {stage} waits for {names}", where="schedule")
            ahead = {name for name in names if before[name]}
            self._waits[stage, chain] = len(ahead)
            for name in ahead:
                self._then.setdefault((stage - 1, name), []).append((stage, chain))

    def first(self) -> list[tuple[int, int]]:
        """Return the (stage, chain) that wait for nothing, in order."""
        starting: list[tuple[int, int]] = []
        while self._opened < len(self._stages) and (
            self._opened in self._beside or not any(self._left[: self._opened])
        ):
            stage = self._opened
            self._opened += 1
            chains = enumerate(self._stages[stage])
            starting += [(stage, k) for k, chain in chains if chain and not self._waits.get((stage, k))]
        return starting

    def ended(self, stage: int, chain: int) -> list[tuple[int, int]]:
        """Return the (stage, chain) that may begin now that this one has ended, in order."""
        self._left[stage] -= 1
        starting = []
        for follower in self._then.get((stage, chain), ()):
            self._waits[follower] -= 1
            if not self._waits[follower] and self._stages[follower[0]][follower[1]]:
                starting.append(follower)
        return starting + self.first()


def turns(
    stages: Sequence[Stage[Call]], slots: int, beside: Beside | None, work: Callable[[Call], float]
) -> Iterator[tuple[float, list[int], list[Call], int]]:
    """Serve all calls on ``slots``, from one end of calls to the next: (end, the stages of the calls that
    ended, the calls that began with the turn, how many ran).

    Each call takes one slot and ends when those that run have done its ``work`` since it began; ``end`` is in
    the unit of that. Ready calls are served first come, first served (ties in the order of the chains), as a
    run's fair limiter serves them; the next call of a chain becomes ready when the previous ends. A stage
    starts when all before have ended (a barrier); of a stage in ``beside`` each chain starts when those that
    it names have. ``slots`` < 1 raises ``BugError``. Cost: O(c log slots) for c calls.

    >>> [end for end, *_ in turns([[[3.0], [2.0, 2.0]], [[5.0]]], 2, None, float)]
    [2.0, 3.0, 4.0, 9.0]
    """
    if slots < 1:
        raise BugError(f"slots must be at least 1, not {slots}", where="schedule")
    starts = _Starts(stages, beside or {})
    ready = deque((stage, k, 0) for stage, k in starts.first())
    running: list[tuple[float, int, int, int]] = []
    now = 0.0
    while ready or running:
        began = []
        while ready and len(running) < slots:
            stage, k, position = ready.popleft()
            began.append(stages[stage][k][position])
            heapq.heappush(running, (now + work(began[-1]), stage, k, position))
        now, ran, ended = running[0][0], len(running), []
        while running and running[0][0] <= now:
            _, stage, k, position = heapq.heappop(running)
            ended.append(stage)
            following = position + 1 < len(stages[stage][k])
            ready += (
                [(stage, k, position + 1)] if following else [(*one, 0) for one in starts.ended(stage, k)]
            )
        yield now, ended, began, ran


def list_schedule(stages: Sequence[Stage[float]], slots: int, beside: Beside | None = None) -> Schedule:
    """Time of the stages on ``slots`` parallel call slots, in the unit of the durations (seconds).

    A stage is a set of chains, a chain is the durations of its calls; who waits for whom: ``turns``.
    Empty stages and chains take no time. ``slots`` < 1, NaN, infinite or negative durations raise
    ``BugError``. Source: DESIGN section 6 ("Modelled time") and section 10; Graham 1966: at most
    (2 - 1/slots) of the best. Cost: O(c log slots) for c calls.

    >>> list_schedule([[[3.0], [2.0, 1.0], [2.0]], [[5.0]]], slots=2)
    Schedule(seconds=9.0, per_stage=(4.0, 5.0))
    >>> list_schedule([[[3.0], [5.0]], [[4.0]]], slots=2, beside={1: [[0]]})
    Schedule(seconds=7.0, per_stage=(5.0, 2.0))
    """
    ends = [0.0] * len(stages)
    for end, ended, _, _ in turns(stages, slots, beside, _checked):
        for stage in ended:
            ends[stage] = end
    return schedule_of(ends)


def schedule_of(ends: Sequence[float]) -> Schedule:
    """Return the schedule of stages that ended at these times, 0 for one without calls.

    >>> schedule_of([3.0, 0.0, 7.0])
    Schedule(seconds=7.0, per_stage=(3.0, 0.0, 4.0))
    """
    latest = list(accumulate(ends, max))
    return Schedule(
        latest[-1] if latest else 0.0, tuple(end - before for before, end in pairwise([0.0, *latest]))
    )


def _checked(seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds >= 0):
        raise BugError(f"a call cannot take {seconds} s", where="list_schedule")
    return seconds


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
