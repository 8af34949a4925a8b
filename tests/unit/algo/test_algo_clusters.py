"""Scores by cluster: what belongs together counts once, in means and in intervals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.clusters import by_cluster
from combee.algo.membership import split_select_gate
from combee.algo.seeds import rng
from combee.algo.stats import Paired, paired_difference

RIGHT_OR_WRONG = st.sampled_from([0.0, 1.0])
FRACTIONS = st.floats(0, 1).map(lambda score: round(score, 3))
SCORES = st.one_of(
    *(st.lists(st.tuples(kind, kind), min_size=1, max_size=40) for kind in (RIGHT_OR_WRONG, FRACTIONS))
)
Sides = tuple[dict[str, float], dict[str, float]]


def sides(scores: list[tuple[float, float]]) -> Sides:
    return tuple({f"x{i}": pair[side] for i, pair in enumerate(scores)} for side in (0, 1))  # type: ignore[return-value]


def interval(of: Sides, clusters: dict[str, str]) -> Paired:
    before, after = (by_cluster(side, clusters) for side in of)
    return paired_difference(before, after, seed=3)


@given(SCORES)
def test_clusters_of_one_row_change_nothing(scores: list[tuple[float, float]]) -> None:
    plain = paired_difference(*sides(scores), seed=3)
    assert interval(sides(scores), {}) == plain
    assert interval(sides(scores), {f"x{i}": f"x{i}" for i in range(len(scores))}) == plain


@given(SCORES, st.integers(2, 4), st.data())
def test_rows_that_say_again_what_their_cluster_says_narrow_nothing(
    scores: list[tuple[float, float]], times: int, data: st.DataObject
) -> None:
    """All rows of a cluster repeated, or those of some: it is the same evidence."""
    copies = [data.draw(st.sampled_from([1, times])) for _ in scores]
    repeated = {f"x{i} copy {copy}": i for i, many in enumerate(copies) for copy in range(many)}
    before, after = ({name: scores[i][side] for name, i in repeated.items()} for side in (0, 1))
    got = interval((before, after), {name: f"x{i}" for name, i in repeated.items()})
    plain = paired_difference(*sides(scores), seed=3)
    assert got.n == plain.n == len(scores)
    assert (got.mean, got.low, got.high) == pytest.approx((plain.mean, plain.low, plain.high), abs=1e-9)


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.floats(0, 1), min_size=1), st.data())
def test_a_clusters_score_is_the_mean_of_its_rows(scores: dict[str, float], data: st.DataObject) -> None:
    names = st.sampled_from(["cluster a", "cluster b", "cluster c"])
    clusters = {example: data.draw(names) for example in scores}
    got = by_cluster(scores, clusters)
    assert got.keys() == set(clusters.values())
    for name, score in got.items():
        rows = [scores[example] for example in scores if clusters[example] == name]
        assert min(rows) - 1e-12 <= score <= max(rows) + 1e-12
        assert score == pytest.approx(math.fsum(rows) / len(rows))


def test_rows_that_rise_together_are_found_out_by_clusters_alone() -> None:
    """Twenty customers of ten rows each, in whom nothing changes on the average: over rows far more than 5 %
    of intervals leave out the truth, over clusters they do not."""
    missed = {"rows": 0, "clusters": 0}
    for seed in range(200):
        drawn = rng(seed, "clusters")
        better = drawn.random(20) < 0.5
        before = {f"{c}-{r}": 0.5 for c in range(20) for r in range(10)}
        after = {f"{c}-{r}": 0.5 + (0.3 if better[c] else -0.3) for c in range(20) for r in range(10)}
        clusters = {name: name.partition("-")[0] for name in before}
        for unit, known in (("rows", {}), ("clusters", clusters)):
            found = interval((before, after), known)
            missed[unit] += not found.low <= 0.0 <= found.high
    assert missed["rows"] > 80 and missed["clusters"] <= 20


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.text(max_size=5))
def test_no_cluster_lies_in_select_and_in_gate(named: list[int], digest: str) -> None:
    clusters = {f"x{i}": f"c{name}" for i, name in enumerate(named)}
    select, gate = split_select_gate(list(clusters), digest, clusters)
    assert sorted(select + gate) == sorted(clusters)
    in_select, in_gate = ({clusters[i] for i in half} for half in (select, gate))
    assert not in_select & in_gate and 0 <= len(in_select) - len(in_gate) <= 1
