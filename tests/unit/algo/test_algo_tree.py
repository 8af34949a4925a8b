"""The shuffle's balance and the tree's caps, at every call, for n from 1 to 100,000."""

import math
import time
from collections import Counter
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.seeds import rng
from combee.algo.shuffle import augmented_shuffle
from combee.algo.tree import Level, Tree, leaf_count, pack, plan_levels, plan_tree, upper_levels
from combee.errors import BugError, ManifestError

MERGES: tuple[Literal["Structured", "Model"], ...] = ("Structured", "Model")


@given(st.integers(1, 200), st.integers(1, 6), st.integers(1, 40), st.integers(0, 5))
def test_shuffle_deals_each_reflection_into_different_leaves_evenly(
    n: int, p: int, leaves: int, seed: int
) -> None:
    dealt = augmented_shuffle(n, copies=p, leaves=leaves, rng=rng(seed, "t"))
    assert len(dealt) == leaves
    assert all(len(set(leaf)) == len(leaf) for leaf in dealt)
    assert Counter(i for leaf in dealt for i in leaf) == {i: min(p, leaves) for i in range(n)}
    sizes = [len(leaf) for leaf in dealt]
    assert max(sizes) - min(sizes) <= 1


def test_shuffle_is_seeded() -> None:
    deals = [augmented_shuffle(50, copies=2, leaves=13, rng=rng(s, "t")) for s in (1, 1, 2)]
    assert deals[0] == deals[1] != deals[2]


def test_shuffle_makes_no_twins_of_neighbouring_leaves() -> None:
    dealt = augmented_shuffle(400, copies=2, leaves=100, rng=rng(7, "t"))
    shared = max(len(set(a) & set(b)) for i, a in enumerate(dealt) for b in dealt[:i])
    assert shared <= 3


def test_shuffle_pairs_every_two_leaves_equally_often() -> None:
    met: Counter[tuple[int, ...]] = Counter()
    for s in range(600):
        dealt = augmented_shuffle(5, copies=2, leaves=5, rng=rng(s, "t"))
        for i in range(5):
            met[tuple(k for k, leaf in enumerate(dealt) if i in leaf)] += 1
    assert len(met) == 10
    assert min(met.values()) > 220 and max(met.values()) < 385


@pytest.mark.parametrize(("n", "copies", "leaves"), [(-1, 1, 1), (3, 0, 1), (3, 1, 0)])
def test_shuffle_refuses_nonsense(n: int, copies: int, leaves: int) -> None:
    with pytest.raises(BugError):
        augmented_shuffle(n, copies=copies, leaves=leaves, rng=rng(0))


def test_no_reflections_make_empty_leaves() -> None:
    assert augmented_shuffle(0, copies=2, leaves=3, rng=rng(0)) == ((), (), ())


@pytest.mark.parametrize(
    ("n", "copies", "leaf_size", "subgroups", "fan_in", "expected"),
    [
        pytest.param(0, 2, 8, None, 32, 0, id="nothing"),
        pytest.param(1, 2, 8, None, 32, 1, id="one"),
        pytest.param(8, 1, 8, None, 32, 1, id="full-leaf"),
        pytest.param(9, 1, 8, None, 32, 2, id="one-more"),
        pytest.param(1000, 2, 8, None, 32, 250, id="copies"),
        pytest.param(1000, 1, 64, None, 32, 32, id="leaf-size-over-fan-in"),
        pytest.param(84, 2, 8, "Sqrt", 32, 9, id="paper"),
        pytest.param(3, 1, 8, "Sqrt", 32, 1, id="paper-small"),
        pytest.param(10_000, 1, 8, "Sqrt", 32, 313, id="paper-over-fan-in"),
        pytest.param(3, 2, 8, "Sqrt", 2, 3, id="paper-narrow"),
    ],
)
def test_leaf_count(
    n: int, copies: int, leaf_size: int, subgroups: str | None, fan_in: int, expected: int
) -> None:
    assert leaf_count(n, copies, leaf_size, subgroups=subgroups, max_fan_in=fan_in) == expected


def check_level(level: Level, below: int, tokens: list[int], fan_in: int, room: int) -> None:
    """Every input once, in order; fan-in and tokens within the caps, or a single input."""
    assert [i for node in level for i in node] == list(range(below))
    for node in level:
        assert 1 <= len(node) <= fan_in
        assert len(node) == 1 or sum(tokens[i] for i in node) <= room


def check_tree(
    tree: Tree, tokens: list[int], *, copies: int, expected_leaves: int, fan_in: int, room: int, out: int
) -> None:
    times = Counter(i for leaf in tree.leaves for i in leaf)
    p = min(copies, expected_leaves)
    assert len(times) == len(tokens) and set(times.values()) == {p}
    for leaf in tree.leaves:
        assert len(set(leaf)) == len(leaf) <= fan_in
        assert len(leaf) == 1 or sum(tokens[i] for i in leaf) <= room
    below = len(tree.leaves)
    for level in tree.levels:
        check_level(level, below, [out] * below, fan_in, room)
        below = len(level)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=400),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([None, "Sqrt"]),
    st.sampled_from(MERGES),
    st.integers(2, 40),
)
def test_caps_hold_at_every_call(tokens, copies, leaf_size, subgroups, merge, fan_in) -> None:  # type: ignore[no-untyped-def]
    tree = plan_tree(
        tokens,
        seed=7,
        iteration=1,
        copies=copies,
        leaf_size=leaf_size,
        subgroups=subgroups,
        max_fan_in=fan_in,
        max_input_tokens=5000,
        overhead_tokens=1000,
        merge=merge,
        node_output_tokens=900,
    )
    expected = leaf_count(len(tokens), copies, leaf_size, subgroups=subgroups, max_fan_in=fan_in)
    check_tree(tree, tokens, copies=copies, expected_leaves=expected, fan_in=fan_in, room=4000, out=900)
    if merge == "Model" and len(tree.leaves) > 1:
        assert len(tree.levels[-1]) == 1
    else:
        assert tree.levels == ()


SIZES = [1, 2, 3, 7, 8, 9, 31, 63, 64, 84, 100, 999, 1000, 1024, 4097, 9999, 30_000, 100_000]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("merge", MERGES)
@pytest.mark.parametrize("subgroups", [None, "Sqrt"])
def test_caps_hold_from_one_to_a_hundred_thousand(
    n: int, merge: Literal["Structured", "Model"], subgroups: str | None
) -> None:
    tokens = [150 + (i * 37) % 200 for i in range(n)]
    started = time.perf_counter()
    tree = plan_tree(
        tokens, seed=7, iteration=0, copies=2, subgroups=subgroups, merge=merge, node_output_tokens=1024
    )
    seconds = time.perf_counter() - started
    if n >= 100_000:
        print(
            f"planning n={n} {merge} {subgroups}: {seconds:.3f} s, {tree.calls} calls, {len(tree.levels)} "
            f"levels"
        )
    expected = leaf_count(n, 2, 8, subgroups=subgroups, max_fan_in=32)
    check_tree(tree, tokens, copies=2, expected_leaves=expected, fan_in=32, room=24_000, out=1024)
    assert tree.calls == len(tree.leaves) + sum(map(len, tree.levels))
    assert merge == "Structured" or len(tree.leaves) == 1 or len(tree.levels[-1]) == 1
    assert len(tree.levels) <= 1 + math.ceil(math.log(max(len(tree.leaves), 2), 16))


def test_rounds_iterations_and_seeds_differ() -> None:
    plans = {
        plan_tree([1] * 40, seed=s, iteration=i, round=r)
        for s, i, r in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]
    }
    assert len(plans) == 4
    assert plan_tree([1] * 40, seed=1, iteration=0) == plan_tree([1] * 40, seed=1, iteration=0)


def test_no_reflections_make_an_empty_tree() -> None:
    for merge in MERGES:
        assert plan_tree([], seed=1, iteration=0, merge=merge) == Tree(())


def test_a_reflection_above_the_cap_gets_a_call_of_its_own() -> None:
    tree = plan_tree([100, 100, 9000, 100], seed=1, iteration=0, max_input_tokens=1000, overhead_tokens=500)
    assert (2,) in tree.leaves


def test_levels_that_could_never_end_are_the_users_error() -> None:
    with pytest.raises(ManifestError, match="merge: Structured"):
        upper_levels(9, max_fan_in=4, node_output_tokens=600, max_input_tokens=1500, overhead_tokens=400)
    with pytest.raises(ManifestError):
        upper_levels(9, max_fan_in=1, node_output_tokens=6, max_input_tokens=1500, overhead_tokens=400)


def test_one_level_suffices_without_asking_whether_two_would_fit() -> None:
    levels = plan_levels(
        [5, 5], max_fan_in=2, max_input_tokens=100, overhead_tokens=0, node_output_tokens=900
    )
    assert levels == (((0, 1),),)


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_above_a_lone_leaf(n: int) -> None:
    assert upper_levels(n, max_fan_in=2, node_output_tokens=9, max_input_tokens=9, overhead_tokens=9) == ()


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 9), st.integers(1, 120))
def test_pack_keeps_order_and_caps(tokens: list[int], fan_in: int, cap: int) -> None:
    level = pack(tokens, max_fan_in=fan_in, max_input_tokens=cap, overhead_tokens=0)
    check_level(level, len(tokens), tokens, fan_in, cap)


@given(st.integers(0, 500), st.integers(1, 40))
def test_pack_of_equal_inputs_is_fewest_calls_and_even(n: int, fan_in: int) -> None:
    level = pack([1] * n, max_fan_in=fan_in, max_input_tokens=10_000, overhead_tokens=0)
    assert len(level) == -(-n // fan_in)
    sizes = [len(node) for node in level]
    assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: pack([-1], max_fan_in=2, max_input_tokens=9, overhead_tokens=0),
        lambda: pack([1], max_fan_in=0, max_input_tokens=9, overhead_tokens=0),
        lambda: leaf_count(-1, 1, 1, max_fan_in=2),
        lambda: leaf_count(5, 0, 1, max_fan_in=2),
        lambda: leaf_count(5, 1, 1, subgroups="Cube", max_fan_in=2),
        lambda: plan_tree([1], seed=0, iteration=0, merge="Best"),
    ],
)
def test_nonsense_is_our_bug(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BugError):
        call()
