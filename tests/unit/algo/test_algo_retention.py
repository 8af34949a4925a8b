"""Retention counts distinct lessons; retransmission keeps what DESIGN section 5 says it keeps."""

import math
import time

import numpy as np
import pytest

from combee.algo.retention import (
    Level,
    Rarity,
    carried,
    credited,
    lesson_clusters,
    retention,
)
from combee.algo.retransmit import Redundancy, choose_redundancy
from combee.algo.seeds import rng
from combee.algo.shuffle import augmented_shuffle
from combee.algo.tree import leaf_count
from combee.errors import BugError

LESSONS = {
    "r-1.0": "For ROI subtract the cost of 200",
    "r-2.0": "Please: for ROI subtract the cost of 200",
    "r-3.0": "Use 15% for leases",
    "r-4.0": "Use 16% for leases",
}


def test_clusters_are_numbered_by_first_appearance() -> None:
    texts = ["use ROI of 5", "use ROI of 6", "Use the ROI of 5", ""]
    assert lesson_clusters(texts) == [0, 1, 0, 2]
    assert lesson_clusters([]) == []


def test_five_thousand_lessons() -> None:
    texts = [f"For rule R-{i % 400:03d} multiply {i % 37} by the rate of year {i % 11}" for i in range(5000)]
    started = time.perf_counter()
    clusters = lesson_clusters(texts)
    print(f"clusters of 5,000 lessons: {time.perf_counter() - started:.2f} s, {max(clusters) + 1} clusters")
    assert len(clusters) == 5000


def test_retention_counts_clusters_and_reports_rarity() -> None:
    many = (
        LESSONS
        | {f"m-{i}": "Use 99 for rents" for i in range(9)}
        | {f"t-{i}": "Use 3 for fees" for i in range(4)}
    )
    result = retention(many, ["r-2.0", "r-3.0", "m-3", "ghost"], rendered_ids=["r-1.0"])
    assert (result.distinct, result.carried, result.rendered) == (5, 3, 1)
    assert result.by_rarity == (
        Rarity("1", 2, 1),
        Rarity("2", 1, 1),
        Rarity("3-4", 1, 0),
        Rarity("9+", 1, 1),
    )


def test_no_lessons() -> None:
    assert retention({}, []).distinct == 0
    assert retention({}, ["ghost"]).carried == 0
    assert credited({}, [("text", ["ghost"])]) == frozenset()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([("ROI: subtract cost 200", ["r-1.0"])], {"r-1.0"}, id="kept"),
        pytest.param([("ROI: subtract cost", ["r-1.0"])], set(), id="anchor-lost"),
        pytest.param([("ROI: subtract cost 200", ["r-9.9"])], set(), id="id-invented"),
        pytest.param([("ROI: subtract cost 200", [])], set(), id="not-cited"),
        pytest.param([("leases: 15% or 16%", ["r-3.0", "r-4.0"])], {"r-3.0", "r-4.0"}, id="two"),
        pytest.param([], set(), id="nothing"),
    ],
)
def test_credit_needs_a_real_id_and_the_anchors(entries, expected) -> None:  # type: ignore[no-untyped-def]
    assert credited(LESSONS, entries) == expected


def test_an_entry_that_recites_everything_is_capped() -> None:
    lessons = {f"r-{i:02d}": f"use factor {i}" for i in range(20)}
    everything = " ".join(lessons.values())
    assert sorted(credited(lessons, [(everything, list(lessons))])) == ["r-00", "r-01", "r-02", "r-03"]
    assert len(credited(lessons, [(everything, list(lessons))], per_entry=50)) == 20


def test_copies_of_one_lesson_do_not_use_up_the_cap() -> None:
    lessons = {f"r-{i}": "use factor 5" for i in range(9)}
    assert len(credited(lessons, [("factor 5", list(lessons))], per_entry=1)) == 9


def test_clusters_must_align() -> None:
    with pytest.raises(BugError):
        retention(LESSONS, [], clusters=[0])


def test_carried_and_level() -> None:
    assert carried("use 5", "5 it is") and not carried("use 5", "6 it is")
    assert Level("leaf round 1", 125, 1000, 900, 522).carried == 522


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
    ("mode", "n", "expected"),
    [
        ("Auto", 0, Redundancy("Duplicate", 2, 1)),
        ("Auto", 63, Redundancy("Duplicate", 2, 1)),
        ("Auto", 64, Redundancy("Retransmit", 1, 4)),
        ("Duplicate", 5000, Redundancy("Duplicate", 2, 1)),
        ("Retransmit", 3, Redundancy("Retransmit", 1, 4)),
    ],
)
def test_choose_redundancy(mode, n, expected) -> None:  # type: ignore[no-untyped-def]
    assert choose_redundancy(mode, n, 2, 4) == expected


def test_redundancy_nonsense_is_our_bug() -> None:
    for arguments in (("Best", 5, 2, 4), ("Auto", 5, 0, 4), ("Auto", 5, 2, 0)):
        with pytest.raises(BugError):
            choose_redundancy(*arguments)  # type: ignore[arg-type]
