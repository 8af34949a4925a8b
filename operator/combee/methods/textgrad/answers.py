"""What a model answers that criticises an attempt, read with tolerance."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from combee.methods.components.prompts import EVERY, MAX_QUOTED_CHARS
from combee.methods.protocol import ParseError
from combee.methods.replies import quote_line, read_object
from combee.methods.textgrad.prompts import MOST_REMARKS
from combee.records import Lesson, Reflection, Trajectory

MAX_PART_CHARS = 200


def parse_criticism(text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection:
    """Return the criticism of an attempt, one text for each part that it concerns. Plain text, as the paper's
    backward engine gives, concerns all parts. An attempt that came out right has none.

    Raises ParseError where there is nothing to read.
    """
    by_part: dict[str, list[str]] = defaultdict(list)
    for part, remark in [] if trajectory.correct else _remarks(text):
        by_part[part].append(remark)
    lessons = (
        Lesson(f"{reflection_id}.{part}", quote_line(" ".join(remarks), MAX_QUOTED_CHARS))
        for part, remarks in sorted(by_part.items())
    )
    return Reflection(reflection_id, trajectory.id, trajectory.correct, "", tuple(lessons))


def _remarks(text: str) -> list[tuple[str, str]]:
    """Return (part, remark) pairs."""
    if not text.strip():
        raise ParseError("the reply is empty")
    if "{" not in text:
        return [(EVERY, text.strip())]
    rows = (read_object(text) or {}).get("criticism")
    if not isinstance(rows, list):
        raise ParseError('there is no JSON object with a list "criticism" in the reply')
    pairs = [_remark(row) for row in rows[:MOST_REMARKS]]
    return [(part, remark) for part, remark in pairs if remark]


def _remark(row: Any) -> tuple[str, str]:
    if isinstance(row, str):
        return EVERY, row.strip()
    if not isinstance(row, dict):
        return EVERY, ""
    part, remark = row.get("part"), row.get("text")
    named = quote_line(part, MAX_PART_CHARS).removeprefix("# ") if isinstance(part, str) else ""
    return named or EVERY, remark.strip() if isinstance(remark, str) else ""
