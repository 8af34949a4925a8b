"""When a cron schedule of five fields comes next, in UTC. The clock is the caller's.

The fields are ``minute hour day month weekday``, read by cronsim as Debian's cron reads them: where both day
and weekday are given, either matches. One thing is added: a range that ends before it begins wraps around
(``22-2``).
"""

from __future__ import annotations

import re

from cronsim import CronSim, CronSimError

from combee.errors import ManifestError
from combee.times import utc

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
