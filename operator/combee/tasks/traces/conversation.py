"""A conversation in one form, independent of the format it was written in."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

LEFT_OUT = "other than text"
"""the counter, in a reader's counts, of message parts that are left out: images, sounds, files."""
_TEXT_KEYS = ("text", "input_text", "output_text", "refusal")


class UnreadableError(ValueError):
    """A trace cannot be used. ``str()`` is the reason, a phrase such as ``has no messages``."""


@dataclass(slots=True)
class Call:
    """A tool call and its result, which is None until it comes."""

    id: str
    name: str
    arguments: str
    result: str | None = None


@dataclass(slots=True)
class Turn:
    """The words and calls of one side: ``who`` is system, user, agent or tool."""

    who: str
    text: str
    calls: list[Call] = field(default_factory=list)


def text_of(value: Any, counts: Counter[str]) -> str:
    """Return the text of a message's content: a string, a list of parts, or anything else as JSON.

    A part that is not text (an image, a sound) is replaced by a mark and counted.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, list):
        return "\n".join(text for part in value if (text := _part(part, counts)))
    return as_json(value)


def _part(part: Any, counts: Counter[str]) -> str:
    if isinstance(part, str):
        return whole(part)
    if isinstance(part, dict):
        for key in _TEXT_KEYS:
            if isinstance(part.get(key), str):
                return whole(part[key])
        if isinstance(part.get("content"), str):
            return whole(part["content"])
    counts[LEFT_OUT] += 1
    kind = part.get("type") if isinstance(part, dict) else None
    return f"[{str(kind)[:40] if kind else 'a part'} left out]"


def as_json(value: Any) -> str:
    """Return arguments as text: a string unchanged, anything else as one line of JSON."""
    if isinstance(value, str):
        return whole(value)
    return whole(json.dumps(value, ensure_ascii=False, default=str))


def whole(text: str) -> str:
    """Return ``text`` with a question mark for each lone surrogate, so that it can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def with_thoughts(text: str, thoughts: Any) -> str:
    """Return what an agent said, preceded by its recorded thoughts, if any."""
    if not isinstance(thoughts, str) or not thoughts.strip():
        return text
    return f"(thinking) {whole(thoughts).strip()}\n\n{text}".rstrip()


def attach(turns: list[Turn], call_id: Any, text: str) -> None:
    """Give a result to the call it answers, among the open calls of the agent's last turn. A result without
    such a call becomes a turn of its own."""
    last = turns[-1] if turns and turns[-1].calls else None
    if last is not None:
        for call in last.calls:
            if call.result is None and (call.id == call_id or not call_id):
                call.result = text
                return
    turns.append(Turn("tool", text))
