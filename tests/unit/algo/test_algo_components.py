"""Components: exact against brute force, canonical, capped, and fast enough for 20,000 texts."""

import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo import components
from combee.algo.components import similarity_components, similarity_labels
from combee.algo.text import anchors, jaccard, token_set
from combee.errors import BugError

WORDS = ["alpha", "beta", "gamma", "delta", "eps", "5", "6", "15%", "R-017", "if", "when", "net_income"]
some_texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=7).map(" ".join), max_size=25)


def brute_force(texts: list[str], threshold: float, same_condition: bool) -> list[int]:
    labels = list(range(len(texts)))
    for i, j in combinations(range(len(texts)), 2):
        a, b = anchors(texts[i]), anchors(texts[j])
        equal = a.numbers == b.numbers and a.identifiers == b.identifiers
        if same_condition:
            equal = equal and a.condition == b.condition
        if equal and jaccard(token_set(texts[i]), token_set(texts[j])) >= threshold:
            old, new = labels[j], labels[i]
            labels = [new if label == old else label for label in labels]
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


@settings(max_examples=150)
@given(some_texts, st.sampled_from([0.3, 0.5, 0.6, 2 / 3, 0.75, 1.0]), st.booleans())
def test_labels_equal_brute_force(texts: list[str], threshold: float, same_condition: bool) -> None:
    expected = brute_force(texts, threshold, same_condition)
    assert similarity_labels(texts, threshold=threshold, same_condition=same_condition) == expected


@settings(max_examples=100)
@given(some_texts, st.sampled_from([0.3, 0.5, 0.6, 2 / 3, 0.75, 1.0]))
def test_matrix_products_equal_brute_force(texts: list[str], threshold: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components, "_SECONDS_PER_CANDIDATE", 1e9)
        patch.setattr(components, "_TILE", 4)
        assert similarity_labels(texts, threshold=threshold) == brute_force(texts, threshold, False)


@settings(max_examples=100)
@given(some_texts, st.integers(1, 6), st.randoms(use_true_random=False))
def test_groups_partition_are_capped_and_do_not_depend_on_order(texts, cap, random) -> None:  # type: ignore[no-untyped-def]
    groups = similarity_components(texts, cap=cap)
    assert sorted(i for group in groups for i in group) == list(range(len(texts)))
    assert all(1 <= len(group) <= cap for group in groups)
    moved = list(texts)
    random.shuffle(moved)
    as_texts = [[texts[i] for i in group] for group in groups]
    assert as_texts == [[moved[i] for i in group] for group in similarity_components(moved, cap=cap)]
    labels = similarity_labels(texts)
    assert all(len({labels[i] for i in group}) == 1 for group in groups)


def test_a_component_over_the_cap_is_split_evenly_in_text_order() -> None:
    texts = [f"alpha beta gamma delta {word}" for word in "qwertyuiop"]
    groups = similarity_components(texts, cap=4)
    assert [len(group) for group in groups] == [3, 3, 4]
    flat = [texts[i] for group in groups for i in group]
    assert flat == sorted(texts)


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        pytest.param("add the cost of 1,500 now", "now add the cost of 1500", True, id="number-format"),
        pytest.param("add the cost of 5 now", "add the cost of 6 now", False, id="other-number"),
        pytest.param("use R-017 for the total", "use R-018 for the total", False, id="other-identifier"),
        pytest.param("add the cost", "subtract every price", False, id="other-words"),
        pytest.param("", "!!", True, id="nothing-to-compare"),
    ],
)
def test_what_is_similar(a: str, b: str, joined: bool) -> None:
    assert (len(similarity_components([a, b], cap=9)) == 1) is joined


def test_conditions_divide_only_when_asked() -> None:
    texts = ["if revenue rises add the cost of 5 to it", "if revenue falls add the cost of 5 to it"]
    assert similarity_labels(texts) == [0, 0]
    assert similarity_labels(texts, same_condition=True) == [0, 1]


def test_nonsense_is_our_bug() -> None:
    with pytest.raises(BugError):
        similarity_components(["a"], cap=0)
    for threshold in (0.0, -1.0, 1.1, float("nan")):
        with pytest.raises(BugError):
            similarity_labels(["a"], threshold=threshold)
    assert similarity_components([], cap=3) == []


def test_twenty_thousand_short_texts() -> None:
    draws = np.random.default_rng(1)
    weights = 1 / np.arange(1, 3001)
    picks = draws.choice(3000, (20_000, 14), p=weights / weights.sum())
    texts = [
        " ".join(f"word{chr(97 + k % 26)}{chr(97 + k // 26 % 26)}{chr(97 + k // 676)}" for k in row)
        for row in picks
    ]
    started = time.perf_counter()
    groups = similarity_components(texts, cap=32)
    print(f"components of 20,000 texts: {time.perf_counter() - started:.2f} s, {len(groups)} groups")
    assert sum(map(len, groups)) == 20_000
