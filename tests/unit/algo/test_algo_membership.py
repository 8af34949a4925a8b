"""Membership: batches of any sizes partition an epoch, shards balance, heldOut splits by hash."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.membership import batch, epoch_order, shards, split_select_gate
from combee.errors import BugError

unique_ids = st.lists(st.text(max_size=6), unique=True, max_size=80)


@given(
    unique_ids, st.integers(0, 9), st.integers(0, 3), st.lists(st.integers(1, 30), max_size=40), st.booleans()
)
def test_batches_of_any_sizes_partition_the_epoch(
    ids: list[str], seed: int, epoch: int, sizes: list[int], in_order: bool
) -> None:
    seen: list[str] = []
    offset = 0
    for size in [*sizes, len(ids)]:
        members = batch(ids, seed, epoch, offset, size, in_order=in_order)
        assert len(members) == max(0, min(size, len(ids) - offset))
        seen += members
        offset += size
    assert sorted(seen) == sorted(ids)
    assert seen == epoch_order(ids, seed, epoch, in_order=in_order)


@given(unique_ids, st.randoms(use_true_random=False))
def test_order_does_not_depend_on_the_rows_order(ids: list[str], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(ids)
    random.shuffle(shuffled)
    assert epoch_order(ids, 7, 1) == epoch_order(shuffled, 7, 1)
    assert split_select_gate(ids, "d") == split_select_gate(shuffled, "d")
    assert epoch_order(shuffled, 7, 1, in_order=True) == shuffled


def test_epochs_and_seeds_differ() -> None:
    ids = [str(i) for i in range(50)]
    orders = {tuple(epoch_order(ids, s, e)) for s in range(3) for e in range(3)}
    assert len(orders) == 9


def test_bad_membership_is_our_bug() -> None:
    with pytest.raises(BugError):
        epoch_order(["1", "1"], 0, 0)
    with pytest.raises(BugError):
        batch(["1"], 0, 0, -1, 2)
    with pytest.raises(BugError):
        batch(["1"], 0, 0, 0, -2)
    with pytest.raises(BugError):
        shards([1], 0)


@given(st.lists(st.integers(0, 500), max_size=60), st.integers(1, 9))
def test_shards_partition_and_balance(tokens: list[int], count: int) -> None:
    dealt = shards(tokens, count)
    assert len(dealt) == count
    assert sorted(i for members in dealt for i in members) == list(range(len(tokens)))
    assert all(members == sorted(members) for members in dealt)
    loads = [sum(tokens[i] for i in members) for members in dealt]
    assert max(loads) - min(loads) <= max(tokens, default=0)
    best = max(sum(tokens) / count, max(tokens, default=0))
    assert max(loads) <= 2 * best


def test_shards_without_tokens_balance_by_count() -> None:
    assert sorted(map(len, shards([0] * 10, 3))) == [3, 3, 4]


@given(unique_ids, st.text(max_size=5))
def test_select_and_gate_are_halves(ids: list[str], digest: str) -> None:
    select, gate = split_select_gate(ids, digest)
    assert sorted(select + gate) == sorted(ids)
    assert 0 <= len(select) - len(gate) <= 1


def test_the_split_follows_the_digest() -> None:
    ids = [str(i) for i in range(100)]
    assert set(split_select_gate(ids, "a")[0]) != set(split_select_gate(ids, "b")[0])
