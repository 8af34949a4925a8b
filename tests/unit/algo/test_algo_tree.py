"""The shuffle's balance and the tree's caps, at every call, for n from 1 to 100,000."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.seeds import rng
from combee.algo.shuffle import augmented_shuffle
from combee.algo.tree import Caps, Level, leaf_count, pack, plan_leaves, plan_levels
from combee.errors import BugError, ManifestError

CAPS = Caps(32, 24_000)


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


def check_leaves(leaves: Level, tokens: list[int], copies: int, expected: int, caps: Caps) -> None:
    """Every reflection in its number of different leaves; fan-in and tokens within the caps."""
    times = Counter(i for leaf in leaves for i in leaf)
    assert len(times) == len(tokens) and set(times.values()) == {min(copies, expected)}
    for leaf in leaves:
        assert len(set(leaf)) == len(leaf) <= caps.max_fan_in
        assert len(leaf) == 1 or sum(tokens[i] for i in leaf) <= caps.room


def check_levels(levels: tuple[Level, ...], below: int, out: int, caps: Caps) -> None:
    """Up to one root, each level over the one below."""
    assert len(levels) == 0 if below == 1 else len(levels[-1]) == 1
    for level in levels:
        check_level(level, below, [out] * below, caps.max_fan_in, caps.room)
        below = len(level)


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=400),
    st.integers(1, 4),
    st.integers(1, 40),
    st.sampled_from([None, "Sqrt"]),
    st.integers(2, 40),
)
def test_caps_hold_at_every_call(tokens, copies, leaf_size, subgroups, fan_in) -> None:  # type: ignore[no-untyped-def]
    caps = Caps(fan_in, 5000, 1000)
    leaves = plan_leaves(
        tokens, caps, seed=7, iteration=1, copies=copies, leaf_size=leaf_size, subgroups=subgroups
    )
    expected = leaf_count(len(tokens), copies, leaf_size, subgroups=subgroups, max_fan_in=fan_in)
    check_leaves(leaves, tokens, copies, expected, caps)
    levels = plan_levels([900] * len(leaves), caps, node_output_tokens=900)
    check_levels(levels, len(leaves), 900, caps)


SIZES = [1, 2, 3, 7, 8, 9, 31, 63, 64, 84, 100, 999, 1000, 1024, 4097, 9999, 30_000, 100_000]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("subgroups", [None, "Sqrt"])
def test_caps_hold_from_one_to_a_hundred_thousand(n: int, subgroups: str | None) -> None:
    tokens, caps = [150 + (i * 37) % 200 for i in range(n)], Caps(32, 24_000)
    leaves = plan_leaves(tokens, caps, seed=7, iteration=0, copies=2, subgroups=subgroups)
    check_leaves(leaves, tokens, 2, leaf_count(n, 2, 8, subgroups=subgroups, max_fan_in=32), caps)
    levels = plan_levels([1024] * len(leaves), caps, node_output_tokens=1024)
    check_levels(levels, len(leaves), 1024, caps)
    assert len(levels) <= 1 + math.ceil(math.log(max(len(leaves), 2), 16))


def test_rounds_iterations_and_seeds_differ() -> None:
    plans = {
        plan_leaves([1] * 40, CAPS, seed=s, iteration=i, round=r)
        for s, i, r in [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]
    }
    assert len(plans) == 4
    assert plan_leaves([1] * 40, CAPS, seed=1, iteration=0) == plan_leaves(
        [1] * 40, CAPS, seed=1, iteration=0
    )


def test_no_reflections_make_an_empty_tree() -> None:
    assert plan_leaves([], CAPS, seed=1, iteration=0) == ()


def test_a_reflection_above_the_cap_gets_a_call_of_its_own() -> None:
    assert (2,) in plan_leaves([100, 100, 9000, 100], Caps(32, 1000, 500), seed=1, iteration=0)


def test_levels_that_could_never_end_are_the_users_error() -> None:
    with pytest.raises(ManifestError, match="merge: Structured"):
        plan_levels([600] * 9, Caps(4, 1500, 400), node_output_tokens=600)
    with pytest.raises(ManifestError):
        plan_levels([6] * 9, Caps(1, 1500, 400), node_output_tokens=6)


def test_one_level_suffices_without_asking_whether_two_would_fit() -> None:
    assert plan_levels([5, 5], Caps(2, 100), node_output_tokens=900) == (((0, 1),),)


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_above_a_lone_leaf(n: int) -> None:
    assert plan_levels([9] * n, Caps(2, 9, 9), node_output_tokens=9) == ()


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 9), st.integers(1, 120))
def test_pack_keeps_order_and_caps(tokens: list[int], fan_in: int, cap: int) -> None:
    level = pack(tokens, Caps(fan_in, cap))
    check_level(level, len(tokens), tokens, fan_in, cap)


@given(st.integers(0, 500), st.integers(1, 40))
def test_pack_of_equal_inputs_is_fewest_calls_and_even(n: int, fan_in: int) -> None:
    level = pack([1] * n, Caps(fan_in, 10_000))
    assert len(level) == -(-n // fan_in)
    sizes = [len(node) for node in level]
    assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: pack([-1], Caps(2, 9)),
        lambda: pack([1], Caps(0, 9)),
        lambda: leaf_count(-1, 1, 1, max_fan_in=2),
        lambda: leaf_count(5, 0, 1, max_fan_in=2),
        lambda: leaf_count(5, 1, 1, subgroups="Cube", max_fan_in=2),
        lambda: plan_leaves([1], CAPS, seed=0, iteration=0, subgroups="Best"),
    ],
)
def test_nonsense_is_our_bug(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BugError):
        call()
