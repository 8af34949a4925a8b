"""The JSON schemas of structured answers. All fields are required, as strict servers demand."""

from __future__ import annotations

from typing import Any


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], description: str = "") -> dict[str, Any]:
    described = {"description": description} if description else {}
    return {"type": "array", **described, "items": items}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_OPS = {"type": "string", "enum": ["ADD", "UPDATE", "MERGE", "DELETE"]}

ROLLOUT: dict[str, Any] = _object(
    reasoning=_text("the steps that lead to the answer"),
    bullets=_list(_text("id of a playbook bullet that was used")),
    answer=_text("the final answer and nothing else"),
)

REFLECTION: dict[str, Any] = _object(
    diagnosis=_text("what happened and why, in one paragraph"),
    lessons=_list(_text("one specific rule worth remembering")),
    tags=_list(
        _object(
            id=_text("id of a playbook bullet"),
            verdict={"type": "string", "enum": ["helpful", "harmful", "neutral"]},
        )
    ),
)

LEAF: dict[str, Any] = _object(
    entries=_list(
        _object(
            op=_OPS,
            section=_text("the section the entry belongs to"),
            text=_text("the rule in one line; empty for DELETE"),
            reflections=_list(_text("id of a reflection the entry comes from")),
            bullets=_list(_text("id of a playbook bullet that is changed")),
            reason=_text("why, in a few words"),
        )
    )
)

MERGE: dict[str, Any] = _object(
    keep=_list(
        _list(_text("id of a given entry")),
        "ids of given entries to carry on unchanged, word for word; those that say the same in one list, "
        "the clearest first",
    ),
    entries=_list(
        _object(
            op=_OPS,
            section=_text("the section the entry belongs to"),
            text=_text("the rule in one line; empty for DELETE"),
            entries=_list(_text("id of an entry that this one takes in")),
            bullets=_list(_text("id of a playbook bullet that is changed")),
            reason=_text("why, in a few words"),
        )
    ),
)
