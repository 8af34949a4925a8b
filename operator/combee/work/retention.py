"""What the reduce kept, by level and by rarity, counted in *distinct* lessons.

A lesson is carried when an update cites the reflection it comes from and keeps its anchors. A
distinct lesson (a cluster of lessons that say the same) is carried when one of its lessons is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from operator import add
from typing import Any

from combee.algo.components import similarity_labels
from combee.algo.retransmit import lost_lessons
from combee.methods.base import Method
from combee.methods.protocol import Update
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


def to_send_again(
    method: Method[Any], reflections: Sequence[Reflection], updates: Sequence[Update]
) -> list[int]:
    """Return the positions of the reflections that state a lesson which was lost; in order, and without those
    whose statement of it was carried."""
    carried = method.carried_all(reflections, updates)
    lessons, clusters = _clusters(reflections)
    lost = lost_lessons(clusters, [lesson.id in carried for lesson in lessons])
    ids = {
        lesson.id
        for lesson, cluster in zip(lessons, clusters, strict=True)
        if cluster in lost and lesson.id not in carried
    }
    return [
        position
        for position, reflection in enumerate(reflections)
        if any(lesson.id in ids for lesson in reflection.lessons)
    ]


def _clusters(reflections: Sequence[Reflection]) -> tuple[list[Lesson], list[int]]:
    """Return all lessons, and which distinct one each states."""
    lessons = [lesson for reflection in reflections for lesson in reflection.lessons]
    # Lessons are one if numbers, identifiers and condition match and wordings share 60 % (DESIGN section 5).
    return lessons, similarity_labels([lesson.text for lesson in lessons], same_condition=True)


def _distinct(reflections: Sequence[Reflection], carried: Collection[str]) -> list[tuple[int, bool]]:
    """Return (how often stated, carried?) for each distinct lesson. ``carried``: ids of lessons."""
    counts: dict[int, int] = defaultdict(int)
    carried_clusters: set[int] = set()
    lessons, clusters = _clusters(reflections)
    for lesson, cluster in zip(lessons, clusters, strict=True):
        counts[cluster] += 1
        if lesson.id in carried:
            carried_clusters.add(cluster)
    return [(counts[cluster], cluster in carried_clusters) for cluster in sorted(counts)]


def _level(
    name: str, calls: int, inputs: int, reflections: Sequence[Reflection], carried: Collection[str]
) -> Level:
    distinct = _distinct(reflections, carried)
    return Level(name, calls, inputs, len(distinct), sum(is_carried for _, is_carried in distinct))


def level_report(
    method: Method[Any],
    name: str,
    calls: int,
    inputs: int,
    reflections: Sequence[Reflection],
    updates: Sequence[Update],
) -> Level:
    """Count the distinct lessons of all reflections, and how many of them the updates so far carry."""
    return _level(name, calls, inputs, reflections, method.carried_all(reflections, updates))


def chosen_report(name: str, calls: int, reflections: Sequence[Reflection], chosen: Collection[int]) -> Level:
    """Count the distinct lessons of all reflections, and those in the ``chosen`` positions."""
    ids = {lesson.id for position in chosen for lesson in reflections[position].lessons}
    return _level(name, calls, len(reflections), reflections, ids)


def rarity_report(
    method: Method[Any], reflections: Sequence[Reflection], updates: Sequence[Update]
) -> list[dict[str, Any]]:
    """Count distinct lessons and those that are carried, by how many reflections state them."""
    distinct = _distinct(reflections, method.carried_all(reflections, updates))
    rows = []
    for low, high, label in RARITY:
        carried = [is_carried for count, is_carried in distinct if low <= count <= high]
        rows.append({"copies": label, "distinct": len(carried), "carried": sum(carried)})
    return rows
