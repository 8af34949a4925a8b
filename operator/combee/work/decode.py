"""Rows of the store back into records."""

from __future__ import annotations

from typing import Any

from combee.methods.protocol import Update
from combee.records import Lesson, Reflection, Trajectory


def reflection_of(row: dict[str, Any]) -> Reflection:
    """The reflection that ``put_lines`` wrote."""
    return Reflection(
        **{
            **row,
            "lessons": tuple(Lesson(**lesson) for lesson in row["lessons"]),
            "tags": tuple((bullet, tag) for bullet, tag in row["tags"]),
        }
    )


def trajectory_of(row: dict[str, Any]) -> Trajectory:
    """The trajectory that ``put_lines`` wrote."""
    return Trajectory(**{**row, "cited": tuple(row["cited"])})


def update_of(row: dict[str, Any]) -> Update:
    """The update that reduce wrote."""
    return Update(
        **{
            **row,
            "sources": frozenset(row["sources"]),
            "cited": frozenset(row["cited"]),
            "base": tuple(row["base"]),
        }
    )
