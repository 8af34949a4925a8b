"""Counts that are not known exactly before a run: from a least to a most. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high``, both included.

    >>> str(Range(1, 4).plus(Range.of(1000))), str(Range.of(7))
    ('1,001 to 1,004', '7')
    """

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"

    @classmethod
    def of(cls, count: int) -> Range:
        """A count that is known."""
        return cls(count, count)

    def plus(self, other: Range) -> Range:
        """The sum of two ranges."""
        return Range(self.low + other.low, self.high + other.high)


def total(ranges: Iterable[Range]) -> Range:
    """The sum of all.

    >>> total([Range(1, 2), Range(0, 5)])
    Range(low=1, high=7)
    """
    summed = Range(0, 0)
    for each in ranges:
        summed = summed.plus(each)
    return summed
