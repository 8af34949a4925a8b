"""Schedules: what is read, and when they come next, against the calendar of the standard library."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.cron import civil, next_time, parse
from combee.errors import ManifestError

START = datetime(2026, 11, 21, 14, 45, 30, tzinfo=UTC)


def following(text: str, after: datetime = START) -> str | None:
    found = next_time(parse(text), after.timestamp())
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
        ("0 0 30 2 *", None),
    ],
)
def test_when_it_comes_next(text: str, expected: str | None) -> None:
    assert following(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("daily", "it has 1 fields"),
        ("60 * * * *", "minute '60' is not within 0 to 59"),
        ("0 24 * * *", "hour '24' is not within"),
        ("0 0 0 * *", "day '0' is not within"),
        ("0 0 * 13 *", "month '13' is not within"),
        ("0 0 * * 8", "weekday '8' is not within"),
        ("0 0 * * MON", "weekday 'MON' is not"),
        ("*/0 * * * *", "minute"),
        ("1,,2 * * * *", "minute ''"),
        ("-1 * * * *", "minute '-1'"),
    ],
)
def test_what_is_no_schedule(text: str, says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        parse(text)


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
    found = next_time(parse(f"{minute} {hour} * * {weekday}"), after.timestamp())
    assert found is not None
    at = datetime.fromtimestamp(found, UTC)
    assert (at.minute, at.hour, at.isoweekday() % 7, at.second) == (minute, hour, weekday, 0)
    assert timedelta(0) < at - after <= timedelta(days=7)


@given(st.integers(-20_000, 60_000))
def test_the_calendar(day: int) -> None:
    there = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)
    assert civil(day) == (there.year, there.month, there.day)
