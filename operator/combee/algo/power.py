"""How many pairs a canary needs, and which epsilon its traffic can decide: the theory of ``sequence``.

A canary of n pairs passes when the capital against "the mean is -epsilon" reaches 2 / alpha. For given n the
capital is a function of the sum of the differences, so there is a least sum at which it passes: a boundary.
The sum is close to a Brownian motion with drift ``difference`` and variance ``sd``^2 a pair. Its probability
of having crossed the boundary by n is found by carrying its density from look to look (Armitage, McPherson
and Rowe 1969), with Siegmund's correction for looks that lie apart (Siegmund 1985, chapter X).

For the boundary the differences are taken to be -1, 0 and 1 (one version right and the other wrong, or a win,
a draw, a defeat): of all differences of one mean and variance these pay the bets least evenly. The result is
within five points of simulation once some 25 of the pairs differ; with fewer it is a little low.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from combee.algo.canary import ALPHA
from combee.algo.sequence import BETS, LARGEST_BET, above
from combee.errors import BugError

ASSUMED_SD = 0.3
"""standard deviation of the differences while none is known: one request in eleven is won or lost, the others
are draws."""
EPSILONS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5)
"""the epsilons that are proposed."""
MOST = 100_000_000
"""largest number of pairs considered."""
_POWER = 0.8
_STEP = 1.06
"""factor between the pairs of one look and of the next."""
_FIRST = 8
_CELLS = 240
_REACH = 6.0
"""standard deviations below the mean that the density is followed to."""
_SIEGMUND = 0.5826


def power(
    pairs: int, *, epsilon: float, difference: float, sd: float = ASSUMED_SD, alpha: float = ALPHA
) -> float:
    """Return the probability that a canary that is looked at after each pair passes within ``pairs``.

    ``difference``: the true mean, ``sd`` > 0 the standard deviation of differences in [-1, 1]. The minimum of
    samples, the duration and the latency guard are left out. Raises BugError for impossible values. Cost:
    about 200 looks of 240^2 operations.

    >>> 0.75 < power(3300, epsilon=0.02, difference=0.0) < 0.85
    True
    """
    _check(epsilon, difference, sd, alpha)
    looks, crossed = _crossing(epsilon, difference, sd, alpha, pairs, enough=1.1)
    return float(np.interp(pairs, looks, crossed)) if len(looks) else 0.0


def pairs_needed(
    epsilon: float,
    difference: float = 0.0,
    sd: float = ASSUMED_SD,
    alpha: float = ALPHA,
    power: float = _POWER,
) -> int | None:
    """Return the least number of pairs within which a canary passes with probability ``power``.

    None when that is over a hundred million, as it is for a difference at or under -epsilon. Arguments and
    cost as ``power``.

    >>> 2500 < (pairs_needed(0.02) or 0) < 4500
    True
    """
    _check(epsilon, difference, sd, alpha)
    if not 0 < power < 1:
        raise BugError(f"power {power} is not in (0, 1)", where="pairs_needed")
    return _needed(epsilon, difference, sd, alpha, power)


@lru_cache(maxsize=256)
def _needed(epsilon: float, difference: float, sd: float, alpha: float, power: float) -> int | None:
    if difference <= -epsilon:
        return None
    looks, crossed = _crossing(epsilon, difference, sd, alpha, MOST, enough=power)
    if not len(crossed) or crossed[-1] < power:
        return None
    return math.ceil(float(np.interp(power, crossed, looks)))


def decidable_epsilon(
    pairs: float, *, sd: float = ASSUMED_SD, alpha: float = ALPHA, among: Sequence[float] = EPSILONS
) -> float | None:
    """Return the least epsilon of ``among`` that ``pairs`` can decide for an equal candidate; else None.

    >>> decidable_epsilon(5000)
    0.02
    """
    candidates = sorted(among)
    index = bisect_left(candidates, True, key=lambda epsilon: _decided(pairs, epsilon, sd, alpha))
    return candidates[index] if index < len(candidates) else None


def least_pairs(epsilon: float, alpha: float = ALPHA) -> int | None:
    """Return the pairs that a canary of two versions that never differ takes: any difference takes more.

    None for an epsilon of 0, which no number of equal pairs shows. BugError for an epsilon outside [0, 1].
    Cost: O(log) looks at the capital.

    >>> least_pairs(0.05), least_pairs(0.005), least_pairs(0.0)
    (128, 1309, None)
    """
    _check(epsilon, 0.0, ASSUMED_SD, alpha)
    if epsilon <= 0:
        return None
    # The largest bet is unbounded at exactly -1.
    floor, high = max(-epsilon, -1 + 1e-6), 1
    while not above({0: high}, floor, alpha):
        high *= 2
        if high > MOST:
            return None
    return bisect_left(range(high + 1), True, key=lambda pairs: above({0: pairs}, floor, alpha))


def _decided(pairs: float, epsilon: float, sd: float, alpha: float) -> bool:
    needed = pairs_needed(epsilon, 0.0, sd, alpha)
    return needed is not None and needed <= pairs


def _check(epsilon: float, difference: float, sd: float, alpha: float) -> None:
    if not (0 <= epsilon <= 1 and -1 <= difference <= 1 and 0 < sd <= 1 and 0 < alpha < 1):
        raise BugError(f"epsilon {epsilon}, difference {difference}, sd {sd}, alpha {alpha} cannot be")


def _crossing(
    epsilon: float, difference: float, sd: float, alpha: float, last: int, *, enough: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the looks, and the probability to have crossed by each; up to ``last`` pairs or ``enough``."""
    looks: list[float] = []
    crossed: list[float] = []
    crossed_share, previous_look = 0.0, 0
    cells: NDArray[np.float64] = np.zeros(1)
    density: NDArray[np.float64] = np.ones(1)
    for look in _looks(last):
        step = look - previous_look
        spread = sd * math.sqrt(step)
        edge = _boundary(look, epsilon, difference, sd, alpha) + _SIEGMUND * (sd - spread)
        top = min(edge, difference * look + _REACH * sd * math.sqrt(look))
        bottom = difference * look - _REACH * sd * math.sqrt(look)
        if top <= bottom:
            looks, crossed = [*looks, look], [*crossed, 1.0]
            break
        width = (top - bottom) / _CELLS
        centres = np.linspace(bottom + width / 2, top - width / 2, _CELLS, dtype=np.float64)
        deviations = (centres[:, None] - cells[None, :] - difference * step) / spread
        # Each previous cell sends its share to the cells below the boundary; the rest has crossed.
        next_density = (
            np.exp(-0.5 * deviations * deviations) @ density * (width / spread / math.sqrt(2 * math.pi))
        )
        remaining = min(1.0 - crossed_share, float(next_density.sum()))
        if top < edge:
            remaining = 1.0 - crossed_share
        crossed_share, cells, density, previous_look = 1.0 - remaining, centres, next_density, look
        looks.append(look)
        crossed.append(crossed_share)
        if crossed_share >= enough:
            break
    return np.array(looks), np.maximum.accumulate(np.array(crossed))


def _looks(last: int) -> list[int]:
    looks, position = [], float(_FIRST)
    while round(position) < last:
        looks.append(round(position))
        position = max(position * _STEP, position + 1)
    return [*looks, last]


def _boundary(pairs: int, epsilon: float, difference: float, sd: float, alpha: float) -> float:
    """Return the least sum of ``pairs`` differences -1, 0, 1 at which the capital reaches 2 / alpha."""
    differing = min(1.0, max(abs(difference), sd * sd + difference * difference)) * pairs
    bets = LARGEST_BET * 0.5 ** np.arange(BETS) / (1.0 - epsilon)
    win_logs, draw_logs, loss_logs = (np.log1p(bets * (value + epsilon)) for value in (1.0, 0.0, -1.0))
    limit = math.log(2 / alpha)

    def reached(total: float) -> bool:
        up, down = (differing + total) / 2, (differing - total) / 2
        logs = up * win_logs + down * loss_logs + (pairs - differing) * draw_logs
        top = float(logs.max())
        return top + math.log(float(np.exp(logs - top).mean())) >= limit

    low, high = -differing, float(pairs)
    if not reached(high):
        return math.inf
    while high - low > 1e-3 * max(1.0, sd * math.sqrt(pairs)):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
