"""The JSON schemas of ACE's structured answers. Ids are those that the prompt shows, and no others."""

from __future__ import annotations

from collections.abc import Collection

from combee.methods.schemas import Schema, ids_of, list_of, object_of, one_of, text_of

_OPS = one_of(("ADD", "UPDATE", "MERGE", "DELETE"))
_RULE_CHARS = 800
_MOST_CITED, _MOST_BULLETS, _MOST_LESSONS = 16, 8, 6


def rollout(bullets: Collection[str], *, reasoning: bool = True) -> Schema:
    """Return the schema of an answer with a playbook of these bullets, at once or after ``reasoning``.

    The bullets come first: SmolLM2-135M answers 26 of 36 questions right when it names what it relies on
    before it reasons, and 19 when after. Without reasoning the answer does."""
    cited = ids_of(bullets, _MOST_CITED, "id of a playbook bullet that is used")
    answer = text_of("the final answer and nothing else", 2000)
    if not reasoning:
        return object_of(answer=answer, bullets=cited)
    return object_of(
        bullets=cited, reasoning=text_of("the steps that lead to the answer", 2000), answer=answer
    )


def reflection(bullets: Collection[str]) -> Schema:
    """Return the schema of a review of an attempt that used these bullets."""
    verdict = one_of(("helpful", "harmful", "neutral"))
    tags = object_of(id=one_of(bullets, "id of a playbook bullet"), verdict=verdict) if bullets else None
    return object_of(
        lessons=list_of(text_of("one specific rule worth remembering", _RULE_CHARS), _MOST_LESSONS),
        diagnosis=text_of("what happened and why, in one paragraph", 1600),
        tags=None if tags is None else list_of(tags, len(bullets)),
    )


def _entry(bullets: Collection[str], program_chars: int = 0, **cited: Schema | None) -> Schema:
    text = "the rule in one line; empty for DELETE"
    if program_chars:
        text = "the rule in one line, or the program; empty for DELETE"
    return object_of(
        op=_OPS,
        section=text_of("the section the entry belongs to", 60),
        text=text_of(text, max(_RULE_CHARS, program_chars)),
        **cited,
        bullets=ids_of(bullets, _MOST_BULLETS, "id of a playbook bullet that is changed"),
        reason=text_of("why, in a few words", 160),
    )


def leaf(
    reflections: Collection[str], bullets: Collection[str], lessons: int, program_chars: int = 0
) -> Schema:
    """Return the schema of the entries distilled from these reflections, which hold ``lessons`` lessons.
    ``program_chars``: the most that one may have which is a program; 0 where none may be."""
    cited = ids_of(reflections, _MOST_CITED, "id of a reflection the entry comes from")
    return object_of(entries=list_of(_entry(bullets, program_chars, reflections=cited), max(1, lessons)))


def merge(entries: Collection[str], bullets: Collection[str]) -> Schema:
    """Return the schema of what becomes of these proposed entries."""
    group = ids_of(entries, len(entries), "id of a given entry")
    kept = None if group is None else list_of(group, len(entries), _KEEP)
    taken_in = ids_of(entries, len(entries), "id of an entry that this one takes in")
    return object_of(keep=kept, entries=list_of(_entry(bullets, entries=taken_in), len(entries)))


_KEEP = (
    "ids of given entries to carry on unchanged, word for word; those that say the same in one list, "
    "the clearest first"
)
