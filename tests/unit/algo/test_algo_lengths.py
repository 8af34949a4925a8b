"""In which order calls of different lengths begin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from combee.algo.lengths import bucket, longest_first


@given(st.lists(st.integers(0, 10_000), max_size=50))
def test_the_longest_begin_first_and_those_of_a_bucket_keep_their_order(lengths: list[int]) -> None:
    order = longest_first(lengths)
    assert sorted(order) == list(range(len(lengths)))
    keys = [(-bucket(lengths[place]), place) for place in order]
    assert keys == sorted(keys)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_lengths_of_a_bucket_differ_by_less_than_a_factor_of_two(one: int, other: int) -> None:
    if bucket(one) == bucket(other):
        assert max(one, other) < 2 * min(one, other)
    else:
        assert (one < other) == (bucket(one) < bucket(other))
