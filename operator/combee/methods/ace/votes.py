"""How sure a count is: Wilson's interval for a share (Wilson 1927, J. Am. Stat. Assoc. 22)."""

from __future__ import annotations

from math import sqrt

Z = 1.645
"""Quantile of the standard normal: one-sided 95 %."""


def wilson(successes: int, votes: int, z: float = Z) -> tuple[float, float]:
    """Return the (lower, upper) bound of the share ``successes / votes``, in [0, 1]; (0, 1) without votes.

    >>> [round(x, 3) for x in wilson(0, 3)]
    [0.0, 0.474]
    """
    if votes <= 0:
        return 0.0, 1.0
    share = successes / votes
    spread = z * sqrt(share * (1 - share) / votes + z * z / (4 * votes * votes))
    middle = share + z * z / (2 * votes)
    scale = 1 + z * z / votes
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def outvoted(helpful: int, harmful: int) -> bool:
    """Return whether the helpful share is below one half beyond doubt: its upper bound is under .5.

    >>> outvoted(0, 2), outvoted(0, 3), outvoted(5, 6)
    (False, True, False)
    """
    return harmful > helpful and wilson(helpful, helpful + harmful)[1] < 0.5
