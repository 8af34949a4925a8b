"""What a held-out comparison can show: paired differences, intervals, and their limits.

Pairs are matched by example id, never by order. Each further look at the same gate raises the rate of false
promotions, so a version is looked at once, and each look is judged more strictly than the one before
(``spending``); patience and choice look at ``select`` and are no evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from combee.algo.seeds import rng
from combee.errors import BugError

CHURN = 0.1
"""share of examples on which two versions are taken to differ without any gain, half of them each way."""
_EXACT_UP_TO = 4000
_CHUNK = 1_000_000


@dataclass(frozen=True, slots=True)
class Paired:
    """b minus a over the ids both have.

    ``n`` pairs, ``mean`` difference, ``low``..``high`` its two-sided interval, ``discordant`` pairs
    that differ, ``p_value`` of the exact two-sided sign test on them, ``unpaired`` ids left out.
    """

    n: int
    mean: float
    low: float
    high: float
    discordant: int
    p_value: float
    unpaired: int


def discordance_of(gain: float) -> float:
    """Return the share of examples on which two versions are taken to differ, before any is measured: CHURN
    and, on top of it, the examples that a true ``gain`` in [0, 1] turns right. Cost: O(1).

    >>> round(discordance_of(0.2), 3), discordance_of(1.0)
    (0.3, 1.0)
    """
    return min(1.0, CHURN + gain)


def gate_power(n: int, gain: float, *, discordance: float, alpha: float = 0.05) -> float:
    """Return the probability that a true ``gain`` shows on n paired examples, right or wrong each: that the
    lower end of ``paired_difference`` at confidence 1 - alpha is above 0.

    ``discordance`` d in (0, 1] is the share of examples on which the versions differ, and ``gain`` in [0, d]:
    each example is won with probability (d + gain) / 2 and lost with (d - gain) / 2. 0.0 for n < 1.
    ``BugError`` for other values. Source: the power of McNemar's exact test, summed over the number of
    examples that differ; the sign test is the stricter of ``paired_difference``'s conditions. Cost:
    O(sqrt(n)).

    >>> [round(gate_power(150, gain, discordance=0.1 + gain), 2) for gain in (0.01, 0.1, 0.2)]
    [0.03, 0.75, 1.0]
    """
    if not (0 <= gain <= discordance <= 1 and discordance > 0 and 0 < alpha < 1):
        raise BugError(f"gain {gain}, discordance {discordance}, alpha {alpha}", where="gate_power")
    if n < 1:
        return 0.0
    from scipy.special import bdtr, bdtrik, gammaln, xlog1py, xlogy  # it takes a fifth of a second to import

    reach = 20 + 10 * math.sqrt(n * discordance * (1 - discordance))
    first, last = math.floor(n * discordance - reach), math.ceil(n * discordance + reach)
    differ = np.arange(max(1, first), min(n, last) + 1)
    logs = gammaln(n + 1) - gammaln(differ + 1) - gammaln(n - differ + 1)
    share = np.exp(logs + xlogy(differ, discordance) + xlog1py(n - differ, -discordance))
    able = 2 * 0.5**differ <= alpha
    # The most losses with which the test rejects; where it never does, any number stands in.
    most = np.floor(bdtrik(alpha / 2, np.where(able, differ, n + 64), 0.5))
    shown = bdtr(np.minimum(most, differ), differ, (discordance - gain) / (2 * discordance))
    return float(np.sum(share[able] * shown[able]))


def detectable_gain(n: int, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest gain that n paired examples show with probability ``power``, to 0.0001.

    In units of the score (0.01 is one point of accuracy), for versions that differ as ``discordance_of`` has
    it; inf where even a gain of 1 would not show. ``BugError`` for alpha and power outside (0, 1). Source:
    the inverse of ``gate_power``. Cost: O(sqrt(n)).

    >>> round(detectable_gain(500), 3), detectable_gain(5)
    (0.05, inf)
    """
    for name, value in (("alpha", alpha), ("power", power)):
        if not 0 < value < 1:
            raise BugError(f"{name} must be in (0, 1), not {value}", where="detectable_gain")

    def shows(gain: float) -> bool:
        return gate_power(n, gain, discordance=discordance_of(gain), alpha=alpha) >= power

    low, high = 0.0, 1.0
    if not shows(high):
        return math.inf
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high


def can_ever_detect(n: int, alpha: float = 0.05) -> bool:
    """Return whether n examples, all of them better, reach two-sided significance: 2 * 0.5^n <= alpha.

    False for n < 1. Source: the exact sign test; DESIGN section 5 (the plan refuses or warns). Cost: O(1).

    >>> can_ever_detect(5), can_ever_detect(6)
    (False, True)
    """
    return n >= 1 and 2 * 0.5**n <= alpha


def pass_hat_k(right: int, rollouts: int, k: int) -> float:
    """Return the chance that ``k`` rollouts of an example are all right; ``right`` of ``rollouts`` were.

    Unbiased for k <= rollouts: the share of the sets of k rollouts that hold right ones alone. Source: Yao et
    al. 2024 (tau-bench), section 4. Cost: O(k).

    >>> pass_hat_k(3, 4, 1), pass_hat_k(3, 4, 2), pass_hat_k(1, 4, 2)
    (0.75, 0.5, 0.0)
    """
    return math.comb(right, k) / math.comb(rollouts, k)


def paired_difference(
    a: Mapping[str, float],
    b: Mapping[str, float],
    *,
    seed: int,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Paired:
    """Mean of b - a over the ids that both score, with a bootstrap interval over ids.

    ``a`` is the version in place, ``b`` the candidate: a positive mean is a gain. Scores are in
    [0, 1]; ids that only one side has, or with a NaN or infinite score, are left out and counted.
    Where every difference is -1, 0 or 1 (right / wrong scores) the bootstrap distribution is
    computed exactly (normal above 4,000 pairs) and ``seed`` plays no part; otherwise ``resamples``
    seeded resamples are drawn. Two guards keep small n honest: when all differences are equal the
    interval allows for what n pairs cannot have seen (exact binomial bound), and an interval is
    stretched to 0 when the sign test could not (fractional scores) or does not (right / wrong
    scores) reject at this confidence. No pairs give mean 0 in [-1, 1]: no evidence. ``BugError`` for
    confidence outside (0, 1) or resamples < 1. Source: Efron 1979; DESIGN section 5 (heldOut).
    Cost: O(n^2) in the exact case, else O(n resamples).

    >>> old = {str(i): 0.0 for i in range(40)}
    >>> new = old | {str(i): 1.0 for i in range(10)}
    >>> result = paired_difference(old, new, seed=7)
    >>> result.n, result.mean, result.low, result.high, result.discordant
    (40, 0.25, 0.125, 0.4, 10)
    """
    if not 0 < confidence < 1 or resamples < 1:
        raise BugError(f"confidence {confidence}, resamples {resamples}", where="paired_difference")
    ids = sorted(i for i in a if i in b and math.isfinite(a[i]) and math.isfinite(b[i]))
    unpaired = len(a.keys() | b.keys()) - len(ids)
    if not ids:
        return Paired(0, 0.0, -1.0, 1.0, 0, 1.0, unpaired)
    differences = np.array([b[i] - a[i] for i in ids], dtype=np.float64)
    wins, losses = int(np.sum(differences > 0)), int(np.sum(differences < 0))
    alpha = 1 - confidence
    p_value = sign_test(wins, losses)
    whole = bool(np.all(np.isin(differences, (-1.0, 0.0, 1.0))))
    mean = math.fsum(differences.tolist()) / len(ids)
    if np.all(differences == differences[0]):
        low, high = _unseen_bounds(float(differences[0]), len(ids), alpha)
    elif whole:
        low, high = _exact_interval(wins, losses, len(ids), alpha)
    else:
        low, high = _resampled_interval(differences, alpha, seed, resamples)
    doubtful = p_value > alpha if whole else not can_ever_detect(wins + losses, alpha)
    if doubtful:
        low, high = min(low, 0.0), max(high, 0.0)
    return Paired(len(ids), mean, min(low, mean), max(high, mean), wins + losses, p_value, unpaired)


def score_difference(wins: int, losses: int, n: int, confidence: float) -> tuple[float, float]:
    """Return Tango's score interval of (wins - losses) / n, a difference of paired proportions in [-1, 1].

    It holds the differences that the score test does not reject. The test uses the spread of the hypothetical
    difference and not of the observed one, so that few pairs, all alike, do not look certain. (-1, 1) for n <
    1. Raises BugError for impossible counts, or a confidence outside (0, 1). Source: Tango 1998, Statistics
    in Medicine 17. Cost: O(1).

    >>> [round(end, 3) for end in score_difference(0, 0, 20, 0.95)]
    [-0.161, 0.161]
    """
    if not 0 < confidence < 1 or min(wins, losses) < 0 or wins + losses > max(n, 0):
        raise BugError(f"{wins} wins, {losses} losses of {n} at {confidence}", where="score_difference")
    if n < 1:
        return -1.0, 1.0
    limit = NormalDist().inv_cdf((1 + confidence) / 2)
    low = _rejected_below(wins, losses, n, limit)
    return low, -_rejected_below(losses, wins, n, limit)


def _rejected_below(wins: int, losses: int, n: int, limit: float) -> float:
    rejected, compatible = -1.0, (wins - losses) / n
    for _ in range(50):
        delta = (rejected + compatible) / 2
        # The likeliest share of losses, were the difference delta.
        b = -wins - losses + (2 * n - wins + losses) * delta
        root = math.sqrt(max(0.0, b * b + 8 * n * losses * delta * (1 - delta)))
        variance = n * ((root - b) / (2 * n) + delta * (1 - delta))
        if wins - losses - n * delta >= limit * math.sqrt(max(0.0, variance)):
            rejected = delta
        else:
            compatible = delta
    return rejected


def wilson(share: float, n: int, z: float) -> tuple[float, float]:
    """Return Wilson's interval of a mean ``share`` of ``n`` values in [0, 1], ``z`` standard deviations to
    either side; (0, 1) for n < 1.

    It is exact enough for shares of yes and no, and too wide, never too narrow, for other values, whose
    variance is less. It is written out because scipy.stats takes whole counts only; on those the two agree.
    Source: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209-212. Cost: O(1).

    >>> [round(end, 3) for end in wilson(0.861, 300, 1.96)]
    [0.817, 0.896]
    """
    if n < 1:
        return 0.0, 1.0
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(max(0.0, share * (1 - share) / n + z * z / (4 * n * n)))
    scale = 1 + z * z / n
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def sign_test(wins: int, losses: int) -> float:
    """Return the two-sided p value of the exact sign test: wins against losses under a fair coin, in [0, 1].

    1.0 without wins and losses; 0.0 only where the value is below the range of a float. Source: Dixon and
    Mood 1946; McNemar's exact test. Cost: O(1).

    >>> sign_test(6, 0), sign_test(3, 3), sign_test(0, 0)
    (0.03125, 1.0, 1.0)
    """
    from scipy.special import bdtr  # it takes a fifth of a second to import

    return min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5)))


def _unseen_bounds(value: float, n: int, alpha: float) -> tuple[float, float]:
    """Return bounds on the mean when all n differences are ``value``: a share h of others may be unseen."""
    hidden = 1 - (alpha / 2) ** (1 / n)
    return value - hidden * (value + 1), value + hidden * (1 - value)


def _exact_interval(wins: int, losses: int, n: int, alpha: float) -> tuple[float, float]:
    """Return the percentile bootstrap of the mean of n draws from {-1, 0, 1}, computed exactly."""
    up, down = wins / n, losses / n
    if n > _EXACT_UP_TO:
        spread = NormalDist().inv_cdf(1 - alpha / 2) * math.sqrt((up + down - (up - down) ** 2) / n)
        return up - down - spread, up - down + spread
    power = np.array([down, 1 - up - down, up])
    total = np.array([1.0])
    remaining = n
    while remaining:
        if remaining & 1:
            total = np.convolve(total, power)
        remaining >>= 1
        if remaining:
            power = np.convolve(power, power)
    cumulative = np.cumsum(total) / total.sum()
    low = int(np.searchsorted(cumulative, alpha / 2 - 1e-12))
    high = int(np.searchsorted(cumulative, 1 - alpha / 2 - 1e-12))
    return (low - n) / n, (min(high, 2 * n) - n) / n


def _resampled_interval(
    differences: NDArray[np.float64], alpha: float, seed: int, resamples: int
) -> tuple[float, float]:
    n = len(differences)
    bits = rng(seed, "paired-bootstrap", n).bit_generator
    means: list[NDArray[np.float64]] = []
    rows = max(1, _CHUNK // n)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        raw = np.asarray(bits.random_raw(count * n), dtype=np.uint64)
        picks = (raw >> np.uint64(11)) * (n / float(1 << 53))
        means.append(differences[picks.astype(np.int64).reshape(count, n)].mean(axis=1))
    low, high = np.quantile(np.concatenate(means), [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class MeanInterval:
    """``mean`` of ``n`` values and its two-sided interval ``low``..``high``, in the values' unit."""

    n: int
    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> MeanInterval:
    """Return the mean of independent repeats (seeds) with Student's t interval.

    Fewer than two values give an interval from -inf to inf. ``BugError`` for NaN or infinite values and
    confidence outside (0, 1). Source: Student 1908. Cost: O(n).

    >>> estimate = mean_interval([1.0, 2.0, 3.0, 4.0])
    >>> round(estimate.mean, 3), round(estimate.low, 3), round(estimate.high, 3)
    (2.5, 0.446, 4.554)
    """
    if not 0 < confidence < 1 or not all(math.isfinite(value) for value in values):
        raise BugError(f"values {values}, confidence {confidence}", where="mean_interval")
    from scipy.special import stdtrit  # it takes a fifth of a second to import

    n = len(values)
    mean = math.fsum(values) / n if n else 0.0
    if n < 2:
        return MeanInterval(n, mean, -math.inf, math.inf)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = float(stdtrit(n - 1, (1 + confidence) / 2)) * spread
    return MeanInterval(n, mean, mean - half, mean + half)
