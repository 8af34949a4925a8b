"""The history of a confidence sequence, thinned: few looks that still draw the same curve.

Each look is a point of three curves over the number of pairs: the mean and both ends of its interval. When
there are more than MAX_LOOKS, the look is removed that its neighbours describe best: the one whose three
values lie nearest to the straight lines between theirs. The first and the last look always stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_LOOKS = 60
"""most looks of one curve: each takes some forty bytes in a status."""
_DIGITS = 5


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a comparison. Differences are in [-1, 1]."""

    seconds: int
    """seconds since the comparison began."""
    pairs: int
    """pairs received so far."""
    mean: float
    low: float
    high: float

    def to_json(self) -> list[Any]:
        """Return five numbers; differences are rounded to 1e-5."""
        return [
            self.seconds,
            self.pairs,
            *(round(value, _DIGITS) for value in (self.mean, self.low, self.high)),
        ]

    @classmethod
    def from_json(cls, raw: Sequence[Any]) -> Look:
        """Read what ``to_json`` wrote. Raises ValueError or TypeError for anything else."""
        seconds, pairs, mean, low, high = raw
        look = cls(int(seconds), int(pairs), float(mean), float(low), float(high))
        if not -1 <= look.low <= look.mean <= look.high <= 1 or look.pairs < 1:
            raise ValueError("a look that cannot be")
        return look


def with_look(looks: tuple[Look, ...], new: Look, most: int = MAX_LOOKS) -> tuple[Look, ...]:
    """Return ``looks``, ascending in pairs, with one more, thinned to ``most`` (at least 3). Returns
    ``looks`` unchanged when no pair has come since the last one. Cost: O(most).

    >>> looks = (Look(60, 10, 0.0, -0.5, 0.5), Look(120, 20, 0.0, -0.4, 0.4), Look(180, 30, 0.0, -0.3, 0.3))
    >>> [look.pairs for look in with_look(looks, Look(240, 40, 0.0, -0.1, 0.1), most=3)]
    [10, 30, 40]
    """
    if new.pairs < 1 or (looks and new.pairs <= looks[-1].pairs):
        return looks
    extended = (*looks, new)
    if len(extended) <= most:
        return extended
    removable = min(range(1, len(extended) - 1), key=lambda index: _bend(*extended[index - 1 : index + 2]))
    return extended[:removable] + extended[removable + 1 :]


def _bend(before: Look, look: Look, after: Look) -> float:
    """Return the largest distance of a look from the lines between its neighbours."""
    share = (look.pairs - before.pairs) / (after.pairs - before.pairs)

    def off(start: float, value: float, end: float) -> float:
        return abs(value - (start + share * (end - start)))

    return max(
        off(before.mean, look.mean, after.mean),
        off(before.low, look.low, after.low),
        off(before.high, look.high, after.high),
    )
