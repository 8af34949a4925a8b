"""Places the labels of a plot's points beside their own point, and off all others. Pure.

Lengths are in pixels of the drawing; up is positive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_DIRECTIONS = (45, 225, 135, 315, 270, 90, 0, 180)
"""The directions in degrees, tried in this order."""
_REACHES = (1.0, 1.7, 2.5)
"""The distances from the point, in text heights beyond half the text's size."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, by its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    def shared(self, other: Box) -> float:
        """Return the area that both cover."""
        wide = (self.width + other.width) / 2 - abs(self.x - other.x)
        high = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(0.0, wide) * max(0.0, high)


def place(anchors: Sequence[Box], occupied: Sequence[Box]) -> list[tuple[float, float]]:
    """Return for each label the offset (right, up) from its point to its middle. ``anchors``: each label's
    point and the size of its text.

    Each label in turn takes the first place, nearest ring first, that covers nothing ``occupied`` (points,
    intervals) and no earlier label; where there is none, the place that covers least.

    >>> place([Box(0, 0, 4, 2)], [Box(0, 0, 2, 2)])
    [(3.414, 2.414)]
    """
    obstacles, offsets = list(occupied), []
    for anchor in anchors:
        choices = [(right, up) for reach in _REACHES for right, up in _ring(anchor, reach)]
        boxes = [Box(anchor.x + right, anchor.y + up, anchor.width, anchor.height) for right, up in choices]
        covered = [round(sum(box.shared(obstacle) for obstacle in obstacles), 3) for box in boxes]
        best = covered.index(min(covered))
        obstacles.append(boxes[best])
        offsets.append(choices[best])
    return offsets


def _ring(anchor: Box, reach: float) -> list[tuple[float, float]]:
    ring, away = [], reach * anchor.height
    for degrees in _DIRECTIONS:
        right, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        x, y = right * away + _sign(right) * anchor.width / 2, up * away + _sign(up) * anchor.height / 2
        ring.append((round(x, 3), round(y, 3)))
    return ring


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)
