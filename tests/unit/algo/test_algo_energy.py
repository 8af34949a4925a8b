"""Energy from GPUs' counters: overlaps count once, resets never count backwards."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.energy import SKEW_JOULES, Reading, used

RISES = st.lists(st.floats(0, 1e5), min_size=1, max_size=30)


def readings(rises: list[float], start: float = 5e6) -> list[Reading]:
    """What a counter shows, second by second."""
    shown, made = start, []
    for second, rise in enumerate(rises):
        shown += rise
        made.append(Reading(float(second), {"a": shown}))
    return made


@given(RISES, st.data())
def test_intervals_that_cover_a_stretch_count_it_once(rises: list[float], data: st.DataObject) -> None:
    points = readings([0.0, *rises])
    last = len(points) - 1
    cuts = sorted(data.draw(st.lists(st.integers(0, last), max_size=6)))
    ends = [0, *cuts, last]
    chain = [(points[low], points[high]) for low, high in itertools.pairwise(ends)]
    more = data.draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, last)), max_size=6))
    beside = [(points[min(pair)], points[max(pair)]) for pair in more]
    assert used([*chain, *beside]) == pytest.approx(sum(rises), abs=1e-3)


@given(RISES, st.data())
def test_what_no_interval_covers_is_not_counted(rises: list[float], data: st.DataObject) -> None:
    points = readings([0.0, *rises, 0.0])
    low = data.draw(st.integers(0, len(rises)))
    high = data.draw(st.integers(low, len(rises)))
    assert used([(points[low], points[high])]) == pytest.approx(sum(rises[low:high]), abs=1e-3)


@given(RISES, RISES)
def test_a_reset_loses_at_most_what_was_used_up_to_it(before: list[float], after: list[float]) -> None:
    first = readings([0.0, *before])
    shown, second = 0.0, []
    for number, rise in enumerate(after):
        shown += rise
        second.append(Reading(1000.0 + number, {"a": shown}))
    points = [*first, *second]
    made = used(list(itertools.pairwise(points)))
    assert made == pytest.approx(sum(before) + sum(after), abs=1e-3)
    assert used([(first[0], second[-1])]) == pytest.approx(second[-1].counters["a"], abs=1e-3)


@given(st.floats(0, SKEW_JOULES - 1), st.floats(0, 1e5))
def test_clocks_that_differ_are_no_reset(back: float, rise: float) -> None:
    """The second pod's clock is ahead, so that what it read first seems to come last."""
    own = (Reading(0.0, {"a": 5e6}), Reading(10.0, {"a": 5e6 + rise + back}))
    others = (Reading(10.2, {"a": 5e6 + rise}), Reading(20.0, {"a": 5e6 + rise + back + 7.0}))
    assert used([own, others]) == pytest.approx(rise + back + 7.0, abs=1e-3)


def test_gpus_add_up_and_one_that_was_read_once_says_nothing() -> None:
    before = Reading(0.0, {"a": 1e6, "b": 2e6, "c": 1.0})
    after = Reading(1.0, {"a": 1e6 + 5, "b": 2e6 + 7})
    assert used([(before, after)]) == 12.0
    assert used([(before, Reading(1.0, {"d": 3.0}))]) is None
    assert used([]) is None
