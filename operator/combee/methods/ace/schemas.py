"""The JSON schemas of ACE's structured answers."""

from __future__ import annotations

from combee.methods.schemas import Schema, list_of, object_of, text_of

_OPS = {"type": "string", "enum": ["ADD", "UPDATE", "MERGE", "DELETE"]}

ROLLOUT = object_of(
    reasoning=text_of("the steps that lead to the answer"),
    bullets=list_of(text_of("id of a playbook bullet that was used")),
    answer=text_of("the final answer and nothing else"),
)

REFLECTION = object_of(
    diagnosis=text_of("what happened and why, in one paragraph"),
    lessons=list_of(text_of("one specific rule worth remembering")),
    tags=list_of(
        object_of(
            id=text_of("id of a playbook bullet"),
            verdict={"type": "string", "enum": ["helpful", "harmful", "neutral"]},
        )
    ),
)


def _entry(**cited: Schema) -> Schema:
    return object_of(
        op=_OPS,
        section=text_of("the section the entry belongs to"),
        text=text_of("the rule in one line; empty for DELETE"),
        **cited,
        bullets=list_of(text_of("id of a playbook bullet that is changed")),
        reason=text_of("why, in a few words"),
    )


LEAF = object_of(
    entries=list_of(_entry(reflections=list_of(text_of("id of a reflection the entry comes from"))))
)

MERGE = object_of(
    keep=list_of(
        list_of(text_of("id of a given entry")),
        "ids of given entries to carry on unchanged, word for word; those that say the same in one list, "
        "the clearest first",
    ),
    entries=list_of(_entry(entries=list_of(text_of("id of an entry that this one takes in")))),
)
