"""Where the labels of a plot's points stand: beside their own point, and on nobody else's. Pure.

Lengths are those of the drawing (pixels); up is positive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_DIRECTIONS = (45, 225, 135, 315, 270, 90, 0, 180)
"""degrees, tried in this order."""
_REACHES = (1.0, 1.7, 2.5)
"""distances from the point, in heights of a text beyond its own half."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle: the middle and the size."""

    x: float
    y: float
    width: float
    height: float

    def shared(self, other: Box) -> float:
        """The area that both cover."""
        wide = (self.width + other.width) / 2 - abs(self.x - other.x)
        high = (self.height + other.height) / 2 - abs(self.y - other.y)
        return max(0.0, wide) * max(0.0, high)


def place(anchors: Sequence[Box], taken: Sequence[Box]) -> list[tuple[float, float]]:
    """For each label, (right, up) from its point to its own middle. ``anchors``: a label's point and its text's size.

    One after the other each takes the first place, nearest ring first, that covers nothing ``taken`` (points,
    intervals) and no earlier label; where there is none, the one that covers least. Cost: O(n (n + taken)).

    >>> place([Box(0, 0, 4, 2)], [Box(0, 0, 2, 2)])
    [(3.414, 2.414)]
    """
    busy, found = list(taken), []
    for anchor in anchors:
        tried = [(right, up) for reach in _REACHES for right, up in _ring(anchor, reach)]
        boxes = [Box(anchor.x + right, anchor.y + up, anchor.width, anchor.height) for right, up in tried]
        covered = [round(sum(box.shared(other) for other in busy), 3) for box in boxes]
        best = covered.index(min(covered))
        busy.append(boxes[best])
        found.append(tried[best])
    return found


def _ring(anchor: Box, reach: float) -> list[tuple[float, float]]:
    out = []
    for degrees in _DIRECTIONS:
        right, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        away = reach * anchor.height
        out.append(
            (
                round(right * away + _sign(right) * anchor.width / 2, 3),
                round(up * away + _sign(up) * anchor.height / 2, 3),
            )
        )
    return out


def _sign(value: float) -> float:
    return 0.0 if abs(value) < 1e-9 else math.copysign(1.0, value)
