"""A confidence sequence for the mean of bounded differences: an interval that holds at every look at once.

The one we look at after each pair, and stop when we like. For a mean m, a gambler who bets the fraction
lambda of his capital on "the mean is above m" has, after n differences d_i in [-1, 1],

    K(m, lambda) = prod_i (1 + lambda (d_i - m)),        0 <= lambda < 1 / (1 + m)

which is a non-negative martingale if the mean is m, and shrinks on average if it is below. So is a mixture
of such gamblers with fixed weights, and by Ville's inequality P(it ever reaches 1 / a) <= a. All m whose
mixture has stayed below 1 / a form a confidence sequence; betting downwards gives the upper end.
Sources: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B 86 (2024),
sections 3 and 4 (capital processes, Ville); mixtures over bets: Robbins 1970, Orabona and Jun 2021.

Two choices are ours. Bets are *fixed*, ``BETS`` fractions of the largest one, halved each time, with equal
weights: the capital then depends on how often each difference came and not on the order, so a tally of
counts is all the state there is, and any order of arrival gives the same interval. Differences are rounded
to hundredths *at random* with the right mean (``on_grid``), which keeps the martingale a martingale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from combee.errors import BugError

GRID = 100
"""differences are counted in units of 1 / GRID; halves, quarters, fifths, tenths and hundredths are exact."""
BETS = 10
"""number of bets, each half of the one before: from 0.9 of the largest one to 0.0018 of it."""
LARGEST_BET = 0.9
_SHARES = LARGEST_BET * 0.5 ** np.arange(BETS)
_EXACT = 1e-9


def on_grid(difference: float, luck: float) -> int:
    """Return ``difference`` in [-1, 1] in units of 1 / GRID, rounded down or up so that the mean is right
    when ``luck`` is uniform in [0, 1). Multiples of 1 / GRID stay unchanged. Raises BugError outside [-1, 1].

    >>> on_grid(0.5, 0.3), on_grid(1 / 3, 0.2), on_grid(1 / 3, 0.9)
    (50, 34, 33)
    """
    if not -1 - _EXACT <= difference <= 1 + _EXACT:
        raise BugError(f"difference {difference} is not in [-1, 1]", where="on_grid")
    scaled = difference * GRID
    near = round(scaled)
    if abs(scaled - near) <= _EXACT * GRID:
        return max(-GRID, min(GRID, near))
    down = math.floor(scaled)
    return down + (luck < scaled - down)


def log_capital(counts: Mapping[int, int], mean: float, *, up: bool) -> float:
    """Return the log of the mixed capital of bets that the mean is above ``mean`` (``up``), or below it.

    ``counts``: difference in units of 1 / GRID -> how often it came. The result is 0 without counts, and
    finite: at least log((1 / BETS) * (1 - LARGEST_BET)^n). Cost: O(len(counts) BETS), whatever n is.

    >>> round(log_capital({100: 20}, 0.0, up=True), 2), round(log_capital({}, 0.0, up=True), 2)
    (10.54, 0.0)
    """
    if not counts:
        return 0.0
    values = np.fromiter(counts.keys(), dtype=np.float64, count=len(counts)) / GRID
    times = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
    sign = 1.0 if up else -1.0
    # The worst that can happen is a difference of -1 (of +1 when betting downwards).
    bets = sign * _SHARES / (1.0 + sign * mean)
    logs = np.log1p(bets[:, None] * (values - mean)[None, :]) @ times
    return float(_mixed(logs))


def _mixed(logs: NDArray[np.float64]) -> float:
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))


def interval(counts: Mapping[int, int], alpha: float) -> tuple[float, float]:
    """Return the two ends, to 1e-6, between which the mean is at every look with probability >= 1 -
    ``alpha``.

    Each end takes half of alpha. Without counts the interval is (-1, 1). The capital against m falls as m
    rises towards the data, so each end is found by halving. Raises BugError for alpha outside (0, 1). Cost:
    O(len(counts) BETS).

    >>> low, high = interval({-100: 40, 0: 900, 100: 60}, 0.05)
    >>> round(low, 3), round(high, 3)
    (-0.015, 0.056)
    """
    if not 0 < alpha < 1:
        raise BugError(f"alpha {alpha} is not in (0, 1)", where="interval")
    total = sum(counts.values())
    if not total:
        return -1.0, 1.0
    middle = sum(value * count for value, count in counts.items()) / total / GRID
    limit = math.log(2 / alpha)
    low = _end(counts, -1.0, middle, limit, up=True)
    return low, _end(counts, 1.0, middle, limit, up=False)


def _end(counts: Mapping[int, int], outer: float, middle: float, limit: float, *, up: bool) -> float:
    """Return the last mean, coming from ``outer``, that the capital refutes; ``outer`` when it refutes
    none."""
    # The largest bet is unbounded at outer itself, and finite a millionth inside.
    refuted, compatible = outer * (1 - 1e-6), middle
    if log_capital(counts, refuted, up=up) < limit:
        return outer
    while abs(compatible - refuted) > 1e-6:
        half = (refuted + compatible) / 2
        if log_capital(counts, half, up=up) >= limit:
            refuted = half
        else:
            compatible = half
    return refuted


def above(counts: Mapping[int, int], mean: float, alpha: float) -> bool:
    """Return whether the lower end of ``interval(counts, alpha)`` has reached ``mean``.

    >>> above({100: 12, 0: 1}, 0.0, 0.05), above({100: 5, -100: 5}, 0.0, 0.05)
    (True, False)
    """
    return log_capital(counts, mean, up=True) >= math.log(2 / alpha)


def below(counts: Mapping[int, int], mean: float, alpha: float) -> bool:
    """Return whether the upper end of ``interval(counts, alpha)`` has reached ``mean``.

    >>> below({-100: 12, 0: 1}, 0.0, 0.05)
    True
    """
    return log_capital(counts, mean, up=False) >= math.log(2 / alpha)
