"""Do the hours of a canary tell the same? Sums by block of time, since traffic is not i.i.d.

A confidence sequence over pairs takes each pair's expected difference to be the same. On traffic it moves
with the hour, the incident, the release next door; then pairs of one block are more alike than pairs of two,
and an interval by pairs is too narrow. So the blocks tell, too: the sum and the number of pairs of each.

- *Steady*: do the sums of the blocks, one after the other, wander about as far from a straight line as chance
  makes pairs of one mean wander? The measure is that of Cramer and von Mises: the mean square of the bridge
  (partial sums minus their share of the whole) over pairs times variance. It is about 1/6 for pairs of one
  mean, beyond WANDER at one look in four, which costs such a canary some hours, and it grows with the
  number of pairs where there is a trend, a change of level or a regime. A trend that only begins is seen
  sooner by the slope of the differences over time; one downhill by more than DOWNHILL standard deviations,
  which is one look in five of pairs of one mean, is not steady, either.
- *Lower end of steady blocks*: the asymptotic confidence sequence of a normal mixture (Robbins 1970;
  Waudby-Smith et al. 2024, "Time-uniform central limit theory"), at ALPHA below, with the larger of the
  pairs' variance and of that between blocks.
- *Lower end of unsteady blocks*: mean - SELF_NORMALISED sqrt(bridge square) / pairs. What the sums wander is
  the yardstick itself, so no variance is estimated, and any weak dependence is allowed (Lobato 2001, "Testing
  that a dependent process is uncorrelated"). It holds at one look, when enough time has passed, and not at
  each.

Blocks are numbered from the beginning of the canary. Where there would be more than MOST_BLOCKS, neighbours
are joined two and two, as often as it takes: the result does not depend on the order of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from combee.algo.sequence import GRID
from combee.errors import BugError

ALPHA = 0.05
"""error probability of the lower end of steady blocks, over all looks."""
LEAST_BLOCKS = 8
"""Fewer blocks tell nothing about time."""
MOST_BLOCKS = 96
"""The most blocks of a tally: four days of hours."""
WANDER = 0.2094
"""The 75 % quantile of the Cramer-von Mises distribution (Anderson and Darling 1952, table 1)."""
DOWNHILL = 0.8
"""The most standard deviations by which steady blocks run downhill."""
SELF_NORMALISED = math.sqrt(99.44)
"""Beyond it lies the self-normalised mean with a probability of 0.5 % each way (Lobato 2001, table 1)."""
QUARTERS = 4
_NARROWEST = 4.0
"""The mixture's parameter, in blocks: its interval is narrowest between 12 and 100 blocks."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the blocks of a canary lie. Times are in seconds since 1970."""

    since: float
    block_seconds: float
    until: float

    def block(self, time: float | None) -> int | None:
        """Return the number of a time's block; None where it lies outside of the canary, or is not known.

        >>> grid = Grid(1000.0, 60.0, 4600.0)
        >>> [grid.block(time) for time in (999.0, 1000.0, 1060.0, 4600.0, None)]
        [None, 0, 1, None, None]
        """
        if time is None or not self.since <= time < self.until:
            return None
        return int((time - self.since) / self.block_seconds)


@dataclass(frozen=True, slots=True)
class Look:
    """What the blocks say."""

    count: int
    """the number of blocks with pairs."""
    low: float = -1.0
    """lower end of the mean difference."""
    steady: bool = True
    """whether the blocks wander no more than pairs of one mean do."""
    quarters: tuple[float, ...] = ()
    """the mean difference in each quarter of the blocks, in the order of time."""
    until_seconds: float = 0.0
    """when the last of them was closed, in seconds after the canary began."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """The sums of a tally by block. Created by ``Blocks()`` and ``plus``; read and written as JSON."""

    sums: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """block -> the number of its pairs, and the sum of their differences in units of 1 / GRID."""
    doublings: int = 0
    """how often neighbours were joined: a block lasts 2 ** doublings times the grid's."""

    def plus(self, pairs: Iterable[tuple[int, int]]) -> Blocks:
        """Return the blocks with more pairs, each given by its number on the grid and its difference."""
        sums, doublings = dict(self.sums), self.doublings
        for number, value in pairs:
            while number >> doublings >= MOST_BLOCKS:
                sums, doublings = _joined(sums), doublings + 1
            count, total = sums.get(number >> doublings, (0, 0))
            sums[number >> doublings] = (count + 1, total + value)
        return Blocks(sums, doublings)

    def seconds(self, block_seconds: float) -> float:
        """Return how long a block lasts on a grid of ``block_seconds``."""
        return block_seconds * 2.0**self.doublings

    def look(self, block_seconds: float, elapsed_seconds: float, variance: float) -> Look:
        """Return what the closed blocks say after ``elapsed_seconds``. ``variance``: that of all differences.

        A block is closed once as much time again as it lasts has passed: a difference that is judged later
        than others must not be missing. Cost: O(blocks).

        >>> Blocks({n: (100, -100 * (n > 11)) for n in range(24)}).look(3600.0, 90_000.0, 0.01).steady
        False
        """
        length = self.seconds(block_seconds)
        closed = int(elapsed_seconds / length) - 1
        numbers = sorted(number for number in self.sums if number < closed)
        if len(numbers) < LEAST_BLOCKS:
            return Look(len(numbers))
        counts, totals = np.array([self.sums[number] for number in numbers], dtype=np.float64).T
        return replace(_look(counts, totals / GRID, variance), until_seconds=(numbers[-1] + 2) * length)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; equal blocks give equal data."""
        return {
            "doublings": self.doublings,
            "sums": {str(number): list(self.sums[number]) for number in sorted(self.sums)},
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Blocks:
        """Read what ``to_json`` wrote. Raises KeyError, TypeError, ValueError or BugError otherwise."""
        sums = {int(number): (int(count), int(total)) for number, (count, total) in raw["sums"].items()}
        blocks = cls(sums, int(raw["doublings"]))
        possible = (
            0 <= number < MOST_BLOCKS and count > 0 and abs(total) <= GRID * count
            for number, (count, total) in sums.items()
        )
        if not all(possible) or not 0 <= blocks.doublings < 64:
            raise BugError("blocks that cannot be", where="Blocks")
        return blocks


def _joined(sums: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Return blocks twice as long."""
    joined: dict[int, tuple[int, int]] = {}
    for number, (count, total) in sums.items():
        before, sum_before = joined.get(number >> 1, (0, 0))
        joined[number >> 1] = (before + count, sum_before + total)
    return joined


def _look(counts: Any, totals: Any, variance: float) -> Look:
    blocks, pairs = len(counts), float(counts.sum())
    mean = float(totals.sum()) / pairs
    deviations = totals - mean * counts
    wander = float(np.cumsum(deviations) ** 2 @ counts) / pairs
    times = np.cumsum(counts) - counts / 2 - pairs / 2
    slope, spread = float(deviations @ times), math.sqrt(variance * float(counts @ times**2))
    steady = wander <= max(WANDER * pairs * variance, 1e-9) and slope >= -max(DOWNHILL * spread, 1e-9 * pairs)
    if steady:
        between = float((deviations**2 / counts).sum()) / (blocks - 1)
        growth = 1 + blocks / _NARROWEST
        width = math.sqrt(growth / (growth - 1) * math.log(growth / (2 * ALPHA) ** 2))
        width *= math.sqrt(max(variance, between) / pairs)
    else:
        width = SELF_NORMALISED * math.sqrt(wander) / pairs
    parts = zip(np.array_split(totals, QUARTERS), np.array_split(counts, QUARTERS), strict=True)
    quarters = tuple(float(total.sum() / count.sum()) for total, count in parts)
    return Look(blocks, mean - width, steady, quarters)
