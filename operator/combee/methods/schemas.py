"""Writing the JSON schemas of structured answers. All fields are required, as strict servers demand."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def object_of(**properties: Schema) -> Schema:
    """An object of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def list_of(items: Schema, description: str = "") -> Schema:
    """A list of any length."""
    described = {"description": description} if description else {}
    return {"type": "array", **described, "items": items}


def text_of(description: str) -> Schema:
    """A text."""
    return {"type": "string", "description": description}
