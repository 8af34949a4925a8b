"""A thinned history of looks: bounded, true, and still the same curve."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.curve import MAX_LOOKS, Look, with_look

values = st.tuples(*[st.integers(-100, 100)] * 3).map(lambda three: sorted(value / 100 for value in three))


@st.composite
def histories(draw: st.DrawFn) -> list[Look]:
    """Looks as they come; some bring no new pair."""
    found, pairs = [], 0
    for at, (low, mean, high) in enumerate(draw(st.lists(values, max_size=150))):
        pairs += draw(st.integers(0, 5))
        found.append(Look(at, pairs, mean, low, high))
    return found


def kept(history: list[Look], most: int = MAX_LOOKS) -> tuple[Look, ...]:
    looks: tuple[Look, ...] = ()
    for look in history:
        looks = with_look(looks, look, most)
    return looks


@given(histories(), st.integers(3, 80))
def test_it_is_bounded_made_of_real_looks_and_keeps_both_ends(history: list[Look], most: int) -> None:
    looks = kept(history, most)
    new = [b for a, b in pairwise([Look(-1, 0, 0, 0, 0), *history]) if b.pairs > a.pairs]
    assert len(looks) == min(len(new), most)
    assert set(looks) <= set(new)
    assert all(a.pairs < b.pairs for a, b in pairwise(looks))
    assert (looks[:1], looks[-1:]) == (tuple(new[:1]), tuple(new[-1:]))


@given(histories())
def test_a_look_without_a_new_pair_changes_nothing(history: list[Look]) -> None:
    looks = kept(history)
    for look in history:
        assert look.pairs > looks[-1].pairs or with_look(looks, look) is looks if looks else look.pairs == 0


@given(histories())
def test_it_is_the_same_after_it_was_written_and_read_within_what_is_written(history: list[Look]) -> None:
    looks = kept(history)
    assert tuple(Look.from_json(look.to_json()) for look in looks) == looks


@pytest.mark.parametrize(
    "raw", [[1, 2, 3], [0, 0, 0, 0, 0], [0, 5, 0.5, 0.6, 0.7], [0, 5, 0, -2, 0], "words", [0, 5, None, 0, 0]]
)
def test_what_cannot_be_a_look_is_refused(raw: list[float]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Look.from_json(raw)


def test_three_thousand_looks_are_still_the_curve_that_they_were() -> None:
    def look(at: int) -> Look:
        half = min(1.0, 2 / math.sqrt(10 * at))
        mean = 0.1 * half * math.sin(at / 200)
        return Look(at, 10 * at, mean, max(-1.0, mean - half), min(1.0, mean + half))

    history = [look(at) for at in range(1, 3000)]
    looks = kept(history)
    assert len(looks) == MAX_LOOKS
    worst = 0.0
    for before, after in pairwise(looks):
        for at in range(before.seconds, after.seconds):
            share = (10 * at - before.pairs) / (after.pairs - before.pairs)
            drawn = before.low + share * (after.low - before.low)
            worst = max(worst, abs(drawn - look(at).low))
    assert worst < 0.02
