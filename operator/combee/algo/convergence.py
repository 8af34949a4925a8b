"""Whether serial learning converges: a plateau of held-out scores, where it begins, and whether it lies above
the start; and whether any playbook could help at all.

The curve is read as a line that rises and then stays level (a hinge). Where it becomes level is what is
likeliest by all its points, not by the best fit alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from combee.algo.stats import score_difference, wilson

Z = 1.96
"""Standard deviations to either side of a 95 % interval."""
Z_RISE = 1.645
"""Of one side, for what has risen so far."""
Z_HOPE = 0.5
"""Of one side at 31 %, for what seems to rise where the headroom test says that it can."""
SURE = 0.98
"""A plateau is believed from this probability on that it began ``patience`` scores ago or earlier."""
_SCATTER = tuple(2 ** (-step / 2) for step in range(9))
"""Scores of the same rows scatter less than scores of different ones, nobody knows by how much: shares of the
variance of different rows that are alike likely."""
TRIED_WRONG = 16
"""Rows answered wrong that the headroom test answers again at a time, each with two lessons: until they show
something."""
_Z_LAST = (1.645, 1.678, 1.71)
"""Of one side at the last of one, two or three looks at the rows tried, so that all looks together err in 5 %
(O'Brien and Fleming 1979, Biometrics 35). A look at a share of them takes one over the root of it as much, at
most thrice."""
CONFIDENCE = 0.9
"""Of both ends of an interval, one of which is used: what is said to be out of reach is so at 5 %."""

Verdict = Literal["Plateau", "Rising", "NotAbove", "Inconclusive"]


@dataclass(frozen=True, slots=True)
class Point:
    """A held-out score of serial learning. ``at``: what learning had taken by then, in rollouts or examples;
    0 is the start."""

    at: int
    score: float
    n: int
    """the rows it was scored on."""
    error: float | None = None
    """the standard error of the score minus that of the start, where both are of the same rows, and 0 where
    agents are shown the same text; None: they are reckoned as of different rows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a curve shows."""

    verdict: Verdict
    """Plateau: level, above the start. Rising: above the start, not level yet. NotAbove: so little above that
    no gain worth having can come. Inconclusive: none of these is shown."""
    at: int
    """where the plateau begins, or where the curve ends."""
    start: float
    level: float
    low: float
    high: float
    """the 95 % interval of the level, as of one evaluation."""
    gain_low: float
    """the lower end of the interval of the level minus the start; of one side where there is no plateau."""

    @property
    def gain(self) -> float:
        """The level minus the start."""
        return self.level - self.start


def read_curve(points: Sequence[Point], patience: int, due: float = 0.0) -> Reading:
    """Return what the points show, of which the first is the start. ``patience``: the scores that a plateau
    needs after the one that it begins with. ``due``: the least gain by now with which a gain worth having can
    still come; 0: however little there is, it may come.

    ValueError for no points, or points that do not come in the order of ``at``. Cost: O(n^2).

    >>> def curve(*scores):
    ...     return [Point(10 * place, score, 400) for place, score in enumerate(scores)]
    >>> read_curve(curve(0.5, 0.6, 0.7, 0.8, 0.8, 0.8, 0.8), patience=3).at
    30
    >>> flat = curve(0.5, 0.51, 0.5, 0.5)
    >>> read_curve(curve(0.5, 0.6, 0.7, 0.8), 3).verdict, read_curve(flat, 3).verdict
    ('Rising', 'Inconclusive')
    >>> read_curve(flat, 3, due=0.1).verdict
    'NotAbove'
    """
    if not points or any(a.at >= b.at for a, b in pairwise(points)):
        raise ValueError("a curve has points in ascending order")
    knee = _knee(points, patience)
    if knee is not None and (level := _of_tail(points, knee, Z, "Plateau")).gain_low > 0:
        return level
    late, at = _late(points, Z_RISE), points[-1].at
    if late.gain_low > 0:
        return _with(late, "Rising", at)
    most = 2 * late.gain - late.gain_low
    return _with(late, "NotAbove" if len(points) > 1 and most < due else "Inconclusive", at)


def due_by(worth: float, examples: int, of: int) -> float:
    """Return the least gain that learning from ``examples`` of ``of`` shows if it comes to gain ``worth``:
    its share of the way, for a curve that rises ever more slowly.

    >>> due_by(0.1, 250, 500), due_by(0.1, 900, 500)
    (0.05, 0.1)
    """
    return worth * min(1.0, examples / max(1, of))


def promising(points: Sequence[Point], headroom: Headroom) -> bool:
    """Return whether a curve deserves more than a first look: it has risen, or, where lessons are shown to
    help, it seems to.

    >>> points = [Point(0, 0.5, 40), Point(80, 0.57, 40, error=0.1)]
    >>> [promising(points, Headroom(30, 10, 10, own, 1)) for own in (7, 1)]
    [True, False]
    """
    return _late(points, Z_HOPE if headroom.shown else Z_RISE).gain_low > 0


def _late(points: Sequence[Point], z: float) -> Reading:
    """Return the reading whose level is that of the later half of the points."""
    return _of_tail(points, len(points) // 2, z, "Rising")


def _with(reading: Reading, verdict: Verdict, at: int) -> Reading:
    return replace(reading, verdict=verdict, at=at)


def _of_tail(points: Sequence[Point], first: int, z: float, verdict: Verdict) -> Reading:
    """Return the reading whose level is the mean of the points from ``first`` on. Its uncertainty is that of
    one evaluation: they are mostly of the same rows."""
    start, tail = points[0], points[first:]
    rows = sum(point.n for point in tail)
    level = sum(point.score * point.n for point in tail) / rows if rows else start.score
    n = max(point.n for point in tail)
    low, high = wilson(level, n, Z)
    known = [point.error for point in tail if point.error is not None]
    if len(known) == len(tail) and first:
        error = sum(known) / len(known)
    else:
        error = math.sqrt(_variance(start.score, start.n) + _variance(level, n))
    gain_low = level - start.score - z * error if first else 0.0
    return Reading(verdict, points[first].at, start.score, level, low, high, gain_low)


def paired_error(differences: Sequence[float]) -> float:
    """Return the standard error of the mean of differences on the same rows. Two rows more are reckoned as
    different, one either way, since few rows that differ prove little; 1 without rows.

    >>> paired_error([1.0, 0.0, -1.0, 0.0])
    0.5
    """
    rows = len(differences)
    return math.sqrt(sum(value * value for value in differences) + 2) / rows if rows else 1.0


def _variance(score: float, n: int) -> float:
    """Return the variance of a mean score; never 0, since few rows of one kind prove little."""
    smoothed = (score * n + 1) / (n + 2)
    return smoothed * (1 - smoothed) / max(1, n)


def _knee(points: Sequence[Point], patience: int) -> int | None:
    """Return the place of the point at which the curve becomes level; None where it is not shown to. Of the
    places that ``patience`` scores follow it is the one within one place of which the knee is likeliest."""
    if len(points) < patience + 2:
        return None
    likely, last = knee_chances(points), len(points) - 1 - patience
    if sum(likely[:last]) < SURE:
        return None
    near = [sum(likely[max(0, place - 2) : place + 1]) for place in range(1, last + 1)]
    # Of places as good as each other it is the likeliest.
    return max(range(1, last + 1), key=lambda place: (round(near[place - 1], 9), likely[place - 1]))


def knee_chances(points: Sequence[Point]) -> list[float]:
    """Return the probability of each point but the first that the curve is level from there on; the last one
    stands for "not level yet". The line rises from a start to a level, both unknown and alike likely before;
    the points' scatter is integrated over, at most that of scores of different rows.

    >>> def curve(*scores):
    ...     return [Point(10 * place, score, 400) for place, score in enumerate(scores)]
    >>> [round(chance, 2) for chance in knee_chances(curve(0.5, 0.6, 0.7, 0.8, 0.8, 0.8, 0.8))]
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    """
    rows = sum(point.n for point in points)
    mean = sum(point.score * point.n for point in points) / rows if rows else 0.0
    whole = _variance(mean, rows) * max(1, rows)
    fits = [_fit(points, place, mean, rows) for place in range(1, len(points))]
    logs = [[_log_likelihood(fit, share * whole, len(points)) for share in _SCATTER] for fit in fits]
    most = max(max(of_place) for of_place in logs)
    weights = [sum(math.exp(value - most) for value in of_place) for of_place in logs]
    return [weight / sum(weights) for weight in weights]


def _fit(points: Sequence[Point], knee: int, mean: float, rows: int) -> tuple[float, float, float]:
    """Return, of the line that rises to ``knee`` and is level from there on, fitted by least squares: the sum
    of squares left, the height it rises, and the weight that this height is known with."""
    first, end = points[0].at, points[knee].at
    ways = [min(1.0, (point.at - first) / (end - first)) for point in points]
    middle = sum(way * point.n for way, point in zip(ways, points, strict=True)) / max(1, rows)
    pairs = [(way - middle, point.score - mean, point.n) for way, point in zip(ways, points, strict=True)]
    weight = sum(n * x * x for x, _, n in pairs)
    height = sum(n * x * y for x, y, n in pairs) / weight if weight else 0.0
    return sum(n * (y - height * x) ** 2 for x, y, n in pairs), height, weight


def _log_likelihood(fit: tuple[float, float, float], variance: float, points: int) -> float:
    """Return the log of how likely the points are, with their start and a height above 0 integrated over."""
    left, height, weight = fit
    if not weight:
        return 0.0
    rises = 0.5 * math.erfc(-height * math.sqrt(weight / (2 * variance)))
    spread = (points - 2) * math.log(variance) + left / variance + math.log(weight)
    return math.log(max(rises, 1e-300)) - spread / 2


@dataclass(frozen=True, slots=True)
class Headroom:
    """What a row's own lesson, made with its answer shown, does for the row, against another row's lesson."""

    rows: int
    """answered without a lesson."""
    wrong: int
    """of these; each was answered again twice."""
    tried: int
    """of the wrong: those with a lesson of their own and one of another."""
    own: int
    """of the tried: right with its own lesson."""
    other: int
    """of the tried: right with another row's lesson, which chance and mere length of the text do too."""
    both: int = 0
    """of the tried: right with either; 0 of an earlier version, which did not count them."""

    @property
    def gain(self) -> float:
        """What lessons that reach every row could add to the score, as estimated."""
        if not self.rows or not self.tried:
            return 0.0
        return self.wrong / self.rows * (self.own - self.other) / self.tried

    @property
    def most(self) -> float:
        """The most that they could add, at 5 % of all looks together: Tango's interval of the rows that the
        tried ones stand for, where the others gain nothing.

        >>> round(Headroom(48, 0, 0, 0, 0).most, 2), round(Headroom(48, 18, 16, 1, 1, 1).most, 2)
        (0.05, 0.07)
        >>> round(Headroom(48, 18, 16, 9, 1).most, 2), Headroom(48, 18, 0, 0, 0).most
        (0.32, 1.0)
        """
        if self.wrong and not self.tried:
            return 1.0
        rows = round(self.rows * self.tried / self.wrong) if self.wrong else self.rows
        wins, losses = self.own - self.both, self.other - self.both
        return score_difference(wins, losses, max(rows, wins + losses), 1 - math.erfc(self._z / 2**0.5))[1]

    @property
    def _z(self) -> float:
        """Standard deviations of one side for what is shown by the rows tried so far."""
        looks = min(len(_Z_LAST), max(1, math.ceil(self.wrong / TRIED_WRONG)))
        return _Z_LAST[looks - 1] * min(3.0, math.sqrt(self.wrong / self.tried if self.tried else 1.0))

    @property
    def shown(self) -> bool:
        """Whether lessons are shown to help: chance would seldom make so many more right with their own.

        >>> Headroom(30, 9, 9, 7, 1).shown, Headroom(30, 9, 9, 3, 2).shown
        (True, False)
        """
        return self.own - self.other >= self._z * math.sqrt(max(1, self.own + self.other))

    def none(self, worth: float) -> bool:
        """Return whether it is shown that no playbook gains ``worth``. Few rows show nothing, and where
        lessons are shown to help there is something to learn, however little.

        >>> [Headroom(48, 18, 16, own, 1).none(0.1) for own in (0, 1, 4)]
        [True, True, False]
        >>> Headroom(48, 18, 3, 0, 0).none(0.1), Headroom(48, 0, 0, 0, 0).none(0.01)
        (False, False)
        """
        return not self.shown and self.most < worth
