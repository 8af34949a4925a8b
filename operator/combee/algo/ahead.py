"""Sequential learning with examples begun ahead: what one at a time costs without needless waiting.

The next examples are worked on with the artifact as it is shown now, side by side, while earlier ones
are still being learned from. They are applied in order. When what is shown changes, those begun with
the old text are begun again. So what is learned is, byte for byte, what learning one at a time learns;
only the time and the number of calls differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.errors import BugError


@dataclass(frozen=True, slots=True)
class Turn:
    """One example. Seconds are at least 0."""

    work_seconds: float
    """what needs nothing but the text that is shown: rollout, reflection, the aggregator's call."""
    then_seconds: float
    """what follows in order: verification, and the evaluation of heldOut."""
    changes: bool
    """whether the next example is shown another text."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """For each example: the seconds that all wait for its work, and how often that was begun."""

    waits: tuple[float, ...]
    begun: tuple[int, ...]


def begun_ahead(turns: Sequence[Turn], most: int) -> Ahead:
    """Return the waits and beginnings with at most ``most`` examples in work or waiting to be applied.

    The whole takes the sum of the waits and of the turns' ``then_seconds``. ``most`` 1 is one at a time.
    BugError for ``most`` < 1. Cost: O(turns + beginnings).

    >>> begun_ahead([Turn(2.0, 1.0, False), Turn(2.0, 1.0, True), Turn(2.0, 1.0, False)], 2)
    Ahead(waits=(2.0, 0.0, 2.0), begun=(1, 1, 2))
    """
    if most < 1:
        raise BugError(f"{most} examples cannot be worked on at once", where="begun_ahead")
    waits, begun = [], [0] * len(turns)
    ready = [math.inf] * len(turns)
    now, following = 0.0, 0
    for index, turn in enumerate(turns):
        for later in range(following, min(len(turns), index + most)):
            ready[later] = now + turns[later].work_seconds
            begun[later] += 1
        waits.append(max(0.0, ready[index] - now))
        now += waits[-1] + turn.then_seconds
        following = index + 1 if turn.changes else min(len(turns), index + most)
    return Ahead(tuple(waits), tuple(begun))
