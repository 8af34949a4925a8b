"""Distinct lessons are counted by their wording; retransmission keeps what DESIGN section 5 says it keeps."""

import math
import time
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.components import similarity_labels
from combee.algo.retransmit import TURNS, Redundancy, choose_redundancy, lost_lessons
from combee.algo.seeds import rng
from combee.algo.shuffle import augmented_shuffle
from combee.algo.tree import leaf_count
from combee.errors import BugError


def test_clusters_are_numbered_by_first_appearance() -> None:
    texts = ["use ROI of 5", "use ROI of 6", "Use the ROI of 5", ""]
    assert similarity_labels(texts, same_condition=True) == [0, 1, 0, 2]
    assert similarity_labels([], same_condition=True) == []


def test_five_thousand_lessons() -> None:
    texts = [f"For rule R-{i % 400:03d} multiply {i % 37} by the rate of year {i % 11}" for i in range(5000)]
    started = time.perf_counter()
    clusters = similarity_labels(texts, same_condition=True)
    print(f"clusters of 5,000 lessons: {time.perf_counter() - started:.2f} s, {max(clusters) + 1} clusters")
    assert len(clusters) == 5000


def carried_of(z: int) -> float:
    """Distinct lessons that one call carries out of ``z``: the simulated model's law for raw reflections."""
    return z / (1 + z / 11.5 + (z * 200 / 9600) ** 2)


def simulate(
    n: int, leaf_size: int, rounds: int, copies: int, seed: int, salience: bool = False
) -> tuple[float, int, float]:
    """(share kept, calls, share that round 1 alone kept of what it sent) under the capacity law."""
    draws = np.random.default_rng(seed)
    left, calls, first = list(range(n)), 0, 0.0
    weight = np.where(np.arange(n) % 2 == 0, 8.0, 1.0) if salience else np.ones(n)
    for k in range(rounds):
        p = copies if k == 0 else 1
        if not left:
            break
        leaves = leaf_count(len(left), p, leaf_size, max_fan_in=32)
        calls += leaves
        kept: set[int] = set()
        for leaf in augmented_shuffle(len(left), copies=p, leaves=leaves, rng=rng(seed, k)):
            each = carried_of(len(leaf))
            take = int(each) + (draws.random() < each - int(each))
            w = weight[[left[i] for i in leaf]]
            kept.update(left[leaf[i]] for i in draws.choice(len(leaf), take, replace=False, p=w / w.sum()))
        first = first or len(kept) / len(left)
        left = [i for i in left if i not in kept]
    return 1 - len(left) / n, calls, first


@pytest.mark.parametrize(
    ("leaf_size", "rounds", "copies", "kept", "calls"),
    [
        pytest.param(8, 3, 1, 0.93, 201, id="three-rounds"),
        pytest.param(8, 4, 1, 0.97, 210, id="four-rounds"),
        pytest.param(4, 1, 2, 0.93, 500, id="duplication"),
    ],
)
def test_the_table_of_the_design(leaf_size: int, rounds: int, copies: int, kept: float, calls: int) -> None:
    runs = np.mean([simulate(1000, leaf_size, rounds, copies, seed) for seed in range(12)], axis=0)
    print(f"f={leaf_size} rounds={rounds} p={copies}: kept {runs[0]:.4f}, calls {runs[1]:.1f}")
    assert runs[0] == pytest.approx(kept, abs=0.01)
    assert runs[1] == pytest.approx(calls, abs=2.0)


def test_bound_holds_for_retransmission_and_breaks_for_salient_duplication() -> None:
    """DESIGN section 5: exchangeable selection is needed; salience bias breaks it for duplication."""
    for seed in range(20):
        kept, _, first = simulate(1000, 8, 3, 1, seed)
        # Hoeffding 1963, with probability 0.99.
        assert kept >= 1 - (1 - first) ** 3 - math.sqrt(math.log(100) / 2000)
    fair, biased = (
        np.mean([simulate(1000, 4, 1, 3, s, salience) for s in range(20)], axis=0)[0]
        for salience in (False, True)
    )
    promised = 1 - (1 - carried_of(4) / 4) ** 3
    assert fair == pytest.approx(promised, abs=0.01)
    assert biased < promised - 0.02
    again = np.mean([simulate(1000, 4, 3, 1, s, True) for s in range(20)], axis=0)[0]
    assert again >= promised - 0.01


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("Auto", Redundancy("Retransmit", 1, 4, 4)),
        ("Duplicate", Redundancy("Duplicate", 2, 1, 8)),
        ("Retransmit", Redundancy("Retransmit", 1, 4, 4)),
    ],
)
def test_choose_redundancy(mode, expected) -> None:  # type: ignore[no-untyped-def]
    assert choose_redundancy(mode, 100, 8) == expected


def test_redundancy_nonsense_is_our_bug() -> None:
    nonsense = (("Best", 5, 8), ("Auto", -1, 8), ("Auto", 5, 0))
    for arguments in nonsense:
        with pytest.raises(BugError):
            choose_redundancy(*arguments)  # type: ignore[arg-type]
    for count in ("copies", "max_rounds", "most"):
        with pytest.raises(BugError):
            choose_redundancy("Auto", 5, 8, **{count: 0})
    with pytest.raises(BugError):
        lost_lessons([0], [])


@given(st.integers(0, 5000), st.integers(1, 512), st.integers(1, 100))
def test_leaves_take_four_turns_where_their_size_allows_it(n: int, slots: int, most: int) -> None:
    def size(n: int, slots: int) -> int:
        return choose_redundancy("Auto", n, slots, most=most).leaf_size

    assert 1 <= size(n, slots) <= most
    assert math.ceil(n / size(n, slots)) <= TURNS * slots or size(n, slots) == most
    if size(n, slots) > 1:  # smaller ones would take another turn
        assert math.ceil(n / (size(n, slots) - 1)) > TURNS * slots
    assert size(n, slots + 1) <= size(n, slots) <= size(n + 1, slots)


statements = st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=200)


@given(statements, st.randoms(use_true_random=False))
def test_what_is_lost_has_fewer_sources_than_it_could_have(
    found: list[tuple[int, bool]], mix: Random
) -> None:
    lost = lost_lessons([lesson for lesson, _ in found], [carried for _, carried in found])
    lessons = {lesson for lesson, _ in found}
    times = {lesson: sum(other == lesson for other, _ in found) for lesson in lessons}
    carried = {lesson: sum(kept for other, kept in found if other == lesson) for lesson in lessons}
    without = {lesson for lesson in lessons if carried[lesson] < min(2, times[lesson])}
    assert lost in (without, frozenset())
    assert (lost == without) or len(without) <= 0.05 * len(lessons) + 1e-9
    mix.shuffle(found)
    assert lost == lost_lessons([lesson for lesson, _ in found], [kept for _, kept in found])
    assert not lost_lessons([lesson for lesson, _ in found], [True] * len(found))
