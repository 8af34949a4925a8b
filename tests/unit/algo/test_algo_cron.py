"""Schedules: what is read, and when they come next, against the calendar of the standard library."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.schedule import next_time
from combee.errors import ManifestError

START = datetime(2026, 11, 21, 14, 45, 30, tzinfo=UTC)


def following(text: str, after: datetime = START) -> str | None:
    found = next_time(text, after.timestamp())
    return None if found is None else datetime.fromtimestamp(found, UTC).strftime("%a %Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "Sat 2026-11-21 14:46"),
        ("0 3 * * 1", "Mon 2026-11-23 03:00"),
        ("45 14 * * *", "Sun 2026-11-22 14:45"),
        ("*/20 * * * *", "Sat 2026-11-21 15:00"),
        ("5/20 * * * *", "Sat 2026-11-21 15:05"),
        ("0 22-2 * * *", "Sat 2026-11-21 22:00"),
        ("0 9-17/4 * * 1-5", "Mon 2026-11-23 09:00"),
        ("0 0 1 1 *", "Fri 2027-01-01 00:00"),
        ("0 0 29 2 *", "Tue 2028-02-29 00:00"),
        ("0 0 * * 7", "Sun 2026-11-22 00:00"),
        ("0 0 * * 0", "Sun 2026-11-22 00:00"),
        ("0 0 13 * 5", "Fri 2026-11-27 00:00"),
        ("30 4 1,15 * *", "Tue 2026-12-01 04:30"),
        ("2-2/8 15 * * *", "Sat 2026-11-21 15:02"),
        ("2-2/8 15-15/4 21-21/3 * *", "Sat 2026-11-21 15:02"),
        ("0 15-15/4 21-21/3 11-11/1 6-6/1", "Sat 2026-11-21 15:00"),
        ("0 16-15/24 * * *", "Sat 2026-11-21 16:00"),
        ("0 10-10/5 * * *", "Sun 2026-11-22 10:00"),
        ("0 0 29 2 */7", "Sun 2032-02-29 00:00"),
        ("0 22-2/2 * * *", "Sat 2026-11-21 22:00"),
        ("0 0 * 11-1 FRI-SAT", "Fri 2026-11-27 00:00"),
        ("0 0 31 4 1", "Mon 2027-04-05 00:00"),
        ("0 0 30 2 1#5", "Mon 2044-02-29 00:00"),
    ],
)
def test_when_it_comes_next(text: str, expected: str | None) -> None:
    assert following(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("daily", "it has 1 fields"),
        ("0 0 0 * * *", "it has 6 fields"),
        ("60 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 0 * *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * 8", "bad day-of-week"),
        ("0 0 * * 8-1", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("22-2/0 * * * *", "bad minute"),
        ("1,,2 * * * *", "bad minute"),
        ("-1 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
    ],
)
def test_what_is_no_schedule(text: str, says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        next_time(text, 0.0)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 59),
    st.integers(0, 23),
    st.integers(0, 6),
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2090, 1, 1)),  # noqa: DTZ001
)
def test_a_weekly_schedule_comes_within_a_week_at_its_time(
    minute: int, hour: int, weekday: int, naive: datetime
) -> None:
    after = naive.replace(tzinfo=UTC)
    found = next_time(f"{minute} {hour} * * {weekday}", after.timestamp())
    assert found is not None
    at = datetime.fromtimestamp(found, UTC)
    assert (at.minute, at.hour, at.isoweekday() % 7, at.second) == (minute, hour, weekday, 0)
    assert timedelta(0) < at - after <= timedelta(days=7)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 59), min_size=1, max_size=3),
    st.tuples(st.integers(0, 23), st.integers(0, 23)),
    st.integers(1, 28),
    st.integers(0, 7),
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2090, 1, 1)),  # noqa: DTZ001
)
def test_no_minute_before_it_fits(
    minutes: list[int], hours: tuple[int, int], day: int, weekday: int, naive: datetime
) -> None:
    after = naive.replace(tzinfo=UTC)
    start, end = hours

    def fits(at: datetime) -> bool:
        within = start <= at.hour <= end if start <= end else at.hour >= start or at.hour <= end
        return at.minute in minutes and within and (at.day == day or at.isoweekday() % 7 == weekday % 7)

    fields = f"{','.join(map(str, minutes))} {start}-{end} {day} * {weekday}"
    coming = next_time(fields, after.timestamp())
    assert coming is not None
    minute = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while not fits(minute):
        minute += timedelta(minutes=1)
    assert datetime.fromtimestamp(coming, UTC) == minute
