"""A curve of serial learning: where it becomes level, if above the start, and what few rows do not show."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from bench.worlds.plateaus import HEADLINE, SAME, Kind, finds_on_a_line, near
from hypothesis import assume, given
from hypothesis import strategies as st

from combee.algo.convergence import Headroom, Point, knee_chances, paired_error, read_curve

SEEDS = 300
PATIENCE = 3


@pytest.mark.parametrize(
    ("kind", "least"),
    [(HEADLINE, 0.96), (Kind(150, SAME), 0.96), (Kind(60, SAME), 0.86)],
    ids=str,
)
def test_a_planted_plateau_is_found_within_one_evaluation_of_the_truth(kind: Kind, least: float) -> None:
    assert near(kind, range(SEEDS)) >= least


def test_a_line_that_rises_all_the_way_is_rarely_called_level() -> None:
    assert sum(finds_on_a_line(HEADLINE, seed) for seed in range(SEEDS)) <= 0.05 * SEEDS


def test_a_flat_curve_is_rarely_called_risen() -> None:
    verdicts = []
    for seed in range(400):
        draw = np.random.default_rng([seed, 1])
        scores = draw.binomial(200, 0.6, size=6) / 200
        points = [Point(50 * place, float(score), 200) for place, score in enumerate(scores)]
        verdicts.append(read_curve(points, PATIENCE).verdict)
    assert sum(verdict in ("Rising", "Plateau") for verdict in verdicts) <= 0.06 * len(verdicts)


def test_a_curve_that_gains_what_is_due_is_rarely_called_unable_to() -> None:
    """At the very bound, at which a look is hardest: fewer than 5 of 100, beside chance in 1,000 curves."""
    stopped = 0
    for seed in range(1000):
        draw = np.random.default_rng([seed, 2])
        right = draw.random(150) < 0.6
        after = np.where(draw.random(150) < 0.3, draw.random(150) < 0.6 + 0.05 / 0.3, right)
        gain = after.astype(float) - right
        points = [
            Point(0, float(np.mean(right)), 150),
            Point(50, float(np.mean(after)), 150, paired_error(gain.tolist())),
        ]
        stopped += read_curve(points, PATIENCE, due=0.05).verdict == "NotAbove"
    assert stopped <= 0.05 * 1000, stopped


def test_a_text_that_is_still_the_start_s_gains_nothing() -> None:
    points = [Point(0, 0.6, 40), Point(30, 0.6, 40, error=0.0), Point(60, 0.6, 40, error=0.0)]
    assert read_curve(points, PATIENCE, due=0.01).verdict == "NotAbove"
    assert read_curve(points, PATIENCE).verdict == "Inconclusive"


@pytest.mark.parametrize(("gain", "most"), [(0.1, 0.05), (0.2, 0.01)])
def test_headroom_that_is_there_is_rarely_called_none(gain: float, most: float) -> None:
    """Lessons that add ``gain`` to a score of 0.65, by 48 rows of which up to 16 wrong ones are tried."""
    none = 0
    for seed in range(2000):
        draw = np.random.default_rng([seed, 3])
        wrong = int(draw.binomial(48, 0.35))
        tried = min(wrong, 16)
        other = draw.random(tried) < 0.05
        own = other | (draw.random(tried) < gain / 0.35 / 0.95)
        counts = (int(np.sum(flags)) for flags in (own, other, own & other))
        none += Headroom(48, wrong, tried, *counts).none(0.1)
    assert none <= most * 2000, none


@pytest.mark.parametrize(("own", "end"), [(0.1, "shown"), (0.2, "none")])
def test_all_looks_together_seldom_err(own: float, end: str) -> None:
    """Of 48 wrong rows another's lesson makes a tenth right, and their own no more, or as many more as is
    worth having. Lessons that do nothing are seldom shown to help, and those that gain it seldom given up."""
    erred = 0
    for seed in range(2000):
        draw = np.random.default_rng([seed, 4])
        right = draw.random((2, 48)) < [[own], [0.1]]
        for tried in (16, 32, 48):
            counts = (int(np.sum(flags[:tried])) for flags in (right[0], right[1], right[0] & right[1]))
            found = Headroom(48, 48, tried, *counts)
            if found.shown or found.none(0.1):
                erred += found.shown if end == "shown" else found.none(0.1)
                break
    assert erred <= 0.06 * 2000, erred


@st.composite
def curves(draw: st.DrawFn, least: int = 1) -> list[Point]:
    """Points in order, of any scores."""
    rows = draw(st.integers(1, 400))
    steps = draw(st.lists(st.integers(1, 100), min_size=least - 1, max_size=12))
    return [Point(at, draw(st.integers(0, rows)) / rows, rows) for at in accumulate(steps, initial=0)]


@given(curves(), st.integers(1, 5))
def test_a_reading_is_of_its_curve(points: list[Point], patience: int) -> None:
    found = read_curve(points, patience)
    scores = [point.score for point in points]
    assert min(scores) - 1e-9 <= found.level <= max(scores) + 1e-9
    assert 0 <= found.low <= found.high <= 1
    assert found.low - 1e-9 <= found.level <= found.high + 1e-9
    assert found.gain_low <= found.gain + 1e-9
    assert found.at in [point.at for point in points]
    if found.verdict == "Plateau":
        assert sum(point.at > found.at for point in points) >= patience
    else:
        assert found.at == points[-1].at
    assert (found.verdict in ("NotAbove", "Inconclusive")) != (found.gain_low > 0)


@given(curves(2))
def test_a_knee_is_somewhere(points: list[Point]) -> None:
    chances = knee_chances(points)
    assert len(chances) == len(points) - 1
    assert sum(chances) == pytest.approx(1) and min(chances) >= 0


@given(curves(2), st.integers(1, 5), st.integers(2, 50))
def test_the_unit_of_the_axis_does_not_matter(points: list[Point], patience: int, factor: int) -> None:
    found = read_curve(points, patience)
    scaled = read_curve([replace(point, at=point.at * factor) for point in points], patience)
    assert scaled.at == found.at * factor
    assert scaled.verdict == found.verdict


@given(curves(2), st.integers(1, 5))
def test_the_start_scored_higher_never_makes_a_gain(points: list[Point], patience: int) -> None:
    nothing = ("NotAbove", "Inconclusive")
    assume(read_curve(points, patience).verdict in nothing)
    higher = [replace(points[0], score=1.0), *points[1:]]
    assert read_curve(higher, patience).verdict in nothing


def test_what_cannot_be_a_curve_is_refused() -> None:
    for points in ([], [Point(1, 0.5, 10), Point(1, 0.6, 10)]):
        with pytest.raises(ValueError, match="ascending"):
            read_curve(points, 3)


def test_the_same_rows_show_what_different_ones_do_not() -> None:
    points = [Point(0, 0.5, 40), Point(20, 0.65, 40), Point(40, 0.65, 40)]
    assert read_curve(points, 3).verdict == "Inconclusive"
    error = paired_error([1.0] * 6 + [0.0] * 34)
    paired = [points[0], *(replace(point, error=error) for point in points[1:])]
    assert read_curve(paired, 3).verdict == "Rising"


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=300))
def test_a_paired_error_shrinks_with_rows_that_agree(differences: list[float]) -> None:
    error = paired_error(differences)
    assert error >= math.sqrt(2) / len(differences)
    assert paired_error([*differences, 0.0]) < error


@st.composite
def headrooms(draw: st.DrawFn) -> Headroom:
    wrong = draw(st.integers(0, 40))
    tried = draw(st.integers(0, wrong))
    rows = draw(st.integers(max(1, wrong), 60))
    own, other = draw(st.integers(0, tried)), draw(st.integers(0, tried))
    both = draw(st.integers(max(0, own + other - tried), min(own, other)))
    return Headroom(rows, wrong, tried, own, other, both)


@given(headrooms(), st.floats(0.01, 1))
def test_headroom_is_a_share_of_what_is_wrong(found: Headroom, worth: float) -> None:
    assert abs(found.gain) <= found.wrong / found.rows + 1e-9
    if found.none(worth):
        assert found.gain < worth and not found.shown
        assert found.none(min(1.0, 2 * worth))
    if found.tried and found.own + found.other - found.both < found.tried:
        better = replace(found, own=found.own + 1)
        assert better.gain > found.gain and better.most >= found.most - 1e-9
        assert found.none(worth) or not better.none(worth)
