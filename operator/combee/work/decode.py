"""Turns rows of the store back into records."""

from __future__ import annotations

import sys
from typing import Any

from combee.methods.protocol import Update
from combee.records import Lesson, Reflection, Trajectory
from combee.work.reduction import Leaf


def reflection_of(row: dict[str, Any]) -> Reflection:
    """Return the reflection that ``put_lines`` wrote."""
    lessons = tuple(Lesson(**lesson) for lesson in row["lessons"])
    return Reflection(**{**row, "lessons": lessons, "tags": tuple(map(tuple, row["tags"]))})


def without_diagnosis(row: dict[str, Any]) -> Reflection:
    """Return the reflection's lessons and votes, which are all that is needed once it is aggregated."""
    return reflection_of({**row, "text": ""})


def outcome_of(row: dict[str, Any]) -> Trajectory:
    """Return the trajectory that ``put_lines`` wrote, without its texts: which example, right or wrong,
    failed or not, and which entries it used. In a batch of 10,000 the texts take most of the memory; replay
    asks its examples again."""
    texts = {"input": "", "output": "", "answer": "", "feedback": "", "recorded": None}
    used = tuple(map(sys.intern, row.get("cited", ())))
    bare = {"cited": used, "records": None, "objectives": tuple(map(tuple, row.get("objectives", ())))}
    return Trajectory(**{**row, **texts, **bare})


def update_of(row: dict[str, Any]) -> Update:
    """Return the update that reduce wrote."""
    sets = {name: frozenset(row[name]) for name in ("sources", "cited")}
    return Update(**{**row, **sets, "base": tuple(row["base"])})


def leaf_of(row: dict[str, Any]) -> Leaf:
    """Return the leaf that a map wrote."""
    return Leaf(**{**row, "updates": tuple(map(update_of, row["updates"]))})
