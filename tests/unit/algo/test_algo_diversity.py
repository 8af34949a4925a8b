"""Copies of a text, and weights that follow lift: what holds whatever the texts and numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.alike import COPY, alike, copy_of
from combee.algo.lifts import FLOOR_SHARE, weights_of

WORDS = st.lists(
    st.sampled_from(["round", "late", "once", "the", "unit", "of", "2", "15%", "ROI"]), max_size=12
)
TEXTS = st.lists(WORDS.map(" ".join), max_size=4).map("\n".join)
TRIES = st.lists(st.floats(-1, 1), max_size=6)
LIFTS = st.dictionaries(st.sampled_from("abcdef"), TRIES, min_size=1)
LONG = (
    "Read the question twice, write the figures down in their order, and state the unit of the answer last."
)


@given(TEXTS, TEXTS)
def test_likeness_is_symmetric_within_bounds_and_whole_for_equal_texts(one: str, other: str) -> None:
    assert alike(one, one) == 1
    assert 0 <= alike(one, other) == alike(other, one) <= 1


@given(TEXTS, st.integers(0, 99))
def test_marks_and_letter_case_make_no_other_text(text: str, seed: int) -> None:
    marked = "\n".join(line.upper() if line.islower() else line for line in text.splitlines())
    assert not copy_of(text, [])
    if "ROI" not in text and "%" not in text:
        assert alike(text, marked.lower()) == 1


@pytest.mark.parametrize(
    ("other", "copied"),
    [
        (LONG, True),
        (LONG.replace(",", ";").upper().lower(), True),
        (LONG.replace("twice", "again"), False),  # a word of 18: 2 pairs of 19
        (f"{LONG}\nSubtract the costs first.", False),
        (f"{LONG} {LONG}", True),
        (LONG.replace("twice", "2 times"), False),
    ],
)
def test_a_copy_says_the_same_in_as_many_lines(other: str, copied: bool) -> None:
    assert copy_of(other, ["something else", LONG]) == copied
    assert (alike(LONG, other) > COPY) == copied


def test_another_order_of_the_lines_is_no_copy() -> None:
    lines = [f"Rule {word}: do what {word} says before anything else." for word in ("alpha", "beta", "gamma")]
    assert not copy_of("\n".join(lines), ["\n".join(reversed(lines))])


@given(LIFTS, st.integers())
def test_weights_sum_up_to_one_over_a_floor_in_any_order(lifts: dict[str, list[float]], seed: int) -> None:
    weights = weights_of(lifts)
    assert list(weights) == sorted(lifts)
    assert sum(weights.values()) == pytest.approx(1)
    assert min(weights.values()) >= FLOOR_SHARE / len(lifts) - 1e-12
    names = list(lifts)
    random.Random(seed).shuffle(names)
    shuffled = {name: random.Random(seed).sample(lifts[name], len(lifts[name])) for name in names}
    assert weights_of(shuffled) == weights


@given(LIFTS, st.data())
def test_more_lift_never_lowers_a_weight_and_never_raises_another(
    lifts: dict[str, list[float]], data: st.DataObject
) -> None:
    tried = [name for name in sorted(lifts) if lifts[name]]
    if not tried:
        assert len(set(weights_of(lifts).values())) == 1
        return
    name = data.draw(st.sampled_from(tried))
    place = data.draw(st.integers(0, len(lifts[name]) - 1))
    better = {**lifts, name: [*lifts[name]]}
    better[name][place] += data.draw(st.floats(0, 1))
    before, after = weights_of(lifts), weights_of(better)
    assert after[name] >= before[name] - 1e-12
    assert all(after[other] <= before[other] + 1e-12 for other in lifts if other != name)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
def test_what_lifts_most_is_drawn_most(tries: list[float]) -> None:
    weights = weights_of({"insert": tries, "delete": [0.0] * len(tries), "reorder": []})
    assert weights["insert"] > weights["delete"] == weights["reorder"]
