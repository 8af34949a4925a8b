"""Reading what models answer, with tolerance, and quoting it so that it can pose as nothing else."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from combee.algo.linear import normalized
from combee.jsonread import plain, read_json
from combee.methods.schemas import bounded
from combee.records import Message, Prompt

MAX_ANSWER_CHARS = 400_000
"""An answer longer than this is not read."""
MAX_MENDED_CHARS, MAX_MENDED_DEPTH = 1_000, 16
"""Of a longer object that is broken only commas too many, control characters that stand raw in strings, and
the end, where it was cut, are mended, and nothing of a deeper one: the rest takes time with the square of the
length and with the depth, 1.5 s for 8,000 characters 60 deep."""

_FAKE_ITEM = re.compile(r"\[(?=[A-Za-z]{1,8}-[0-9A-Za-z]+[\].])")
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\]]', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


def read_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object in ``text``: whole, fenced, inside prose, or mended; None when there is none."""
    if len(text) > MAX_ANSWER_CHARS:
        return None
    fenced = _FENCE.search(text)
    for candidate in (text, fenced.group(1) if fenced else ""):
        try:
            value = read_json(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
        if isinstance(value, list):
            return {"entries": value}
    start = text.find("{")
    if start < 0 or _is_deep(text[start:]):
        return None
    try:
        mended = plain(_mended(text[start:]))
    except (ValueError, RecursionError):
        return None
    if isinstance(mended, list):
        mended = next((part for part in mended if isinstance(part, dict) and part), None)
    return mended if isinstance(mended, dict) and mended else None


def _mended(text: str) -> Any:
    if len(text) > MAX_MENDED_CHARS:
        text = _STRING_OR_COMMA.sub(_as_json, text)
        try:
            return json.JSONDecoder().raw_decode(text)[0]  # whatever is said after it
        except ValueError:
            return from_json(text, allow_partial="trailing-strings")
    import json_repair  # seldom needed, and slow to import

    return json_repair.loads(text)


def _as_json(part: re.Match[str]) -> str:
    """Return a string with its control characters escaped, and nothing for a comma before a bracket."""
    return _CONTROL.sub(lambda one: f"\\u{ord(one[0]):04x}", part[0]) if part[0] != "," else ""


def _is_deep(text: str) -> bool:
    """Return whether brackets stand so deep in each other as no answer has them. Mending takes most time on
    such."""
    depth = 0
    for mark in _BRACKET.findall(text):
        depth += 1 if mark in "{[" else -1 if mark in "}]" else 0
        if depth > MAX_MENDED_DEPTH:
            return True
    return False


def one_line(text: str) -> str:
    """Return ``text`` in NFC on one line: no control, bidirectional, zero-width or lone surrogate mark."""
    if not text.isprintable():
        text = "".join(" " if c.isspace() else "" if unicodedata.category(c) in _DROPPED else c for c in text)
    return " ".join(normalized("NFC", text).split())


_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")
LEAST_NEW = 0.6
"""A text of which a smaller share of triples of words is new goes round in circles."""
_FEW_WORDS = 12


def without_echo(text: str) -> str:
    """Return one line without the sentences that it has said before; empty where it goes round in circles.

    Models that are at a loss say the same again until they are stopped.

    >>> without_echo("The badge is green. The badge is green. Ask at the desk.")
    'The badge is green. Ask at the desk.'
    >>> without_echo("it is a cat, and the cat is a cat, and the cat is a cat, and the cat is a cat")
    ''
    """
    sentences: dict[str, str] = {}
    for sentence in _SENTENCE_END.split(text):
        sentences.setdefault(sentence.casefold(), sentence)
    kept = " ".join(sentences.values())
    words = kept.casefold().split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    circling = len(words) >= _FEW_WORDS and len(set(triples)) < LEAST_NEW * len(triples)
    return "" if circling else kept


def quote_line(text: str, limit: int) -> str:
    """Return ``text`` on one line as one of ``[id] ...`` items: at most ``limit``, no bracketed id inside."""
    return _FAKE_ITEM.sub("(", one_line(text)[:limit]).rstrip()


WORDS_PER_TOKEN = 0.6
"""What a model is told, so that it stays below a limit that it cannot see."""


def shorter_prompt(prompt: Prompt) -> Prompt:
    """Return ``prompt`` again, for an answer that was cut at its limit: half as long, in words and bounds.

    The limit itself stays. The request is added to the last message, since some chat templates refuse two
    messages of one role in a row, and the cut answer is left out, since it would be continued.
    """
    half = max(1, prompt.max_output_tokens // 2)
    words = max(1, int(half * WORDS_PER_TOKEN))
    ask = f"An earlier answer was too long and was cut off. Give a complete one of at most {words} words."
    *before, last = prompt.messages
    messages = (*before, Message(last.role, f"{last.content}\n\n{ask}"))
    schema = None if prompt.schema is None else bounded(prompt.schema, half)
    return replace(prompt, messages=messages, schema=schema)


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
