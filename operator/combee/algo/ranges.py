"""Counts that are not known exactly before a run: from a least to a most. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """From ``low`` to ``high``, both included.

    >>> str(Range(1, 4) + Range.of(1000)), str(Range.of(7))
    ('1,001 to 1,004', '7')
    >>> sum([Range(1, 2), Range(0, 5)], NONE)
    Range(low=1, high=7)
    """

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"

    @classmethod
    def of(cls, count: int) -> Range:
        """A count that is known."""
        return cls(count, count)

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


NONE = Range(0, 0)
