"""What models answer, read with tolerance. Ids that nobody gave are dropped, and lessons without any."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from combee.methods.protocol import ParseError, RolloutReply, Update
from combee.methods.replies import one_line, read_object

MAX_LESSONS = 200
MAX_LESSON_CHARS = 1_200
MAX_TEXT_CHARS = 320_000
_FENCE = re.compile(r"^[ \t]*```[^\n`]*$", re.MULTILINE)


def parse_rollout(text: str) -> RolloutReply:
    """Return a task model's answer; plain text is the answer itself. Raises ParseError when there is none."""
    fields = read_object(text) if "{" in text else None
    if fields is not None and "answer" in fields:
        answer = _plain(fields["answer"])
        if not answer:
            raise ParseError("the answer is empty")
        return RolloutReply(answer, (), _plain(fields.get("reasoning")))
    if text.lstrip().startswith(("{", "```json")):
        raise ParseError('the JSON object has no field "answer"')
    if not text.strip():
        raise ParseError("the reply is empty")
    return RolloutReply(text.strip())


def parse_lessons(text: str, *, component: str, sources: Mapping[str, str]) -> list[Update]:
    """Return a map call's lessons; ParseError without a list. ``sources``: record id -> trajectory id."""
    fields = read_object(text)
    if fields is None:
        raise ParseError("there is no JSON object in the reply")
    rows = fields.get("lessons", fields.get("entries"))
    if not isinstance(rows, list):
        raise ParseError('the JSON object has no list "lessons"')
    updates = []
    for row in rows[:MAX_LESSONS]:
        lesson = one_line(_plain(row.get("text")))[:MAX_LESSON_CHARS] if isinstance(row, dict) else ""
        backing = _backing(row.get("records") if isinstance(row, dict) else None, sources)
        if lesson and backing:
            updates.append(Update("ADD", component, lesson, backing, cited=backing))
    return updates


def _backing(cited: Any, sources: Mapping[str, str]) -> frozenset[str]:
    named = (
        cited if isinstance(cited, list) else re.split(r"[,;\s]+", cited) if isinstance(cited, str) else []
    )
    bare = (str(one).strip("[]()'\"`., ") for one in named)
    return frozenset(sources[one] for one in bare if one in sources)


def parse_text(text: str, *, component: str, sources: Sequence[str]) -> Update:
    """Return the new text of a component: what stands between the first and the last line of ```, else all of
    it. Raises ParseError when nothing does, or when there is too much of it.

    >>> parse_text("Here:\\n```\\nBe brief.\\n```", component="instructions", sources=["1@0"]).text
    'Be brief.'
    """
    fences = list(_FENCE.finditer(text))
    if len(fences) >= 2:
        body = text[fences[0].end() : fences[-1].start()]
    elif fences:
        body = text[fences[0].end() :]
        body = body if body.strip() else text[: fences[0].start()]
    else:
        body = text
    body = body.strip()
    if not body:
        raise ParseError("the reply has no text of new instructions")
    if len(body) > MAX_TEXT_CHARS:
        raise ParseError(f"the new instructions have {len(body)} characters; be briefer")
    backing = frozenset(sources)
    return Update("UPDATE", component, body, backing, cited=backing)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
