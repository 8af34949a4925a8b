"""Reading what models answer, with tolerance, and quoting it so that it can pose as nothing else."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

from combee.records import Message, Prompt

MAX_ANSWER_CHARS = 400_000
"""An answer longer than this is not read."""

_FAKE_ITEM = re.compile(r"\[(?=[A-Za-z]{1,8}-[0-9A-Za-z]+[\].])")
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


def read_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in ``text``: whole, fenced, inside prose, or mended; None when there is none."""
    if len(text) > MAX_ANSWER_CHARS:
        return None
    fenced = _FENCE.search(text)
    for candidate in (text, fenced.group(1) if fenced else ""):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
        if isinstance(value, list):
            return {"entries": value}
    start = text.find("{")
    if start < 0:
        return None
    import json_repair  # seldom needed, and slow to import

    try:
        mended = json_repair.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    if isinstance(mended, list):
        mended = next((part for part in mended if isinstance(part, dict) and part), None)
    return mended if isinstance(mended, dict) and mended else None


def one_line(text: str) -> str:
    """Return ``text`` in NFC on one line: no control, bidirectional, zero-width or lone surrogate mark."""
    if not text.isprintable():
        text = "".join(" " if c.isspace() else "" if unicodedata.category(c) in _DROPPED else c for c in text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def quote_line(text: str, limit: int) -> str:
    """Return ``text`` on one line as one of ``[id] ...`` items: at most ``limit``, no bracketed id inside."""
    return _FAKE_ITEM.sub("(", one_line(text)[:limit]).rstrip()


REPAIR_KEEPS_CHARS = 6000
"""How much of an unusable answer is shown to the model that gave it, in characters."""


def repair_prompt(prompt: Prompt, broken_text: str, reason: str, round_number: int = 1) -> Prompt:
    """Return ``prompt`` again, with the unusable answer and what is wrong with it, for a repair round.

    Later rounds say which they are: an answer that was spoiled in the same way twice would otherwise make the
    same request, which the memo (or a model at temperature 0) answers with the same bytes.
    """
    shown = broken_text[:REPAIR_KEEPS_CHARS] or "(nothing)"
    form = (
        "one JSON object that follows the schema, and nothing else" if prompt.schema else "the answer alone"
    )
    again = f" (for the {round_number}. time)" if round_number > 1 else ""
    ask = f"This answer cannot be used{again}: {reason}. Give it again as {form}."
    return replace(prompt, messages=(*prompt.messages, Message("assistant", shown), Message("user", ask)))
