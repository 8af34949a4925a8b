"""Whether an evaluator is calibrated: Spearman's rho, its interval, and what a run does with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from combee.algo.calibration import LEAST_PAIRS, THRESHOLD, Calibration, calibration, sample_sizes

SEEDS = range(100)
scores = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0, 1)), min_size=50, max_size=120
)


def judged(rho: float, seed: int, rows: int) -> Calibration:
    """What a run finds with an evaluator of this true rho, looking again as long as nothing is decided."""
    rng = np.random.default_rng(seed)
    # Of two normal values with correlation r, Spearman's rho is 6 / pi asin(r / 2).
    r = 2 * math.sin(math.pi * rho / 6)
    label, noise = rng.normal(size=rows), rng.normal(size=rows)
    score = r * label + math.sqrt(1 - r * r) * noise
    for size in sample_sizes(rows, rows):
        found = calibration(list(score[:size]), list(label[:size]))
        if found.verdict != "Inconclusive":
            break
    return found


def test_a_poor_evaluator_is_found_in_95_of_100_runs_and_a_good_one_is_not() -> None:
    poor = [judged(0.5, seed, 400).verdict for seed in SEEDS]
    good = [judged(0.9, seed, 400).verdict for seed in SEEDS]
    assert poor.count("NotCalibrated") >= 95 and good.count("NotCalibrated") == 0
    assert good.count("Calibrated") >= 95 and poor.count("Calibrated") == 0


def test_at_the_threshold_itself_nothing_is_decided_wrongly_in_95_of_100_runs() -> None:
    verdicts = [judged(THRESHOLD, seed, 400).verdict for seed in SEEDS]
    assert verdicts.count("Inconclusive") >= 95


@given(scores)
def test_rho_is_spearmans_with_ties(pairs: list[tuple[float, float]]) -> None:
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    found = calibration(left, right)
    if (found.low, found.high) != (-1.0, 1.0):
        assert found.rho == pytest.approx(float(spearmanr(left, right)[0]), abs=1e-9)
        assert -1 <= found.low <= found.rho <= found.high <= 1


@given(scores)
def test_only_ranks_count_and_the_sides_may_change_places(pairs: list[tuple[float, float]]) -> None:
    left, right = [a for a, _ in pairs], [round(b, 6) for _, b in pairs]
    found, turned = calibration(left, right), calibration(right, [a**3 + 7 for a in left])
    assert (found.verdict, found.pairs) == (turned.verdict, turned.pairs)
    assert found.rho == pytest.approx(turned.rho, abs=1e-9)


def test_too_few_a_constant_and_mere_ties_decide_nothing_and_ask_for_more() -> None:
    rising = [n / 100 for n in range(100)]
    few = calibration(rising[: LEAST_PAIRS - 1], rising[: LEAST_PAIRS - 1])
    constant = calibration([1.0] * 100, rising)
    tied = calibration([1.0] * 92 + [0.0] * 8, rising)
    assert {few.verdict, constant.verdict, tied.verdict} == {"Inconclusive"}
    assert str(few).startswith("49 answers were compared, and 50 are asked for: give more rows")
    assert "one side's scores are nearly all equal" in str(constant) and str(constant) == str(tied)
    assert calibration([1.0] * 50 + [0.0] * 50, [1.0] * 49 + [0.5] + [0.0] * 50).verdict == "Calibrated"


def test_the_sentence_has_the_figures() -> None:
    rising = [n / 100 for n in range(100)]
    assert (
        str(calibration(rising, rising))
        == "Spearman's rho is 1.00 [1.00, 1.00] on 100 answers, and all of its interval reaches 0.7"
    )
    against = calibration(rising, rising[::-1])
    assert str(against).endswith("on 100 answers, and all of its interval lies below 0.7")


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_samples_grow_and_never_exceed_what_there_is(rows: int, available: int) -> None:
    sizes = sample_sizes(rows, available)
    assert list(sizes) == sorted(set(sizes)) and len(sizes) <= 3
    assert all(0 < size <= available for size in sizes)
    assert not sizes or sizes[0] == min(available, max(50, math.ceil(0.05 * rows)))
