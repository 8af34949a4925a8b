"""A generator whose whole state is one number, so that an artifact can hold it and go on exactly.

Draw n is named by (seed, its name, n): what is drawn next depends on nothing but how much was drawn before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from combee.algo.seeds import unit
from combee.errors import BugError

T = TypeVar("T")


@dataclass(slots=True)
class Draws:
    """A generator whose state, ``drawn``, counts its draws. gepa's selection asks it only for ``choice``."""

    seed: int
    drawn: int = 0
    name: str = "gepa"

    def unit(self) -> float:
        """Return the next number, uniform in [0, 1)."""
        value = unit(self.seed, self.name, self.drawn)
        self.drawn += 1
        return value

    def choice(self, items: Sequence[T]) -> T:
        """Return one of ``items``, each as likely; one draw. Raises BugError when there is none.

        >>> Draws(7).choice(["a"])
        'a'
        """
        if not items:
            raise BugError("a draw from nothing", where="gepa")
        return items[int(self.unit() * len(items))]

    def weighted(self, items: Sequence[T], weights: Sequence[float]) -> T:
        """Return one of ``items``, as likely as its weight; each alike when all weigh nothing. One draw."""
        total = sum(weights)
        if total <= 0 or len(items) != len(weights):
            return self.choice(items)
        place = self.unit() * total
        for item, weight in zip(items, weights, strict=True):
            place -= weight
            if place < 0:
                return item
        return items[-1]
