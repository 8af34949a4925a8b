"""Selection: whatever the order of the items, and never over a cap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.selection import central_first, first_that_fit
from combee.errors import BugError

coordinate = st.integers(-800, 800).map(lambda number: number / 8)


@st.composite
def items(draw: st.DrawFn) -> tuple[np.ndarray, list[str]]:
    """Vectors, some of them equal, and their names."""
    dimension = draw(st.integers(1, 6))
    vector = st.lists(coordinate, min_size=dimension, max_size=dimension)
    rows = draw(st.lists(vector, min_size=1, max_size=12))
    rows += draw(st.lists(st.sampled_from(rows), max_size=4))
    return np.array(rows, dtype=np.float32), [f"k{number:02d}" for number in range(len(rows))]


@given(items(), st.randoms())
def test_the_order_does_not_depend_on_how_the_items_come(given_items, random) -> None:
    vectors, keys = given_items
    order = central_first(vectors, keys)
    assert sorted(order) == list(range(len(keys)))
    mixed = list(range(len(keys)))
    random.shuffle(mixed)
    again = central_first(vectors[mixed], [keys[index] for index in mixed])
    assert [keys[mixed[index]] for index in again] == [keys[index] for index in order]


@given(items(), st.integers(-20, 20))
def test_the_length_of_a_vector_does_not_matter(given_items, power: int) -> None:
    vectors, keys = given_items
    longer = vectors.copy()
    longer[0] = np.ldexp(longer[0], power)
    assert central_first(longer, keys) == central_first(vectors, keys)


@given(items())
def test_equal_vectors_stand_in_the_order_of_their_names(given_items) -> None:
    vectors, keys = given_items
    order = central_first(np.repeat(vectors[:1], len(keys), axis=0), keys[::-1])
    assert [keys[::-1][index] for index in order] == sorted(keys)


@given(items())
def test_it_is_the_cosine_to_the_centre(given_items) -> None:
    vectors, keys = given_items
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    likeness = unit @ unit.sum(axis=0)
    order = central_first(vectors, keys)
    for early, late in pairwise(order):
        assert likeness[early] >= likeness[late] - 1e-3


def test_what_is_like_nothing_comes_after_what_is_like_the_rest() -> None:
    vectors = np.array([[0, 0], [1, 0], [1, 0.1], [-1, 0]], dtype=np.float32)
    assert central_first(vectors, list("abcd")) == [2, 1, 0, 3]
    assert central_first(np.zeros((0, 3), dtype=np.float32), []) == []


@pytest.mark.parametrize(
    ("vectors", "keys"),
    [
        ([[1.0]], ["a", "b"]),
        ([[1.0], [2.0]], ["a", "a"]),
        ([[float("nan")]], ["a"]),
        ([1.0, 2.0], ["a", "b"]),
    ],
)
def test_what_cannot_be_is_a_bug(vectors: list, keys: list[str]) -> None:
    with pytest.raises(BugError):
        central_first(np.array(vectors, dtype=np.float32), keys)


@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=20),
    st.randoms(),
    st.integers(1, 20),
    st.integers(-10, 400),
)
def test_what_fits_is_within_the_caps_and_nothing_wanted_more_would_fit(
    tokens: list[int], random, most: int, room: int
) -> None:
    order = list(range(len(tokens)))
    random.shuffle(order)
    taken = first_that_fit(order, tokens, most=most, room=room)
    assert list(taken) == sorted(set(taken)) and 1 <= len(taken) <= most
    assert order[0] in taken
    assert sum(tokens[index] for index in taken) <= room or taken == (order[0],)
    load, count = 0, 0
    for index in order:
        if index in taken:
            load, count = load + tokens[index], count + 1
        else:
            assert count == most or load + tokens[index] > room


def test_nothing_fits_nothing() -> None:
    assert first_that_fit([], [], most=3, room=10) == ()
    with pytest.raises(BugError):
        first_that_fit([0], [1], most=0, room=10)
    with pytest.raises(BugError):
        first_that_fit([0], [-1], most=1, room=10)
