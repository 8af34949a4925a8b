"""How long an iteration takes as a function of its batch size: T_iter = c0 + c1 b."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HUBER = 0.5
"""Log errors beyond this (a factor of 1.65) count linearly instead of squared: a straggler's iteration
is an error of many times the noise, and must not bend the law."""
_REWEIGHTINGS = 8


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured iteration: ``batch_size`` examples took ``seconds`` (both > 0 to be usable)."""

    batch_size: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """T_iter = c0 + c1 b in seconds, c0, c1 >= 0 and not both 0.

    ``rmse`` is in seconds; ``n`` is the number of usable observations.
    """

    c0: float
    c1: float
    rmse: float
    n: int

    @property
    def b_half(self) -> float:
        """c0 / c1: the batch size at which fixed and growing cost are equal; inf when c1 is 0.

        Unit: examples. Source: DESIGN section 5 (batch size).

        >>> Fit(10.0, 0.5, 0.0, 2).b_half
        20.0
        """
        return self.c0 / self.c1 if self.c1 > 0 else math.inf

    def predict(self, b: float) -> float:
        """Return the expected seconds of an iteration of ``b`` examples. NaN in, NaN out.

        >>> Fit(10.0, 0.5, 0.0, 2).predict(20)
        20.0
        """
        return self.c0 + self.c1 * b


def usable(obs: Iterable[Observation]) -> list[tuple[float, float]]:
    """Return (batch size, seconds) of the observations whose numbers are finite and above 0, sorted.

    >>> usable([Observation(50, 9.0), Observation(5, 2.0), Observation(5, float("nan"))])
    [(5.0, 2.0), (50.0, 9.0)]
    """
    return sorted(
        (float(o.batch_size), float(o.seconds))
        for o in obs
        if math.isfinite(o.batch_size) and math.isfinite(o.seconds) and o.batch_size > 0 and o.seconds > 0
    )


def fit_iteration_time(obs: Iterable[Observation]) -> Fit | None:
    """Fit T_iter = c0 + c1 b by robust non-negative least squares on relative errors.

    Times scatter in proportion to their size, so squares are weighted by 1 / T^2 of the previous
    pass (eight passes), times Huber's weight ``min(1, HUBER / |log error|)``. At 20 % noise the first
    cuts the median error of b_half by 15 to 40 % against plain squares (b_half 5 to 40, five sizes,
    nine observations each), because b_half hangs on the small batches. Observations that are NaN,
    infinite, zero or negative are left out; None when fewer than two distinct sizes remain or the
    arithmetic overflows. Never raises. Source: DESIGN section 5 (T_iter within 12 % of the H200 rows
    in facts.md). Cost: O(n).

    >>> fit = fit_iteration_time([Observation(5, 12.5), Observation(10, 15.0), Observation(50, 35.0)])
    >>> round(fit.c0, 6), round(fit.c1, 6), round(fit.b_half, 6)
    (10.0, 0.5, 20.0)
    >>> fit_iteration_time([Observation(5, 12.5), Observation(5, float("nan"))]) is None
    True
    """
    pairs = usable(obs)
    if len({b for b, _ in pairs}) < 2:
        return None
    sizes, times = (np.array(column) for column in zip(*pairs, strict=True))
    size_unit, time_unit = float(sizes.max()), float(times.max())
    with np.errstate(all="ignore"):
        a0, a1 = _relative_line(sizes / size_unit, times / time_unit)
        c0, c1 = a0 * time_unit, a1 * (time_unit / size_unit)
        errors = (times - (c0 + c1 * sizes)) / time_unit
        squared_error = float(np.sum(errors**2))
        rmse = math.sqrt(squared_error / len(pairs)) * time_unit if math.isfinite(squared_error) else math.inf
    if not all(map(math.isfinite, (c0, c1, rmse))) or c0 + c1 <= 0:
        return None
    return Fit(c0, c1, rmse, len(pairs))


def huber_weight(log_error: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights in (0, 1] of Huber's loss, in the shape of ``log_error``; NaN gives no weight.

    >>> huber_weight(np.array([0.1, 1.0])).tolist()
    [1.0, 0.5]
    """
    size = np.maximum(np.abs(log_error), 1e-12)
    weights: NDArray[np.float64] = np.fmax(0.0, np.minimum(1.0, HUBER / size))
    return weights


def _relative_line(b: NDArray[np.float64], t: NDArray[np.float64]) -> tuple[float, float]:
    """Return (c0, c1) >= 0 minimising the relative error, for b and t scaled to at most 1."""
    c0, c1 = _line(b, t, np.ones_like(t))
    for _ in range(_REWEIGHTINGS):
        predicted = np.maximum(c0 + c1 * b, 1e-12)
        c0, c1 = _line(b, t, huber_weight(np.log(t / predicted)) * predicted**-2.0)
    return c0, c1


def _line(b: NDArray[np.float64], t: NDArray[np.float64], w: NDArray[np.float64]) -> tuple[float, float]:
    """Weighted non-negative least squares for two coefficients: the line, else the better edge."""
    w = w / w.sum()
    mean_b, mean_t = float(w @ b), float(w @ t)
    spread = float(w @ (b - mean_b) ** 2)
    slope = float(w @ ((b - mean_b) * (t - mean_t))) / spread if spread > 0 else 0.0
    if slope <= 0:
        return mean_t, 0.0
    intercept = mean_t - slope * mean_b
    if intercept >= 0:
        return intercept, slope
    return 0.0, float(w @ (b * t)) / float(w @ (b * b))
