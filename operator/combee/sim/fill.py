"""Fills a form by its shape. Each function answers for one role; unneeded fields stay neutral."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from combee.sim.forms import Form
from combee.sim.prompts import tokens

ANSWER = re.compile(r"answer|final|predict|result|output|response")
_CONTENT = re.compile(r"content|text|entry|bullet\b|lesson|rule|insight")
_IDENTITY = re.compile(r"\bid\b|_ids?\b|\bids?\b|bullet_id|target|base")
_YES = re.compile(r"correct|right|yes|true|pass|accept|good|a", re.I)
_NO = re.compile(r"incorrect|wrong|no|false|fail|reject|bad|b", re.I)


@dataclass(frozen=True, slots=True)
class Entry:
    """One distilled entry: its text, its section and the ids it cites."""

    text: str
    section: str
    cites: tuple[str, ...]
    given: tuple[str, ...] = ()
    """ids of the given items that state only this, when it comes from such items alone."""


def neutral(form: Form) -> Any:
    """Return the smallest value that a node may hold."""
    if form.kind == "object":
        return {field.name: neutral(field) for field in form.fields}
    if form.kind == "array":
        return []
    if form.kind == "enum":
        return form.values[0]
    plain: dict[str, Any] = {"boolean": False, "number": 0, "integer": 0, "null": None}
    return None if form.nullable else plain.get(form.kind, "")


def dumps(value: Any) -> str:
    """Return JSON as a model writes it: no line breaks, no needless escapes."""
    return json.dumps(value, ensure_ascii=False)


FIELD_TOKENS = 6
"""Mean tokens of a field's name, quotes and colon; the same for all names."""


def frame_tokens(reply: str) -> int:
    """Return the tokens of a reply as if all its fields had names of one length."""
    try:
        content = json.loads(reply)
    except ValueError:
        return tokens(reply)
    values = content.values() if isinstance(content, dict) else [content]
    return sum(FIELD_TOKENS + tokens(value if isinstance(value, str) else "") for value in values)


def _object(form: Form, fill: Callable[[Form], Any]) -> dict[str, Any]:
    return {field.name: fill(field) for field in form.fields}


def rollout(form: Form | None, answer: str, reasoning: str, cited: Sequence[str]) -> str:
    """Put the answer in the field named for it, else in the last string; reasons go to the other strings."""
    if form is None:
        return answer
    strings = form.of("string")
    named = [f for f in strings if ANSWER.search(f.hint)]
    final = named[-1] if named else strings[-1] if strings else None

    def value(field: Form) -> Any:
        if field is final:
            return answer
        if field.kind == "string" and not field.nullable:
            return reasoning
        if field.kind == "array" and field.item is not None and field.item.kind == "string":
            return _among(field.item, cited)
        return neutral(field)

    return dumps(_object(form, value))


def _among(item: Form, ids: Sequence[str]) -> list[str]:
    """Return the ids that a list of this item may hold."""
    return [id_ for id_ in ids if not item.values or id_ in item.values]


def reflect(
    form: Form | None, diagnosis: str, lessons: Sequence[str], tags: Sequence[tuple[str, str]]
) -> str:
    """Put the lessons in the list of strings (or of objects that hold one), else in the last string."""
    if form is None:
        return "\n".join((diagnosis, *lessons))
    tag_lists = [f for f in form.lists_of("object") if f.item and any(x.is_tag() for x in f.item.fields)]
    lesson_lists = [f for f in form.lists_of("object", "string") if f not in tag_lists]
    if not tag_lists and len(lesson_lists) > 1:
        tag_lists = [f for f in lesson_lists[1:] if f.item and len(f.item.of("string")) >= 2]
        lesson_lists = [f for f in lesson_lists if f not in tag_lists]
    home = lesson_lists[0] if lesson_lists else None
    strings = form.of("string")
    last = strings[-1] if strings and home is None else None

    def value(field: Form) -> Any:
        if field is home and field.item is not None:
            return [_text_item(field.item, text) for text in lessons]
        if field in tag_lists and field.item is not None:
            return [_tag_item(field.item, id_, tag) for id_, tag in tags if _may_tag(field.item, id_)]
        if field is last:
            return " ".join(lessons)
        if field.kind == "string" and not field.nullable:
            return diagnosis if field is strings[0] else diagnosis.partition(";")[0]
        return neutral(field)

    return dumps(_object(form, value))


def _text_item(item: Form, text: str) -> Any:
    if item.kind != "object":
        return text
    strings = item.of("string")
    home = next((f for f in strings if _CONTENT.search(f.hint)), strings[0] if strings else None)
    return _object(item, lambda field: text if field is home else neutral(field))


def _may_tag(item: Form, id_: str) -> bool:
    """Return whether a vote on this id follows the form."""
    ids = next((f for f in item.fields if f.kind == "string" and f.values), None)
    return ids is None or id_ in ids.values


def _tag_item(item: Form, id_: str, tag: str) -> Any:
    votes = [f for f in item.fields if f.is_tag()]
    strings = [f for f in item.of("string", "enum") if f not in votes]
    vote = votes[0] if votes else (strings[-1] if len(strings) > 1 else None)

    def value(field: Form) -> Any:
        if field is vote:
            return next((v for v in field.values if str(v).lower() == tag), tag)
        return id_ if strings and field is strings[0] else neutral(field)

    return _object(item, value)


def aggregate(form: Form | None, entries: Sequence[Entry]) -> str:
    """Put the entries in the list of objects, else in the list of strings, or in the last string as lines.

    Where the form asks for the ids of items to carry on unchanged, an entry that was given as it is goes
    there by its ids and is not written again.
    """
    if form is None:
        return "\n".join(
            f"- {entry.text} [{', '.join(entry.cites)}]" if entry.cites else f"- {entry.text}"
            for entry in entries
        )
    keep = next((f for f in form.fields if f.keeps()), None)
    texts, strings = [f for f in form.lists_of("string") if f is not keep], form.of("string")
    homes = [*(form.lists_of("object") or texts or strings[-1:])]
    home = homes[0] if homes else None
    unchanged = [entry for entry in entries if keep is not None and _may_be_kept(keep, entry)]
    entries = [entry for entry in entries if entry not in unchanged]
    bullets = [f"- {entry.text}" for entry in entries]

    def value(field: Form) -> Any:
        if field is keep and field.item is not None:
            cited_ids = [list(entry.cites) for entry in unchanged]
            return cited_ids if field.item.kind == "array" else [id_ for ids in cited_ids for id_ in ids]
        if field is home and field.kind == "array" and field.item is not None:
            item = field.item
            return [_entry(item, entry) if item.kind == "object" else entry.text for entry in entries]
        if field is home:
            return "\n".join(bullets)
        if field.kind == "string" and not field.nullable:
            return "Kept what is specific and put like with like."
        return neutral(field)

    return dumps(_object(form, value))


def _may_be_kept(keep: Form, entry: Entry) -> bool:
    """Return whether an entry can be carried on by ids: a plain list cannot say that several items are
    one."""
    return bool(entry.given) and (
        len(entry.given) == 1 or (keep.item is not None and keep.item.kind == "array")
    )


def _entry(item: Form, entry: Entry) -> dict[str, Any]:
    strings = [f for f in item.of("string") if not f.nullable and not _IDENTITY.search(f.name.lower())]
    content_fields = [f for f in strings if _CONTENT.search(f.name.lower())]
    content = (
        content_fields[0]
        if content_fields
        else strings[1]
        if len(strings) > 1
        else strings[0]
        if strings
        else None
    )
    section = next((f for f in strings if f is not content), None)
    cites = next((f for f in item.lists_of("string", "integer", "number")), None)

    def value(field: Form) -> Any:
        if field is content:
            return entry.text
        if field is section:
            return entry.section
        if field is cites and field.item is not None:
            return [_cite(field.item, id_) for id_ in entry.cites]
        if field.is_operation():
            return next((v for v in field.values if str(v).upper() == "ADD"), field.values[0])
        if field.kind == "enum":
            return entry.section if entry.section in field.values else field.values[0]
        return neutral(field)

    return _object(item, value)


def _cite(item: Form, id_: str) -> Any:
    if item.kind == "string":
        # Where ids are chosen from a list, one that was made up comes out as another of them.
        made_up = item.values and id_ not in item.values
        return item.values[int(sha256(id_.encode()).hexdigest(), 16) % len(item.values)] if made_up else id_
    digits = re.sub(r"\D", "", id_)
    return int(digits) if digits else 0


def judge(form: Form | None, right: bool, reason: str) -> str:
    """Put the verdict in every boolean, number and enumeration, and the reason in the strings."""
    if form is None:
        return f"{reason} Verdict: {'correct' if right else 'incorrect'}"

    def value(field: Form) -> Any:
        if field.kind == "boolean":
            return right
        if field.kind in ("number", "integer"):
            return 1 if right else 0
        if field.kind == "enum":
            if all(isinstance(v, int | float) for v in field.values):
                return max(field.values) if right else min(field.values)
            words, opposite = (_YES, _NO) if right else (_NO, _YES)
            matching = [v for v in field.values if words.fullmatch(str(v))]
            neutral_values = [v for v in field.values if not opposite.fullmatch(str(v))]
            return (matching or neutral_values or list(field.values))[0]
        return reason if field.kind == "string" else neutral(field)

    return dumps(_object(form, value))
