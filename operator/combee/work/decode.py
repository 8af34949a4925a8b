"""Rows of the store back into records."""

from __future__ import annotations

from typing import Any

from combee.methods.protocol import Update
from combee.records import Lesson, Reflection, Trajectory


def reflection_of(row: dict[str, Any]) -> Reflection:
    """The reflection that ``put_lines`` wrote."""
    lessons = tuple(Lesson(**lesson) for lesson in row["lessons"])
    return Reflection(**{**row, "lessons": lessons, "tags": tuple(map(tuple, row["tags"]))})


def without_diagnosis(row: dict[str, Any]) -> Reflection:
    """The reflection's lessons and votes: what is needed of it once it has been aggregated."""
    return reflection_of({**row, "text": ""})


def outcome_of(row: dict[str, Any]) -> Trajectory:
    """The trajectory that ``put_lines`` wrote, without its texts: who, right or wrong, failed or not.
    In a batch of 10,000 the texts are most of the memory, and replay asks its examples anew."""
    texts = {"input": "", "output": "", "answer": "", "feedback": "", "cited": (), "recorded": None}
    bare = {**texts, "records": None, "objectives": tuple(map(tuple, row.get("objectives", ())))}
    return Trajectory(**{**row, **bare})


def update_of(row: dict[str, Any]) -> Update:
    """The update that reduce wrote."""
    sets = {name: frozenset(row[name]) for name in ("sources", "cited")}
    return Update(**{**row, **sets, "base": tuple(row["base"])})
