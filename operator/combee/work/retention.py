"""What the reduce kept, by level and by rarity, counted in *distinct* lessons.

A lesson is carried when an update cites the reflection it comes from and keeps its anchors; a
distinct lesson (a cluster of lessons that say the same) when one of its lessons is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from combee.algo.retention import lesson_clusters
from combee.methods.base import Method
from combee.methods.protocol import Update
from combee.records import Reflection

RARITY = ((1, 1, "1"), (2, 4, "2-4"), (5, 10**9, "5+"))
"""Classes of how many reflections state a lesson."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the reduce: distinct lessons in, distinct lessons carried so far."""

    level: str
    calls: int
    inputs: int
    lessons: int
    carried: int

    def as_dict(self) -> dict[str, Any]:
        """For the record."""
        return {
            "level": self.level,
            "calls": self.calls,
            "inputs": self.inputs,
            "lessons": self.lessons,
            "carried": self.carried,
        }


def summed(levels: Sequence[Level], more: Sequence[Level]) -> list[Level]:
    """The levels of several parts as those of one reduce, by name, in order of first appearance."""
    by_name: dict[str, Level] = {}
    for one in (*levels, *more):
        known = by_name.get(one.level, Level(one.level, 0, 0, 0, 0))
        by_name[one.level] = Level(
            one.level,
            known.calls + one.calls,
            known.inputs + one.inputs,
            known.lessons + one.lessons,
            known.carried + one.carried,
        )
    return list(by_name.values())


def uncarried(method: Method[Any], reflections: Sequence[Reflection], updates: Sequence[Update]) -> set[int]:
    """Positions of the reflections with a lesson that is not carried yet."""
    carried = method.carried_all(reflections, updates)
    return {
        position
        for position, reflection in enumerate(reflections)
        if any(lesson.id not in carried for lesson in reflection.lessons)
    }


def _distinct(
    method: Method[Any], reflections: Sequence[Reflection], updates: Sequence[Update]
) -> list[tuple[int, bool]]:
    """(how often stated, carried?) of each distinct lesson."""
    return _counted(reflections, method.carried_all(reflections, updates))


def _counted(reflections: Sequence[Reflection], carried: Collection[str]) -> list[tuple[int, bool]]:
    """The same for the ids of the lessons that are carried."""
    lessons = [lesson for reflection in reflections for lesson in reflection.lessons]
    counts: dict[int, int] = defaultdict(int)
    kept: dict[int, bool] = defaultdict(bool)
    for lesson, cluster in zip(lessons, lesson_clusters([lesson.text for lesson in lessons]), strict=True):
        counts[cluster] += 1
        kept[cluster] = kept[cluster] or lesson.id in carried
    return [(counts[cluster], kept[cluster]) for cluster in sorted(counts)]


def level_report(
    method: Method[Any],
    name: str,
    calls: int,
    inputs: int,
    reflections: Sequence[Reflection],
    updates: Sequence[Update],
) -> Level:
    """Distinct lessons of all reflections, and how many the updates so far carry."""
    distinct = _distinct(method, reflections, updates)
    return Level(name, calls, inputs, len(distinct), sum(kept for _, kept in distinct))


def chosen_report(name: str, calls: int, reflections: Sequence[Reflection], chosen: Collection[int]) -> Level:
    """Distinct lessons of all reflections, and how many are in those that were chosen (by position)."""
    kept = {lesson.id for position in chosen for lesson in reflections[position].lessons}
    distinct = _counted(reflections, kept)
    return Level(name, calls, len(reflections), len(distinct), sum(found for _, found in distinct))


def rarity_report(
    method: Method[Any], reflections: Sequence[Reflection], updates: Sequence[Update]
) -> list[dict[str, Any]]:
    """Distinct lessons and how many are carried, by how many reflections state them."""
    distinct = _distinct(method, reflections, updates)
    rows = []
    for low, high, label in RARITY:
        inside = [kept for count, kept in distinct if low <= count <= high]
        rows.append({"copies": label, "distinct": len(inside), "carried": sum(inside)})
    return rows
