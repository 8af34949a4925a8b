"""Three delay models that compete by AICc, all as predictions of one iteration's seconds.

    name         of an epoch of N examples     of one iteration, b examples    coefficients
    T_iter       N (c0 / b + c1)               c0 + c1 b                       c0, c1
    power        A b^-alpha                    (A / N) b^(1 - alpha)           A, alpha
    power+floor  A b^-alpha + F                (A / N) b^(1 - alpha) + (F / N) b   A, alpha, F

T_epoch = (N / b) T_iter, so a relative error is the same on either scale and the models are compared
on log errors of T_iter. All three are ``a b^(1 - alpha) + f b`` (T_iter: alpha = 1; power: f = 0) with
a, f >= 0 and 0 < alpha <= 1: a larger batch never takes less time in all and never more an example.

The winner describes the data. A rule extrapolates, and two laws that fit alike may ask for sizes a factor
apart; so it asks all of them, each with its weight (``Laws.typical``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from combee.algo.delay import HUBER, Fit, Observation, fit_iteration_time, huber_weight, usable

T_ITER, POWER, POWER_FLOOR = "T_iter", "power", "power+floor"
Floats = NDArray[np.float64]

_EXPONENTS = np.linspace(0.05, 1.0, 39)
_REWEIGHTINGS = 6
_LEAST_ERROR = 1e-4
"""Log errors below this are indistinguishable: an exact fit has this error."""


def bounded_power(base: float, exponent: float) -> float:
    """Return ``base ** exponent`` for base >= 0, inf where that overflows.

    >>> bounded_power(4.0, 0.5), bounded_power(1e300, 2.0)
    (2.0, inf)
    """
    try:
        result: float = base**exponent
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return result


class Law(NamedTuple):
    """T_iter(b) = a b^(1 - alpha) + f b in seconds, fitted on ``n`` observations.

    ``aicc`` is None where it is not defined (n <= k + 1); ``error`` is the root mean squared log
    error, about the relative one (0.2: 20 %).
    """

    name: str
    a: float
    alpha: float
    f: float
    n: int
    aicc: float | None = None
    error: float = 0.0

    def predict(self, b: float) -> float:
        """Return the expected seconds of an iteration of ``b`` > 0 examples.

        >>> Law("T_iter", a=36.0, alpha=1.0, f=1.0, n=9).predict(44)
        80.0
        """
        growing: float = max(b, 0.0) ** (1 - self.alpha)
        return self.a * growing + self.f * b

    def scaled(self, factor: float) -> Law:
        """Return the same shape, ``factor`` times as slow; its AICc is not defined."""
        return Law(self.name, self.a * factor, self.alpha, self.f * factor, self.n, None, self.error)

    def growing_share(self, b: float) -> float:
        """Return the share of an iteration of ``b`` > 0 examples that a larger batch would save: 1 without a
        floor, 0 where time grows as fast as the batch.

        >>> Law("T_iter", a=36.0, alpha=1.0, f=1.0, n=9).growing_share(36)
        0.5
        """
        whole = self.predict(b)
        return (whole - self.f * b) / whole if 0 < whole < math.inf else 0.0

    @property
    def b_half(self) -> float:
        """The batch size, in examples, at which half of an example's time is floor: (a / f)^(1 / alpha), c0 /
        c1 for T_iter; inf without a floor."""
        return bounded_power(self.a / self.f, 1 / self.alpha) if self.f > 0 else math.inf

    @property
    def coefficients(self) -> int:
        """Number of fitted coefficients of this model."""
        return 3 if self.name == POWER_FLOOR else 2


@dataclass(frozen=True)
class Laws:
    """The competition's result. ``line`` is the T_iter fit, ``models`` all that competed in the table's
    order, ``chosen`` the one with the lowest AICc (T_iter where none has one), ``pairs`` the measured (b,
    seconds)."""

    line: Fit
    models: tuple[Law, ...]
    chosen: Law
    pairs: tuple[tuple[float, float], ...]

    @cached_property
    def beliefs(self) -> tuple[tuple[Law, float], ...]:
        """Laws and their weights, which sum to 1: T_iter alone where nothing competed. Otherwise the weights
        are those of every law with a floor (alpha from 1 (T_iter) down to .4, b_half) and of every power law
        (down to .3) on a grid, without its lightest nodes (a thousandth in all).

        A weight is the likelihood, level and scatter integrated out (Q^(-(n - 1) / 2), Q the sum of squares
        weighted by Huber's weights for ``chosen``), times the prior: NEAR_ONE, HALF and FOR_EVER. Source:
        Gelman et al., Bayesian Data Analysis, section 14.2. Cost: O(14,000 s) for s distinct sizes.
        """
        return ((self.chosen, 1.0),) if len(self.models) == 1 else _beliefs(self)

    def typical(self, size: Callable[[Law], float]) -> Law:
        """Return the law whose ``size`` is the weighted median over the beliefs.

        The median minimises the expected distance to the right size in ln b. Cost: one call of ``size`` per
        belief, some hundreds to thousands.

        >>> laws = fit_laws(Observation(b, 36 + b) for b in (5, 10, 25, 50, 100))
        >>> laws.typical(lambda law: law.b_half).name
        'T_iter'
        """
        ordered = sorted(self.beliefs, key=lambda belief: size(belief[0]))
        cumulative = np.cumsum([weight for _, weight in ordered])
        return ordered[min(int(np.searchsorted(cumulative, 0.5)), len(ordered) - 1)][0]


NEAR_ONE = 0.03 * math.log(2)
"""The prior median of 1 - alpha among laws with a floor. The mean of 1 - alpha is .03 in fits (relative least
squares, alpha <= 1) to the four published curves (Formula .88, FiNER 1, H200 playbook first 1, last 1), and
an exponential's median is ln 2 of its mean. The tail is Cauchy's, since four curves must not outweigh what is
measured."""
HALF, HALF_WITHIN = 48.0, 4.0
"""b_half expected of a law with a floor, and the factor (a standard deviation of ln b_half) it may be off:
T_iter on the same four curves has 74, 42, 73 and 23, a mean of 48 and a factor of 1.7; four says little."""
FOR_EVER = 1 / 6
"""The prior share of workloads without a floor: T_iter fits each of those four curves better than the power
law does, and (0 + 1) / (4 + 2) is the rule of succession."""
_BELIEVED = np.linspace(1.0, 0.4, 61)
_POWERS = np.linspace(1.0, 0.3, 71)
_EXPECTED_POWERS = 96
"""Exponents of laws without a floor have a prior from .05 to 1, in steps of .01, and those under .3 get no
weight: a nearly flat law would promise a gain without end that a server at its limit never gives. Times that
a larger batch does not change come from a floor, and there the smallest batch loses nothing."""
_STEP, _REACH = 0.06, 5.0
"""Between two nodes in ln b_half; standard deviations that the grid reaches from HALF."""
_LIGHT = 1e-3
"""Beliefs that together have less than this share are dropped."""


def fit_laws(obs: Iterable[Observation]) -> Laws | None:
    """Fit the three models and let them compete. None where ``fit_iteration_time`` gives None.

    AICc = n ln(2 Q / n) + 2 k + 2 k (k + 1) / (n - k - 1), Q the sum of Huber's losses of the log
    errors, k the coefficients plus one for the scatter; a model competes where n > k + 1 and there
    are three distinct sizes, else T_iter is taken. Fits: relative least squares with Huber's weights
    (``delay``), exact in a and f for each exponent on a grid from 0.05 to 1, refined once. Never
    raises. Source: DESIGN section 5 (batch size). Cost: O(80 n).

    >>> sizes = (5, 10, 25, 50, 100, 200)
    >>> laws = fit_laws(Observation(b, 3 * b**0.5 * (1 + 0.01 * (-1) ** b)) for b in sizes)
    >>> laws.chosen.name, round(laws.chosen.alpha, 1)
    ('power', 0.5)
    """
    pairs = usable(obs)
    line = fit_iteration_time(Observation(b, t) for b, t in pairs)
    if line is None:
        return None
    sizes, times = (np.array(column) for column in zip(*pairs, strict=True))
    with np.errstate(all="ignore"):
        models = [_with_error(Law(T_ITER, line.c0, 1.0, line.c1, line.n), sizes, times)]
        if len(set(sizes.tolist())) > 2 and models[0].aicc is not None:
            rivals = (_power(sizes, times), _power_floor(sizes, times))
            models += [law for law in rivals if law is not None and law.aicc is not None]
    return Laws(line, tuple(models), _lowest(models), tuple(pairs))


def residuals(law: Law, obs: Iterable[Observation]) -> tuple[float, ...]:
    """Return the log errors ln(seconds / predicted) of the usable observations, in the order given.

    >>> residuals(Law(T_ITER, 10.0, 1.0, 1.0, 2), [Observation(10, 20.0), Observation(30, 40.0)])
    (0.0, 0.0)
    """
    return tuple(
        math.log(o.seconds) - math.log(predicted)
        for o in obs
        if usable([o]) and math.isfinite(predicted := law.predict(o.batch_size)) and predicted > 0
    )


def levelled(law: Law, obs: Iterable[Observation]) -> Law:
    """Return ``law`` at the level at which it predicts for ``obs`` together what they took together.

    Its shape is a robust fit, which a few very long iterations do not bend; their seconds are waited for
    nevertheless, so they count here in full. Without usable observations the law is returned as it is. Cost:
    O(n).

    >>> levelled(Law(T_ITER, 36.0, 1.0, 1.0, 3), [Observation(44, 80.0), Observation(44, 800.0)]).predict(44)
    440.0
    """
    pairs = usable(obs)
    took, predicted = sum(t for _, t in pairs), sum(law.predict(b) for b, _ in pairs)
    factor = took / predicted if predicted > 0 else math.nan
    return law.scaled(factor) if math.isfinite(factor) and factor > 0 else law


def _lowest(models: Iterable[Law]) -> Law:
    """Return the law with the lowest AICc, the earlier one in a tie."""
    return min(models, key=lambda law: math.inf if law.aicc is None else law.aicc)


def _beliefs(laws: Laws) -> tuple[tuple[Law, float], ...]:
    sizes, times = (np.log(np.array(column)) for column in zip(*laws.pairs, strict=True))
    with np.errstate(all="ignore"):
        alphas, halves, expected = _expected(laws.line.b_half)
        points, means, weights, unexplained = _summary(laws.chosen, sizes, times)
        deviations = means - _growth(alphas, halves, points)
        level = deviations @ weights / weights.sum()
        squares = np.maximum(
            unexplained + (deviations - level[:, None]) ** 2 @ weights, len(sizes) * _LEAST_ERROR**2
        )
        scores = np.log(expected) - (len(sizes) - 1) / 2 * np.log(squares)
        likelihoods = np.exp(scores - scores.max())
        likelihoods /= likelihoods.sum()
        a, f = np.exp(level), np.exp(level - alphas * halves)
    kept_nodes = np.argsort(-likelihoods, kind="stable")
    kept_nodes = kept_nodes[: int(np.searchsorted(np.cumsum(likelihoods[kept_nodes]), 1 - _LIGHT)) + 1]
    kept_nodes = kept_nodes[
        np.isfinite(a[kept_nodes]) & np.isfinite(f[kept_nodes]) & np.isfinite(likelihoods[kept_nodes])
    ]
    if not len(kept_nodes):
        return ((laws.chosen, 1.0),)
    shares = (likelihoods[kept_nodes] / likelihoods[kept_nodes].sum()).tolist()
    numbers = zip(
        a[kept_nodes].tolist(), alphas[kept_nodes].tolist(), f[kept_nodes].tolist(), shares, strict=True
    )
    return tuple((_named(level, alpha, floor, laws.chosen), share) for level, alpha, floor, share in numbers)


def _named(a: float, alpha: float, f: float, chosen: Law) -> Law:
    name = POWER if f <= 0 else T_ITER if alpha >= 1 else POWER_FLOOR
    return Law(name, a, alpha, f, chosen.n, None, chosen.error)


def _expected(half: float) -> tuple[Floats, Floats, Floats]:
    """Return (alpha, ln b_half, prior) of every node; ln b_half is inf for power laws. The grid of b_half
    runs through ``half``, that of the T_iter fit, so that exact data keep their exact law."""
    middle, log_factor = math.log(HALF), math.log(HALF_WITHIN)
    steps = math.ceil(_REACH * log_factor / _STEP)
    shift = math.log(half) - middle if 0 < half < math.inf else 0.0
    logs = middle + shift % _STEP + _STEP * np.arange(-steps, steps + 1)
    alpha_prior = 1 / (1 + ((1 - _BELIEVED) / NEAR_ONE) ** 2)
    half_prior = np.exp(-(((logs - middle) / log_factor) ** 2) / 2)
    floored = (1 - FOR_EVER) * np.outer(alpha_prior / alpha_prior.sum(), half_prior / half_prior.sum())
    return (
        np.concatenate([np.repeat(_BELIEVED, len(logs)), _POWERS]),
        np.concatenate([np.tile(logs, len(_BELIEVED)), np.full(len(_POWERS), np.inf)]),
        np.concatenate([floored.ravel(), np.full(len(_POWERS), FOR_EVER / _EXPECTED_POWERS)]),
    )


def _growth(alphas: Floats, halves: Floats, points: Floats) -> Floats:
    """Return ln of T_iter / a at each ln b of ``points``, a row per law: (1 - alpha) ln b + ln(1 + (b /
    b_half)^alpha)."""
    growing = np.logaddexp(0.0, alphas[:, None] * (points - halves[:, None]))
    total: Floats = (1 - alphas[:, None]) * points + growing
    return total


def _summary(chosen: Law, sizes: Floats, times: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Summarise the observations (ln b, ln seconds): distinct ln b, weighted mean ln seconds and weight of
    each, and the sum of squares that no law can explain. It is twice Huber's loss at ``chosen``."""
    errors = times - np.log(chosen.a * np.exp((1 - chosen.alpha) * sizes) + chosen.f * np.exp(sizes))
    error_weights = huber_weight(errors)
    points, groups = np.unique(sizes, return_inverse=True)
    weights: Floats = np.bincount(groups, error_weights).astype(float)
    means = np.bincount(groups, error_weights * times) / weights
    within = float(error_weights @ (times - means[groups]) ** 2)
    return points, means, weights, within + 2 * float(_loss(errors)) - float(error_weights @ errors**2)


def _with_error(law: Law, sizes: Floats, times: Floats) -> Law:
    """Return ``law`` with its error and AICc."""
    n, k = len(sizes), law.coefficients + 1
    errors = np.log(times / (law.a * sizes ** (1 - law.alpha) + law.f * sizes))
    error = math.sqrt(2 * float(_loss(errors)) / n)
    aicc = None
    if n > k + 1 and math.isfinite(error):
        aicc = n * math.log(max(error, _LEAST_ERROR) ** 2) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    return Law(law.name, law.a, law.alpha, law.f, n, aicc, error if math.isfinite(error) else 0.0)


def _loss(log_errors: Floats) -> Floats:
    """Return Huber's loss, summed over the last axis."""
    size = np.abs(log_errors)
    total: Floats = np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2)).sum(-1)
    return total


def _power(sizes: Floats, times: Floats) -> Law | None:
    def fit(exponents: Floats) -> tuple[Floats, Floats, Floats]:
        logs = np.log(times) - (1 - exponents[:, None]) * np.log(sizes)
        level = np.median(logs, axis=1, keepdims=True)
        for _ in range(_REWEIGHTINGS):
            weights = huber_weight(logs - level)
            level = (weights * logs).sum(1, keepdims=True) / weights.sum(1, keepdims=True)
        return np.exp(level[:, 0]), np.zeros(len(exponents)), _loss(logs - level)

    return _refined(POWER, fit, sizes, times)


def _power_floor(sizes: Floats, times: Floats) -> Law | None:
    return _refined(POWER_FLOOR, lambda exponents: _floored(exponents, sizes, times), sizes, times)


def _floored(exponents: Floats, sizes: Floats, times: Floats) -> tuple[Floats, Floats, Floats]:
    """Return (a, f, loss) of the law with a floor at each exponent."""
    x, y = sizes ** -exponents[:, None], times / sizes
    weights = np.broadcast_to(y**-2.0, x.shape)
    for _ in range(_REWEIGHTINGS):
        a, f = _lines(x, y, weights)
        predicted = np.maximum(a[:, None] * x + f[:, None], 1e-300)
        weights = huber_weight(np.log(y / predicted)) * predicted**-2.0
    a, f = _lines(x, y, weights)
    return a, f, _loss(np.log(y / (a[:, None] * x + f[:, None])))


def _lines(x: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return (slope, intercept) >= 0 of each row, by weighted least squares."""
    w = weights / weights.sum(1, keepdims=True)
    mean_x, mean_y = (w * x).sum(1), (w * y).sum(1)
    centred = x - mean_x[:, None]
    slope = (w * centred * y).sum(1) / (w * centred**2).sum(1)
    intercept = mean_y - slope * mean_x
    through_zero = (w * x * y).sum(1) / (w * x * x).sum(1)
    a = np.where(slope <= 0, 0.0, np.where(intercept < 0, through_zero, slope))
    f = np.where(slope <= 0, mean_y, np.where(intercept < 0, 0.0, intercept))
    return a, f


def _refined(
    name: str, fit: Callable[[Floats], tuple[Floats, Floats, Floats]], sizes: Floats, times: Floats
) -> Law | None:
    """Return the law with the best exponent of the grid, then of a finer grid around it."""
    exponents = _EXPONENTS
    for _ in range(2):
        a, f, losses = fit(exponents)
        losses = np.where(np.isfinite(losses) & np.isfinite(a) & np.isfinite(f), losses, np.inf)
        best = int(np.argmin(losses))
        if not math.isfinite(losses[best]):
            return None
        law = Law(name, float(a[best]), float(exponents[best]), float(f[best]), len(sizes))
        step = exponents[1] - exponents[0]
        exponents = np.clip(np.linspace(law.alpha - step, law.alpha + step, 21), 0.05, 1.0)
    return _with_error(law, sizes, times)
