"""A curve of serial learning: where it becomes level, if above the start, and what few rows do not show."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from combee.algo.convergence import Headroom, Point, paired_error, read_curve

SEEDS = 300
PATIENCE = 3
FRESH = 0.3
"""The share of a row's luck that each playbook draws anew, where all evaluations are of the same rows, as in
the simulated model."""


def found_at(seed: int, rows: int, fresh: float) -> tuple[int, int | None]:
    """(the planted evaluation from which on the curve is level, the one that was found) of a curve that is
    scored until a plateau is found, each time on ``rows`` rows."""
    draw = np.random.default_rng([seed, rows])
    knee, start, rise = int(draw.integers(3, 7)), 0.5 + 0.15 * draw.random(), 0.2 + 0.1 * draw.random()
    kept, points = draw.random(rows), list[Point]()
    for place in range(knee + 15):
        luck = np.where(draw.random(rows) < fresh, draw.random(rows), kept)
        score = float(np.mean(luck < start + rise * min(place, knee) / knee))
        points.append(Point(50 * place, score, rows))
        reading = read_curve(points, PATIENCE)
        if reading.verdict == "Plateau":
            return knee, reading.at // 50
    return knee, None


@pytest.mark.parametrize(("rows", "fresh"), [(200, 1.0), (150, FRESH)])
def test_a_planted_plateau_is_found_within_one_evaluation_of_the_truth(rows: int, fresh: float) -> None:
    pairs = [found_at(seed, rows, fresh) for seed in range(SEEDS)]
    near = sum(found is not None and abs(found - knee) <= 1 for knee, found in pairs)
    assert near >= 0.95 * SEEDS, near


def test_a_flat_curve_is_rarely_called_risen() -> None:
    verdicts = []
    for seed in range(400):
        draw = np.random.default_rng([seed, 1])
        scores = draw.binomial(200, 0.6, size=6) / 200
        points = [Point(50 * place, float(score), 200) for place, score in enumerate(scores)]
        verdicts.append(read_curve(points, PATIENCE).verdict)
    assert sum(verdict != "NotAbove" for verdict in verdicts) <= 0.06 * len(verdicts)


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
    assert (found.verdict == "NotAbove") or found.gain_low > 0


@given(curves(2), st.integers(1, 5), st.integers(2, 50))
def test_the_unit_of_the_axis_does_not_matter(points: list[Point], patience: int, factor: int) -> None:
    found = read_curve(points, patience)
    scaled = read_curve([replace(point, at=point.at * factor) for point in points], patience)
    assert scaled.at == found.at * factor
    assert scaled.verdict == found.verdict


@given(curves(2), st.integers(1, 5))
def test_the_start_scored_higher_never_makes_a_gain(points: list[Point], patience: int) -> None:
    assume(read_curve(points, patience).verdict == "NotAbove")
    higher = [replace(points[0], score=1.0), *points[1:]]
    assert read_curve(higher, patience).verdict == "NotAbove"


def test_what_cannot_be_a_curve_is_refused() -> None:
    for points in ([], [Point(1, 0.5, 10), Point(1, 0.6, 10)]):
        with pytest.raises(ValueError, match="ascending"):
            read_curve(points, 3)


def test_the_same_rows_show_what_different_ones_do_not() -> None:
    points = [Point(0, 0.5, 40), Point(20, 0.65, 40), Point(40, 0.65, 40)]
    assert read_curve(points, 3).verdict == "NotAbove"
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
    return Headroom(rows, wrong, tried, draw(st.integers(0, tried)), draw(st.integers(0, tried)))


@given(headrooms())
def test_headroom_is_a_share_of_what_is_wrong(found: Headroom) -> None:
    assert abs(found.gain) <= found.wrong / found.rows + 1e-9
    if found.none:
        assert found.gain <= 0
    if found.own < found.tried:
        better = replace(found, own=found.own + 1)
        assert better.gain > found.gain
        assert found.none or not better.none
