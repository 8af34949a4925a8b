"""What models answer, read with tolerance: JSON, fenced JSON, JSON in prose, JSON cut short.

Nothing is believed that can be checked: ids that do not exist are dropped, and a reflection counts
as a source of an entry only if the entry's numbers and identifiers are in it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from combee.algo.text import anchors, token_set
from combee.methods.ace import program
from combee.methods.ace.entries import MAX_ENTRY_CHARS, normalise_entry, section_key
from combee.methods.ace.group import carry_on
from combee.methods.ace.prompts import MAX_LESSON_CHARS
from combee.methods.protocol import Merged, Op, ParseError, Rendered, RolloutReply, Update
from combee.methods.replies import MAX_ANSWER_CHARS, one_line, read_object, without_echo
from combee.records import Lesson, Reflection, Trajectory

MAX_LESSONS = 12
MAX_ENTRIES = 2000
OVERLAP_TO_BACK = 0.3
"""Share of an entry's words a reflection must have to back it, when the entry has no number and no name."""

_LIST_MARK = re.compile(r"^(?:[-*•]|\d{1,3}[.)])(?: +|$)")
_OPS: Mapping[str, Op] = {
    **dict.fromkeys(("ADD", "CREATE", "INSERT", "NEW"), "ADD"),
    **dict.fromkeys(("UPDATE", "MODIFY", "EDIT", "REPLACE", "REVISE"), "UPDATE"),
    **dict.fromkeys(("MERGE", "COMBINE", "JOIN"), "MERGE"),
    **dict.fromkeys(("DELETE", "REMOVE", "DROP"), "DELETE"),
}


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        return ", ".join(str(part) for part in value)
    return json.dumps(value, ensure_ascii=False)


def _as_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [part for part in re.split(r"[,;\s]+", value) if part]
    return [_as_text(part) for part in value] if isinstance(value, list) else []


def _as_sentences(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    return [_as_text(v.get("text", v.get("lesson")) if isinstance(v, dict) else v) for v in value]


def _as_objects(value: Any) -> list[Any]:
    objects = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
    return [part for part in objects if isinstance(part, dict)]


Text = Annotated[str, BeforeValidator(_as_text)]
Texts = Annotated[list[str], BeforeValidator(_as_texts)]
Sentences = Annotated[list[str], BeforeValidator(_as_sentences)]


class _Reply(BaseModel):
    model_config = ConfigDict(extra="ignore", populate_by_name=True)


class _Rollout(_Reply):
    answer: Text = ""
    bullets: Texts = []
    reasoning: Text = ""


class _Tag(_Reply):
    id: Text = ""
    verdict: Text = ""


class _Reflection(_Reply):
    diagnosis: Text = ""
    lessons: Sentences = []
    tags: Annotated[list[_Tag], BeforeValidator(_as_objects)] = []


class _Entry(_Reply):
    op: Text = "ADD"
    section: Text = ""
    text: Text = ""
    reflections: Texts = []
    entries: Texts = []
    bullets: Texts = []
    reason: Text = ""


class _Entries(_Reply):
    entries: Annotated[list[_Entry], BeforeValidator(_as_objects)] = Field(max_length=MAX_ENTRIES)


def _renamed(fields: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return ``fields`` with other servers' names for our fields replaced; our own names win."""
    return {
        names.get(key, key): value for key, value in fields.items() if names.get(key, key) not in fields
    } | fields


def parse_rollout(text: str) -> RolloutReply:
    """Return a task model's reply; plain text is the answer itself. Raises ParseError when there is none."""
    fields = read_object(text) if "{" in text else None
    names = {"final_answer": "answer", "finalAnswer": "answer", "bullet_ids": "bullets", "cited": "bullets"}
    renamed = _renamed(fields, names) if fields else {}
    if "answer" in renamed:
        try:
            reply = _Rollout.model_validate(renamed)
        except ValidationError as error:
            raise ParseError("the JSON object does not follow the schema") from error
        if not reply.answer.strip():
            raise ParseError("the answer is empty")
        cited = dict.fromkeys(_bare_id(bullet) for bullet in reply.bullets)
        return RolloutReply(reply.answer.strip(), tuple(b for b in cited if b), reply.reasoning)
    if text.lstrip().startswith(("{", "```json")):
        raise ParseError('the JSON object has no field "answer"')
    if not text.strip():
        raise ParseError("the reply is empty")
    return RolloutReply(text.strip())


def parse_reflection(text: str, *, reflection_id: str, trajectory: Trajectory) -> Reflection:
    """Return the review of one trajectory. Plain text is a diagnosis without a lesson, but only when it is no
    JSON at all. Raises ParseError when there is nothing to read."""
    fields = read_object(text)
    if fields is None:
        raise ParseError("there is no JSON object in the reply")
    names = {"reasoning": "diagnosis", "key_insight": "lessons", "bullet_tags": "tags", "insights": "lessons"}
    try:
        reply = _Reflection.model_validate(_renamed(fields, names))
    except ValidationError as error:
        raise ParseError("the JSON object does not follow the schema") from error
    lessons = [without_echo(one_line(lesson)[:MAX_ENTRY_CHARS]) for lesson in reply.lessons]
    lessons = list(dict.fromkeys(lesson for lesson in lessons if lesson))[:MAX_LESSONS]
    diagnosis = one_line(reply.diagnosis)[: 4 * MAX_ENTRY_CHARS]
    tags = {(_bare_id(tag.id), tag.verdict.strip().lower()) for tag in reply.tags}
    if not diagnosis and not lessons and not tags:
        raise ParseError("the reply has no diagnosis, no lesson and no tag")
    return Reflection(
        id=reflection_id,
        trajectory_id=trajectory.id,
        correct=trajectory.correct,
        text=diagnosis,
        lessons=tuple(Lesson(f"{reflection_id}.{k}", lesson) for k, lesson in enumerate(lessons, start=1)),
        tags=tuple(sorted((b, v) for b, v in tags if b and v in ("helpful", "harmful", "neutral"))),
    )


def parse_leaf(
    text: str, *, reflections: Sequence[Reflection], playbook: Rendered, programs: bool = False
) -> list[Update]:
    """Return the typed entries of a leaf, ``programs`` among them where these are asked for. Citations of
    what was not given are dropped, and so are entries left without a source. A cited reflection that lacks
    the entry's numbers and identifiers is no source, unless all do: then the first cited one stays the only
    source, and replay must decide."""
    by_id = {reflection.id: reflection for reflection in reflections}
    updates: list[Update] = []
    for entry in _entries(text):
        cited = [by_id[name] for name in _cited_ids(entry.reflections, by_id)]
        if not cited:
            continue
        rule = _program(entry) if programs else ""
        rule = rule or without_echo(normalise_entry(entry.text))
        if entry.text and not rule:
            continue
        backing = [r for r in cited if backs(r, rule)] if rule else cited
        sources = frozenset(r.trajectory_id for r in backing or cited[:1])
        given = frozenset(r.trajectory_id for r in cited)
        updates += [replace(update, cited=given) for update in _typed(entry, rule, sources, playbook)]
    return updates


def _program(entry: _Entry) -> str:
    """Return the program that an entry states; empty where it states none."""
    return program.written(entry.text) if section_key(entry.section) == program.SECTION else ""


def parse_summary(text: str, *, summary_id: str, reflections: Sequence[Reflection]) -> Reflection:
    """Return a summary as a reflection with one lesson per line; a longer line is cut between words, so that
    all of it is read. It counts as right where all of ``reflections`` do. Raises ParseError when empty."""
    if len(text) > MAX_ANSWER_CHARS:
        raise ParseError("the summary is far too long")
    points = [_LIST_MARK.sub("", one_line(line)) for line in text.splitlines() if not line.startswith("```")]
    lines = [
        part for line in points for part in textwrap.wrap(line, MAX_LESSON_CHARS, break_on_hyphens=False)
    ]
    if not lines:
        raise ParseError("the summary is empty")
    lessons = tuple(Lesson(f"{summary_id}.{k}", line) for k, line in enumerate(lines, start=1))
    right = all(reflection.correct for reflection in reflections)
    return Reflection(summary_id, summary_id, right, "", lessons)


def parse_merge(text: str, *, updates: Sequence[Update], playbook: Rendered) -> Merged:
    """Return the entries of a merge call over ``updates`` (u-1, u-2, ...): those that it names to keep, once
    each and word for word, and those that it wrote, with the sources of what they take in. Some are both."""
    by_id = {f"u-{number}": update for number, update in enumerate(updates, start=1)}
    groups, written = _kept_groups(text), _entries(text)
    named = [*(one for group in groups for one in group), *(one for e in written for one in _takes_in(e))]
    unknown = sum(not _cited_ids([one], by_id) for one in named)
    seen: set[str] = set()
    kept: list[list[Update]] = []
    for group in groups:
        fresh = [one for one in _cited_ids(group, by_id) if one not in seen]
        seen.update(fresh)
        kept += [[by_id[one] for one in fresh]] if fresh else []
    return Merged([*carry_on(kept), *_written(written, by_id, playbook)], unknown)


def _written(entries: Sequence[_Entry], by_id: Mapping[str, Update], playbook: Rendered) -> list[Update]:
    merged: list[Update] = []
    for entry in entries:
        cited = [by_id[name] for name in _cited_ids(_takes_in(entry), by_id)]
        if not cited:
            continue
        inherited = tuple(sorted({base for update in cited for base in update.base}))
        for written in _typed(entry, normalise_entry(entry.text), frozenset(), playbook):
            op, base = written.op, written.base
            if op == "ADD" and inherited:
                op, base = ("UPDATE" if len(inherited) == 1 else "MERGE"), inherited
            merged.append(written.backed_by(cited, op=op, base=base))
    return merged


def _takes_in(entry: _Entry) -> list[str]:
    return entry.entries + entry.reflections


def _kept_groups(text: str) -> list[list[str]]:
    """Return the ids named to be kept, grouped where they say the same; a plain list keeps each by itself."""
    fields = read_object(text) or {}
    value = _renamed(fields, {"kept": "keep", "keep_ids": "keep"}).get("keep")
    return [_as_texts(one) for one in (value if isinstance(value, list) else [value])][:MAX_ENTRIES]


def backs(reflection: Reflection, text: str) -> bool:
    """Return whether an entry can come from this reflection alone: whether it has all numbers and identifiers
    of the entry or, when the entry has none, enough of its words. So an entry that folds the rules of two
    reflections into one does not have two sources."""
    whole = " ; ".join([*(lesson.text for lesson in reflection.lessons), reflection.text])
    facts, words = anchors(text), token_set(whole)
    if facts.numbers or facts.identifiers:
        held = anchors(whole)
        names = all(i in held.identifiers or token_set(i) <= words for i in facts.identifiers)
        return names and facts.numbers <= (held.numbers | words)
    rule_words = token_set(text)
    return len(rule_words & words) >= OVERLAP_TO_BACK * len(rule_words)


def _entries(text: str) -> list[_Entry]:
    fields = read_object(text)
    if fields is None:
        raise ParseError("there is no JSON object in the reply")
    fields = _renamed(fields, {"operations": "entries", "updates": "entries"})
    if "entries" not in fields:
        if "keep" in fields:
            return []
        if "text" not in fields:
            raise ParseError('the JSON object has no field "entries"')
        fields = {"entries": [fields]}
    names = {"type": "op", "operation": "op", "content": "text", "sources": "reflections"}
    rows = [_renamed(row, names) for row in _as_objects(fields["entries"])][:MAX_ENTRIES]
    try:
        return _Entries.model_validate({"entries": rows}).entries
    except ValidationError as error:
        raise ParseError("the entries do not follow the schema") from error


def _typed(entry: _Entry, text: str, sources: frozenset[str], playbook: Rendered) -> list[Update]:
    """Return the updates that an entry asks for: unknown bullets are dropped, an entry that then lacks a
    bullet becomes an ADD, and a DELETE becomes one update per bullet."""
    op = _OPS.get(entry.op.strip().upper(), "ADD")
    known = (playbook.ids.get(_bare_id(bullet), "") for bullet in entry.bullets)
    base = tuple(sorted({digest for digest in known if digest}))
    section, reason = section_key(entry.section), one_line(entry.reason)[:200]
    if op == "DELETE":
        return [Update("DELETE", section, "", sources, (digest,), reason) for digest in base]
    if not text:
        return []
    if op == "ADD" or not base:
        return [Update("ADD", section, text, sources, (), reason)]
    return [Update("UPDATE" if len(base) == 1 else "MERGE", section, text, sources, base, reason)]


def _bare_id(text: str) -> str:
    return one_line(text).strip("[]()'\"`., ")[:64]


def _cited_ids(cited: Sequence[str], known: Mapping[str, Any]) -> list[str]:
    """Return the cited ids that exist, once each; a lesson's id (``r-00017.2``) cites its reflection."""
    names = []
    for text in cited:
        bare = _bare_id(text)
        names.append(bare if bare in known else bare.partition(".")[0])
    return [one for one in dict.fromkeys(names) if one in known]
