"""How sure a count is: Wilson's interval for a share (Wilson 1927, J. Am. Stat. Assoc. 22)."""

from __future__ import annotations

from combee.algo.stats import wilson

Z = 1.645
"""Quantile of the standard normal: one-sided 95 %."""


def share_bounds(backing: int, votes: int) -> tuple[float, float]:
    """Return the (lower, upper) bound of the share ``backing / votes``, in [0, 1]; (0, 1) without votes.

    >>> [round(x, 3) for x in share_bounds(0, 3)]
    [0.0, 0.474]
    """
    return wilson(backing / votes if votes else 0.0, votes, Z)


def outvoted(helpful: int, harmful: int) -> bool:
    """Return whether the helpful share is below one half beyond doubt: its upper bound is under .5.

    >>> outvoted(0, 2), outvoted(0, 3), outvoted(5, 6)
    (False, True, False)
    """
    return harmful > helpful and share_bounds(helpful, helpful + harmful)[1] < 0.5
