"""How busy a run's calls keep its slots, what more parallelism could bring, and which shape of it fits.

Source: the strategist's brief: candidates side by side within a task; tasks side by side where one is too
small for the hardware; both where a single task uses less than half of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ShapeName = Literal["Candidate", "Task", "Hybrid"]
"""Candidate: the calls of one run side by side. Task: several runs side by side, since no batch of this one
is large enough. Hybrid: both."""
SHAPES: tuple[ShapeName, ...] = ("Candidate", "Task", "Hybrid")
LEAST_UTILISATION = 0.5
"""Below this share of busy slots a single run does not use its hardware."""


@dataclass(frozen=True, slots=True)
class Load:
    """What calls took: one after the other, on as many slots as there are calls, and list-scheduled on the
    run's slots. So busy >= scheduled >= path."""

    busy_seconds: float = 0.0
    path_seconds: float = 0.0
    scheduled_seconds: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(
            self.busy_seconds + other.busy_seconds,
            self.path_seconds + other.path_seconds,
            self.scheduled_seconds + other.scheduled_seconds,
        )

    @property
    def in_flight(self) -> float:
        """The calls in flight on average, which is how many times as fast as one after the other they were.

        >>> Load(busy_seconds=120.0, path_seconds=4.0, scheduled_seconds=6.0).in_flight
        20.0
        """
        return self.busy_seconds / self.scheduled_seconds if self.scheduled_seconds > 0 else 0.0

    @property
    def ceiling(self) -> float:
        """How many times as fast as one after the other they can be on any number of slots (Amdahl): the work
        over the longest chain of calls that wait for each other.

        >>> Load(busy_seconds=120.0, path_seconds=4.0, scheduled_seconds=6.0).ceiling
        30.0
        """
        return self.busy_seconds / self.path_seconds if self.path_seconds > 0 else 0.0

    def utilisation(self, slots: int) -> float:
        """Return the share of ``slots`` that was busy, at most 1.

        >>> Load(busy_seconds=120.0, path_seconds=4.0, scheduled_seconds=6.0).utilisation(64)
        0.3125
        """
        return min(1.0, self.in_flight / slots)


def shape_for(utilisation: float, widest: int, slots: int) -> ShapeName:
    """Return the shape for a run that keeps a share ``utilisation`` of its ``slots`` busy. ``widest``: how
    many examples it could work on at once at most, in the largest batch that its data allows.

    >>> shape_for(0.6, 250, 64), shape_for(0.3, 250, 64), shape_for(0.3, 20, 64)
    ('Candidate', 'Hybrid', 'Task')
    """
    if utilisation >= LEAST_UTILISATION:
        return "Candidate"
    return "Task" if widest < LEAST_UTILISATION * slots else "Hybrid"


def share(total: int, parts: int, index: int) -> int:
    """Return the share of part ``index`` of ``parts`` in ``total``. All shares add up to ``total``, but none
    is below 1.

    >>> [share(64, 3, index) for index in range(3)], [share(2, 3, index) for index in range(3)]
    ([22, 21, 21], [1, 1, 1])
    """
    return max(1, total // parts + (index < total % parts))
