"""When a schedule of five fields of cron comes next, in UTC, without a clock or a calendar of the machine.

``minute hour day month weekday``; each field is ``*``, a number, a range, a list of them, with ``/step``.
Weekdays are 0 to 7, both ends being Sunday. A range that ends before it begins goes round (``22-2``). As in
POSIX, where both day and weekday are given, either will do. Names (``MON``) and ``@daily`` are not taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from combee.errors import ManifestError

_MINUTE, _DAY = 60, 86_400
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_PART = re.compile(r"(\*|\d{1,2}(?:-\d{1,2})?)(?:/(\d{1,2}))?")
_HORIZON_DAYS = 9 * 366
"""29 February can be eight years away."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule that was read. Minutes, hours, days of the month from 1, months from 1, weekdays from Sunday = 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def on(self, days_since_1970: int) -> bool:
        """Whether it comes on this day at all."""
        _, month, day = civil(days_since_1970)
        if month not in self.months:
            return False
        by_day, by_weekday = day in self.days, (days_since_1970 + 4) % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday


def parse(text: str) -> Schedule:
    """Read five fields. ManifestError that says which field is wrong.

    >>> sorted(parse("*/20 3 * * 1").minutes)
    [0, 20, 40]
    """
    fields = text.split()
    if len(fields) != len(_FIELDS):
        raise _wrong(text, f"it has {len(fields)} fields")
    read = [_field(text, field, *named) for field, named in zip(fields, _FIELDS, strict=True)]
    weekdays = frozenset(day % 7 for day in read[4])
    return Schedule(
        read[0], read[1], read[2], read[3], weekdays, fields[2].startswith("*"), fields[4].startswith("*")
    )


def _field(text: str, field: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _wrong(text, f"{name} {part[:20]!r} is not *, a number, a range or a step")
        span, step = match.group(1), int(match.group(2) or 1)
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        # "5/10" is every ten from 5 on.
        start, end = int(first), int(last or (high if match.group(2) else first))
        if not (low <= start <= high and low <= end <= high and step >= 1):
            raise _wrong(text, f"{name} {part!r} is not within {low} to {high}")
        turn = high - low + 1
        length = (end - start) % turn if end < start else end - start
        values |= {low + (start - low + offset) % turn for offset in range(0, length + 1, step)}
    return frozenset(values)


def _wrong(text: str, what: str) -> ManifestError:
    return ManifestError(
        f"{text[:100]!r} is not a schedule: {what}",
        where="spec.learn.schedule",
        fix='Write five fields of cron, such as "0 3 * * 1" for Mondays at three, UTC',
    )


def next_time(schedule: Schedule, after: float) -> float | None:
    """The first time later than ``after``, in seconds since 1970; None where there is none in nine years.

    >>> next_time(parse("0 3 * * 1"), 0.0) / 3600   # Monday, 5 January 1970, at three
    99.0
    >>> next_time(parse("0 0 30 2 *"), 0.0) is None
    True
    """
    minute = int(after // _MINUTE) + 1
    today = minute * _MINUTE // _DAY
    for day in range(today, today + _HORIZON_DAYS):
        if not schedule.on(day):
            continue
        from_ = minute - day * 1440 if day == today else 0
        times = (hour * 60 + at for hour in schedule.hours for at in schedule.minutes)
        if (first := min((time for time in times if time >= from_), default=None)) is not None:
            return float(day * _DAY + first * _MINUTE)
    return None


def civil(days_since_1970: int) -> tuple[int, int, int]:
    """Year, month and day of the Gregorian calendar. Source: Hinnant, chrono-compatible low-level date algorithms.

    >>> civil(0), civil(11_016), civil(20_512)
    ((1970, 1, 1), (2000, 2, 29), (2026, 2, 28))
    """
    shifted = days_since_1970 + 719_468
    era, day_of_era = divmod(shifted, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + 400 * era + (month <= 2)
    return year, month, day_of_year - (153 * shifted_month + 2) // 5 + 1
