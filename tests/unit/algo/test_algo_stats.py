"""Paired differences: paired by id, exact where they can be, honest where n is small."""

import math
from fractions import Fraction
from functools import cache
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from combee.algo.stats import (
    Paired,
    can_ever_detect,
    detectable_gain,
    discordance_of,
    gate_power,
    mean_interval,
    paired_difference,
    pass_hat_k,
    sign_test,
)
from combee.errors import BugError

scores = st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=30)
verdicts = st.dictionaries(st.text(max_size=3), st.sampled_from([0.0, 1.0]), max_size=30)


def versions(wins: int, losses: int, ties: int) -> tuple[dict[str, float], dict[str, float]]:
    a = [0.0] * wins + [1.0] * losses + [1.0] * ties
    b = [1.0] * wins + [0.0] * losses + [1.0] * ties
    return {str(i): x for i, x in enumerate(a)}, {str(i): x for i, x in enumerate(b)}


@given(st.one_of(scores, verdicts), st.one_of(scores, verdicts), st.integers(0, 5))
def test_interval_holds_the_mean_and_swaps_with_its_sides(
    a: dict[str, float], b: dict[str, float], seed: int
) -> None:
    result = paired_difference(a, b, seed=seed, resamples=200)
    assert -1 - 1e-9 <= result.low <= result.mean <= result.high <= 1 + 1e-9
    assert result.n + result.unpaired == len(a.keys() | b.keys())
    assert result.discordant <= result.n
    assert result == paired_difference(
        dict(reversed(a.items())), dict(reversed(b.items())), seed=seed, resamples=200
    )
    swapped = paired_difference(b, a, seed=seed, resamples=200)
    assert swapped.mean == pytest.approx(-result.mean)
    assert swapped.p_value == result.p_value


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 60))
def test_interval_of_verdicts_excludes_zero_only_when_the_sign_test_rejects(
    wins: int, losses: int, ties: int
) -> None:
    result = paired_difference(*versions(wins, losses, ties), seed=1)
    if result.p_value > 0.05:
        assert result.low <= 0 <= result.high
    assert result.discordant == wins + losses


@pytest.mark.parametrize(
    ("wins", "losses", "ties", "gain_shown"),
    [
        pytest.param(5, 0, 0, False, id="five-of-five-is-luck"),
        pytest.param(6, 0, 0, True, id="six-of-six"),
        pytest.param(5, 0, 500, False, id="few-discordant"),
        pytest.param(20, 5, 75, True, id="clear-gain"),
        pytest.param(12, 10, 78, False, id="noise"),
    ],
)
def test_when_a_gain_is_shown(wins: int, losses: int, ties: int, gain_shown: bool) -> None:
    assert (paired_difference(*versions(wins, losses, ties), seed=1).low > 0) is gain_shown


def test_no_difference_in_few_pairs_is_not_proof_of_none() -> None:
    few = paired_difference(*versions(0, 0, 3), seed=1)
    many = paired_difference(*versions(0, 0, 3000), seed=1)
    assert few.mean == many.mean == 0
    assert few.high > 0.5 and many.high < 0.002


def test_exact_interval_equals_many_resamples() -> None:
    a, b = versions(30, 12, 58)
    exact = paired_difference(a, b, seed=1)
    d = np.array([b[i] - a[i] for i in a])
    draws = np.random.default_rng(0)
    means = d[draws.integers(0, 100, (40_000, 100))].mean(axis=1)
    assert [exact.low, exact.high] == pytest.approx(np.quantile(means, [0.025, 0.975]).tolist(), abs=0.0101)
    assert exact == paired_difference(a, b, seed=99)


def test_resampled_interval_is_near_the_normal_one() -> None:
    draws = np.random.default_rng(3)
    a = {str(i): float(x) for i, x in enumerate(draws.uniform(0, 0.8, 400))}
    b = {i: x + float(draws.normal(0.05, 0.1)) for i, x in a.items()}
    result = paired_difference(a, b, seed=5)
    d = np.array([b[i] - a[i] for i in a])
    half = 1.96 * d.std(ddof=1) / 20
    assert (result.low, result.high) == pytest.approx((d.mean() - half, d.mean() + half), abs=0.15 * half)
    assert result == paired_difference(a, b, seed=5)
    assert result != paired_difference(a, b, seed=6)


def test_large_n_uses_the_normal_interval_that_the_exact_one_meets() -> None:
    small, large = (paired_difference(*versions(k, k // 2, 8 * k), seed=1) for k in (420, 4200))
    spread = NormalDist().inv_cdf(0.975) * math.sqrt(1.5 / 9.5 - (0.5 / 9.5) ** 2)
    for result in (small, large):
        assert result.high - result.mean == pytest.approx(spread / math.sqrt(result.n), rel=0.05)


def test_missing_and_unusable_scores_are_left_out_and_counted() -> None:
    a = {"1": 0.0, "2": math.nan, "3": 1.0, "4": 0.0}
    b = {"1": 1.0, "2": 1.0, "3": math.inf, "5": 0.0}
    result = paired_difference(a, b, seed=1)
    assert (result.n, result.mean, result.unpaired) == (1, 1.0, 4)


def test_no_pairs_is_no_evidence() -> None:
    assert paired_difference({}, {}, seed=1) == Paired(0, 0.0, -1.0, 1.0, 0, 1.0, 0)
    assert paired_difference({"1": 1.0}, {"2": 1.0}, seed=1).unpaired == 2


def test_coverage_of_the_interval_is_near_its_confidence() -> None:
    draws = np.random.default_rng(11)
    held = 0
    for _ in range(300):
        a = draws.random(60) < 0.6
        b = np.where(draws.random(60) < 0.25, draws.random(60) < 0.9, a)
        truth = 0.25 * (0.9 - 0.6)
        result = paired_difference(
            dict(zip(map(str, range(60)), a.astype(float), strict=True)),
            dict(zip(map(str, range(60)), b.astype(float), strict=True)),
            seed=1,
        )
        held += result.low <= truth <= result.high
    print(f"coverage at 95 %: {held / 300:.3f}")
    assert held / 300 > 0.9


@given(st.integers(0, 1100), st.integers(0, 1100))
def test_sign_test_counts_the_tosses_of_a_fair_coin(wins: int, losses: int) -> None:
    n = wins + losses
    as_uneven = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    # As fractions: the numbers are too large for floats.
    expected = min(1.0, float(Fraction(2 * as_uneven, 2**n)))
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert sign_test(wins, losses) == sign_test(losses, wins)
    assert sign_test(wins, wins) == 1.0


@pytest.mark.parametrize(("n", "published"), [(2, 12.706), (4, 3.182), (10, 2.262), (31, 2.042)])
def test_mean_interval_is_as_wide_as_the_published_quantiles_of_t(n: int, published: float) -> None:
    values = [float(i) for i in range(n)]
    found = mean_interval(values)
    spread = np.std(values, ddof=1) / math.sqrt(n)
    assert (found.high - found.mean) / spread == pytest.approx(published, abs=5e-4)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)
    assert mean_interval(values, confidence=0.5).high < found.high


def test_one_value_tells_nothing_of_its_spread() -> None:
    assert (mean_interval([3.0]).low, mean_interval([]).high) == (-math.inf, math.inf)
    with pytest.raises(BugError):
        mean_interval([1.0, math.nan])


@given(st.integers(-3, 40), st.floats(0.001, 0.5))
def test_can_ever_detect_is_all_wins(n: int, alpha: float) -> None:
    assert can_ever_detect(n, alpha) == (n > 0 and sign_test(n, 0) <= alpha)


@cache
def shown(n: int) -> list[tuple[int, int]]:
    """The wins and losses on n examples with which the interval lies above 0."""
    counts = [(wins, losses) for wins in range(n + 1) for losses in range(n + 1 - wins)]
    return [
        (wins, losses)
        for wins, losses in counts
        if paired_difference(*versions(wins, losses, n - wins - losses), seed=1).low > 0
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 16), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_power_is_the_probability_that_the_interval_lies_above_zero(
    n: int, discordance: float, of: float
) -> None:
    gain = discordance * of
    win, loss, tie = (discordance + gain) / 2, (discordance - gain) / 2, 1 - discordance
    expected = math.fsum(
        math.comb(n, wins)
        * math.comb(n - wins, losses)
        * win**wins
        * loss**losses
        * tie ** (n - wins - losses)
        for wins, losses in shown(n)
    )
    assert gate_power(n, gain, discordance=discordance) == pytest.approx(expected, abs=1e-9)


def test_power_on_many_examples_is_that_of_the_sign_test() -> None:
    n, gain, discordance = 700, 0.04, 0.12
    expected, losses = 0.0, 0
    for differ in range(1, n + 1):
        while sign_test(differ - losses - 1, losses + 1) <= 0.05 and 2 * (losses + 1) < differ:
            losses += 1
        if sign_test(differ - losses, losses) > 0.05:
            continue
        likely = stats.binom.pmf(differ, n, discordance)
        expected += likely * stats.binom.cdf(losses, differ, (discordance - gain) / (2 * discordance))
    assert gate_power(n, gain, discordance=discordance) == pytest.approx(expected, abs=1e-9)


@given(st.integers(1, 5000), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_gain_shows_more_often(n: int, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert gate_power(n, less, discordance=discordance_of(less)) <= 1e-9 + gate_power(
        n, more, discordance=discordance_of(more)
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(6, 100_000))
def test_the_detectable_gain_is_the_least_that_has_the_power(n: int) -> None:
    gain = detectable_gain(n)
    assert gate_power(n, gain, discordance=discordance_of(gain)) >= 0.8
    less = gain - 2e-4
    assert less < 0 or gate_power(n, less, discordance=discordance_of(less)) < 0.8
    if n > 200:
        assert gain == pytest.approx(2.8016 * math.sqrt(discordance_of(gain) / n), rel=0.05)


def test_nonsense_is_our_bug() -> None:
    for gain, discordance, alpha in ((0.2, 0.1, 0.05), (-0.1, 0.1, 0.05), (0.0, 0.0, 0.05), (0.1, 0.2, 1.0)):
        with pytest.raises(BugError):
            gate_power(10, gain, discordance=discordance, alpha=alpha)
    assert gate_power(0, 0.1, discordance=0.2) == 0.0
    for name in ("alpha", "power"):
        for value in (0.0, 1.0, math.nan):
            with pytest.raises(BugError):
                detectable_gain(10, **{name: value})
    with pytest.raises(BugError):
        paired_difference({}, {}, seed=1, confidence=1.0)
    with pytest.raises(BugError):
        paired_difference({}, {}, seed=1, resamples=0)
    assert detectable_gain(0) == detectable_gain(5) == math.inf


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_hat_k_is_the_share_of_sets_that_are_all_right(each: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(each)))
    sets = [all(chosen) for chosen in combinations(each, k)]
    assert pass_hat_k(sum(each), len(each), k) == pytest.approx(sum(sets) / len(sets))
