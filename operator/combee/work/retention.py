"""What the reduce kept, by level and by rarity, counted in *distinct* lessons.

A lesson is carried when an update cites the reflection it comes from and keeps its anchors. A
distinct lesson (a cluster of lessons that say the same) is carried when one of its lessons is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from operator import add
from typing import Any

from combee.algo.components import similarity_labels
from combee.algo.retransmit import lost_lessons
from combee.records import Lesson, Reflection

RARITY = ((1, 1, "1"), (2, 4, "2-4"), (5, 10**9, "5+"))
"""Classes by the number of reflections that state a lesson: least, most, label."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the reduce, with the distinct lessons there are and those that are carried so far."""

    level: str
    calls: int
    inputs: int
    lessons: int
    carried: int


def summed(levels: Iterable[Level]) -> list[Level]:
    """Add up the levels of several parts by name, in order of first appearance."""
    by_name: dict[str, Level] = {}
    for level in levels:
        total = by_name.get(level.level, Level(level.level, 0, 0, 0, 0))
        by_name[level.level] = Level(level.level, *map(add, astuple(total)[1:], astuple(level)[1:]))
    return list(by_name.values())


@dataclass(frozen=True, slots=True)
class Lessons:
    """All lessons of some reflections and which distinct one each states. ``carried``: ids of lessons."""

    reflections: Sequence[Reflection]
    lessons: Sequence[Lesson]
    clusters: Sequence[int]
    """the number of the distinct lesson that each lesson states."""

    @classmethod
    def of(cls, reflections: Sequence[Reflection]) -> Lessons:
        """Return the lessons of these reflections."""
        lessons = [lesson for reflection in reflections for lesson in reflection.lessons]
        # Lessons are one if numbers, identifiers and condition match and wordings share 60 %.
        clusters = similarity_labels([lesson.text for lesson in lessons], same_condition=True)
        return cls(reflections, lessons, clusters)

    def to_send_again(self, carried: Collection[str]) -> list[int]:
        """Return the positions of the reflections that state a lesson which was lost; in order, and without
        those whose statement of it was carried."""
        lost = lost_lessons(self.clusters, [lesson.id in carried for lesson in self.lessons])
        ids = {
            lesson.id
            for lesson, cluster in zip(self.lessons, self.clusters, strict=True)
            if cluster in lost and lesson.id not in carried
        }
        return [
            position
            for position, reflection in enumerate(self.reflections)
            if any(lesson.id in ids for lesson in reflection.lessons)
        ]

    def level(self, name: str, calls: int, inputs: int, carried: Collection[str]) -> Level:
        """Count the distinct lessons, and how many of them are carried."""
        distinct = self._distinct(carried)
        return Level(name, calls, inputs, len(distinct), sum(is_carried for _, is_carried in distinct))

    def by_rarity(self, carried: Collection[str]) -> list[dict[str, Any]]:
        """Count distinct lessons and those that are carried, by how many reflections state them."""
        distinct = self._distinct(carried)
        rows = []
        for low, high, label in RARITY:
            within = [is_carried for count, is_carried in distinct if low <= count <= high]
            rows.append({"copies": label, "distinct": len(within), "carried": sum(within)})
        return rows

    def _distinct(self, carried: Collection[str]) -> list[tuple[int, bool]]:
        """Return (how often stated, carried?) for each distinct lesson."""
        stated = Counter(self.clusters)
        clusters = zip(self.lessons, self.clusters, strict=True)
        kept = {cluster for lesson, cluster in clusters if lesson.id in carried}
        return [(times, cluster in kept) for cluster, times in stated.items()]
