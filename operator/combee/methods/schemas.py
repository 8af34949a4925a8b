"""Writing the JSON schemas of structured answers. All fields are required, as strict servers demand."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def object_of(**properties: Schema) -> Schema:
    """Return the schema of an object of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def list_of(items: Schema, description: str = "") -> Schema:
    """Return the schema of a list of any length."""
    described = {"description": description} if description else {}
    return {"type": "array", **described, "items": items}


def text_of(description: str) -> Schema:
    """Return the schema of a text."""
    return {"type": "string", "description": description}
