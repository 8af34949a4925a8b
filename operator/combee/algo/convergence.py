"""Whether serial learning converges: a plateau of held-out scores, where it begins, and whether it lies above
the start; and whether any playbook could help at all.

The curve is read as a line that rises and then stays level (a hinge), fitted by weighted least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from combee.algo.stats import wilson

Z = 1.96
"""Standard deviations to either side of a 95 % interval."""
Z_RISE = 1.645
"""Of one side, for what has risen so far."""
Z_HOPE = 0.5
"""Of one side at 31 %, for what seems to rise where the headroom test says that it can."""
STILL_RISING = 10.83
"""A plateau is believed where a line that rises to the end fits worse by this much in chi squared, with one
degree of freedom: 0.1 %, since a curve is read after every evaluation."""
SAME_ROWS = 1.5
"""Scores of the same rows scatter less than scores of different ones. Then the scatter about the fit counts,
this many times over, since it is known from few points."""
LEAST_WRONG = 3
"""Wrong rows from which on it can be said that no lesson helps."""

Verdict = Literal["Plateau", "Rising", "NotAbove"]


@dataclass(frozen=True, slots=True)
class Point:
    """A held-out score of serial learning. ``at``: what learning had taken by then, in rollouts or examples;
    0 is the start."""

    at: int
    score: float
    n: int
    """the rows it was scored on."""
    error: float | None = None
    """the standard error of the score minus that of the start, where both are of the same rows; None: they
    are reckoned as of different rows."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a curve shows."""

    verdict: Verdict
    """Plateau: level, above the start. Rising: above the start, not level yet. NotAbove: not shown above."""
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


def read_curve(points: Sequence[Point], patience: int) -> Reading:
    """Return what the points show, of which the first is the start. ``patience``: the scores that a plateau
    needs after the one that it begins with.

    ValueError for no points, or points that do not come in the order of ``at``. Cost: O(n^2).

    >>> def curve(*scores):
    ...     return [Point(10 * place, score, 400) for place, score in enumerate(scores)]
    >>> read_curve(curve(0.5, 0.6, 0.7, 0.8, 0.8, 0.8, 0.8), patience=3).at
    30
    >>> [read_curve(curve(*scores), 3).verdict for scores in ((0.5, 0.6, 0.7, 0.8), (0.5, 0.51, 0.5, 0.5))]
    ['Rising', 'NotAbove']
    """
    if not points or any(a.at >= b.at for a, b in pairwise(points)):
        raise ValueError("a curve has points in ascending order")
    knee = _knee(points, patience)
    if knee is not None and (level := _of_tail(points, knee, Z, "Plateau")).gain_low > 0:
        return level
    late, at = _late(points, Z_RISE), points[-1].at
    if knee is not None or late.gain_low <= 0:
        return _with(late, "NotAbove", at)
    return _with(late, "Rising", at)


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
    """Return the place of the point at which the curve becomes level; None where it is not shown to."""
    if len(points) < patience + 2:
        return None
    misfits = [_misfit(points, place) for place in range(1, len(points))]
    best = min(range(len(misfits)), key=misfits.__getitem__)
    tail = points[best + 1 :]
    spread = _variance(sum(point.score for point in tail) / len(tail), 1)
    if (freedom := len(points) - 3) > 2:
        spread = min(spread, SAME_ROWS * misfits[best] / freedom)
    if len(tail) - 1 < patience or misfits[-1] - misfits[best] < STILL_RISING * spread:
        return None
    return best + 1


def _misfit(points: Sequence[Point], knee: int) -> float:
    """Return the least sum of squares, by rows, of a line that never falls and is level from ``knee`` on."""
    ats = [float(min(point.at, points[knee].at)) for point in points]
    rows = sum(point.n for point in points)
    at = sum(a * point.n for a, point in zip(ats, points, strict=True)) / rows
    score = sum(point.score * point.n for point in points) / rows
    spread = sum(point.n * (a - at) ** 2 for a, point in zip(ats, points, strict=True))
    both = sum(point.n * (a - at) * (point.score - score) for a, point in zip(ats, points, strict=True))
    slope = max(0.0, both / spread)
    return sum(
        point.n * (point.score - score - slope * (a - at)) ** 2 for a, point in zip(ats, points, strict=True)
    )


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

    @property
    def gain(self) -> float:
        """What lessons that reach every row could add to the score, as estimated."""
        if not self.rows or not self.tried:
            return 0.0
        return self.wrong / self.rows * (self.own - self.other) / self.tried

    @property
    def shown(self) -> bool:
        """Whether lessons are shown to help: chance would seldom make so many more right with their own.

        >>> Headroom(30, 9, 9, 7, 1).shown, Headroom(30, 9, 9, 3, 2).shown
        (True, False)
        """
        return self.own - self.other >= Z_RISE * math.sqrt(max(1, self.own + self.other))

    @property
    def none(self) -> bool:
        """Whether it is shown that no playbook helps: nothing is wrong, or no lesson does more than another
        row's. Too few wrong rows show nothing.

        >>> Headroom(30, 0, 0, 0, 0).none, Headroom(30, 9, 8, 1, 1).none, Headroom(30, 9, 8, 2, 1).none
        (True, True, False)
        >>> Headroom(30, 2, 2, 0, 0).none
        False
        """
        if not self.wrong:
            return self.rows > 0
        return self.tried >= LEAST_WRONG and self.own <= self.other
