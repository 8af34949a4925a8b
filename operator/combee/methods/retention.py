"""Which lessons the updates carry: the measure behind retransmission and the retention report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from combee.algo.text import anchors, kept_in
from combee.methods.protocol import Update
from combee.records import Reflection

MOST_LESSONS_AN_ENTRY = 4
"""Distinct lessons one entry may count for: an entry that lists everything carries nothing well."""


def carried_all(reflections: Sequence[Reflection], updates: Sequence[Update]) -> frozenset[str]:
    """Return the ids of the lessons that some update cites and holds the anchors of.

    Lessons with the same numbers, identifiers and condition count as one for the cap of an entry.
    Cost: linear in the citations.
    """
    by_source: dict[str, list[Update]] = defaultdict(list)
    for update in updates:
        if update.op != "DELETE":
            for source in update.sources | update.cited:
                by_source[source].append(update)
    carried: set[str] = set()
    used: dict[str, set[object]] = defaultdict(set)
    for reflection in sorted(reflections, key=lambda r: r.id):
        for lesson in reflection.lessons:
            for update in by_source.get(reflection.trajectory_id, ()):
                if kept_in(lesson.text, update.text) and _counts(lesson.text, used[update.key]):
                    carried.add(lesson.id)
                    break
    return frozenset(carried)


def _counts(lesson: str, used: set[object]) -> bool:
    """Return whether an entry that counts for ``used`` lessons may count for this one, too."""
    held = anchors(lesson)
    if held not in used and len(used) >= MOST_LESSONS_AN_ENTRY:
        return False
    used.add(held)
    return True
