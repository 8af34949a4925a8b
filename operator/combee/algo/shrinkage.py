"""The winner's curse: what a version that passed a gate probably gains, which is less than what was measured.

A version that passed was chosen for its measured gain, so that gain is too large on average, the more so the
less likely it was to pass. The corrected gain is the likeliest one *given that it passed*: the true gain with
which as much as was measured is expected of those that pass. It is never above the measured gain, grows with
it, and comes close to it far over the limit. Where passing was likely anyway it errs low, by less than the
measured gain errs high where passing was luck. It is never under the gain that the gate shows to be exceeded
(``floor``): just over the limit the likeliest gain would be a loss, which contradicts what was shown.

Source: conditional maximum likelihood, Zhong and Prentice, Biostatistics 9 (2008) 621-634; here with the
exact distribution of wins for right / wrong scores.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

from combee.errors import BugError

_HALVINGS = 60


def shrunk_gain(wins: int, losses: int, rows: int, *, least: int, floor: float = 0.0) -> float:
    """Return the gain per row, in [-1, 1], that a version with so many wins and losses probably has.

    Of the examples on which the two differ it passes with ``least`` wins or more. BugError for counts that do
    not pass. Source: the module's docstring. Cost: O(1).

    >>> [round(shrunk_gain(wins, 40 - wins, 150, least=27), 3) for wins in (27, 29, 32, 38)]
    [0.0, 0.092, 0.158, 0.24]
    """
    from scipy.special import bdtrc  # it takes a fifth of a second to import

    differ = wins + losses
    if min(wins, losses, least) < 0 or wins < least or not differ <= rows or rows < 1:
        raise BugError(f"{wins} wins, {losses} losses of {rows}, least {least}", where="shrunk_gain")
    raw = (wins - losses) / rows
    if not differ:
        return raw

    def expected(gain: float) -> float:
        share = min(1.0, max(0.0, (1 + gain * rows / differ) / 2))
        passes = float(bdtrc(least - 1, differ, share))
        # So unlikely that it underflows: those that pass are just over the limit.
        mean = differ * share * float(bdtrc(least - 2, differ - 1, share)) / passes if passes else least
        return (2 * mean - differ) / rows

    return _likeliest(expected, raw, floor)


def shrunk_mean(mean: float, spread: float, *, least: float, floor: float = 0.0) -> float:
    """Return the same for scores that are not right or wrong: a normal mean with the standard error
    ``spread`` > 0 that passes from ``least`` on.

    BugError for a mean that does not pass. Source: the module's docstring. Cost: O(1).

    >>> [round(shrunk_mean(mean, 0.02, least=0.04), 3) for mean in (0.041, 0.05, 0.08, 0.2)]
    [0.0, 0.017, 0.079, 0.2]
    """
    if not spread > 0 or mean < least:
        raise BugError(f"mean {mean}, spread {spread}, least {least}", where="shrunk_mean")
    normal = NormalDist()

    def expected(true: float) -> float:
        distance = (least - true) / spread
        passes = normal.cdf(-distance)
        return true + spread * normal.pdf(distance) / passes if passes else least

    return _likeliest(expected, mean, floor)


def _likeliest(expected: Callable[[float], float], measured: float, floor: float) -> float:
    """Return the gain from ``floor`` on with which ``measured`` is expected of those that pass."""
    low, high = min(floor, measured), measured
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if expected(middle) >= measured else (middle, high)
    return low
