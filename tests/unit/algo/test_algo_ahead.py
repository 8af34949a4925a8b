"""Examples begun ahead: the same learning in less time, for more calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.ahead import Turn, begun_ahead
from combee.errors import BugError

SECONDS = st.integers(0, 50).map(float)
TURNS = st.lists(st.builds(Turn, SECONDS, SECONDS, st.booleans()), max_size=30)


def total(turns: list[Turn], most: int) -> float:
    return sum(begun_ahead(turns, most).waits) + sum(turn.then_seconds for turn in turns)


@given(TURNS)
def test_one_at_a_time_takes_the_sum_and_begins_nothing_twice(turns: list[Turn]) -> None:
    assert total(turns, 1) == sum(turn.work_seconds + turn.then_seconds for turn in turns)
    assert begun_ahead(turns, 1).begun == (1,) * len(turns)


@given(TURNS, st.integers(1, 12))
def test_more_ahead_is_never_slower_and_never_beats_the_order(turns: list[Turn], most: int) -> None:
    assert total(turns, most + 1) <= total(turns, most)
    in_order = sum(turn.then_seconds for turn in turns)
    longest = max((turn.work_seconds for turn in turns), default=0.0)
    assert total(turns, most) >= max(in_order, longest)


@given(TURNS, st.integers(1, 12))
def test_an_example_is_begun_once_and_once_more_for_each_change_that_caught_it(
    turns: list[Turn], most: int
) -> None:
    expected = []
    for index in range(len(turns)):
        earlier = turns[max(0, index - most + 1) : index]
        expected.append(1 + sum(turn.changes for turn in earlier))
    assert list(begun_ahead(turns, most).begun) == expected


@given(st.lists(SECONDS, min_size=1, max_size=30))
def test_without_changes_all_at_once_take_the_longest(works: list[float]) -> None:
    turns = [Turn(seconds, 0.0, False) for seconds in works]
    assert total(turns, len(turns)) == max(works)


def test_none_at_once_is_a_bug() -> None:
    with pytest.raises(BugError):
        begun_ahead([], 0)
