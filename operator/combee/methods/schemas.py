"""Writing the JSON schemas of structured answers. All fields are required, as strict servers demand.

Every text and every list of a schema has a bound. Where a server decodes under the schema, a model that
repeats itself runs into a bound instead of the token limit, and the fields behind it are still written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from combee.algo.tokens import BYTES_PER_TOKEN
from combee.records import Prompt

Schema = dict[str, Any]

MOST_IDS = 256
"""More ids than this are no enum: servers compile each value, and some refuse more."""
ID_CHARS = 40
"""The bound of an id that is not one of an enum."""
LEAST_SHARE, SHORT_CHARS, FEW_ITEMS = 4, 40, 4
"""Lists lose items before texts become shorter than one in LEAST_SHARE of what they should be, or than
SHORT_CHARS; beyond FEW_ITEMS they shrink together."""
TEXT_CHARS, ITEMS = 4_000, 64
"""The bounds of a text and of a list whose schema states none."""
STEPS = 1000
ROOM_SHARE = 0.8
"""The share of the room that what is written fills at most; the rest is for escapes and white space."""


def object_of(**fields: Schema | None) -> Schema:
    """Return the schema of an object of these fields and no others; those that are None are left out."""
    properties = {name: schema for name, schema in fields.items() if schema is not None}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def list_of(items: Schema, most: int, description: str = "") -> Schema:
    """Return the schema of a list of at most ``most`` items."""
    described = {"description": description} if description else {}
    return {"type": "array", **described, "items": items, "maxItems": most}


def text_of(description: str, most_chars: int) -> Schema:
    """Return the schema of a text of at most ``most_chars`` characters."""
    return {"type": "string", "description": description, "maxLength": most_chars}


def one_of(values: Collection[str], description: str = "") -> Schema:
    """Return the schema of one of these texts; of any short text where they are too many to list."""
    if len(values) > MOST_IDS:
        return text_of(description, ID_CHARS)
    described = {"description": description} if description else {}
    return {"type": "string", **described, "enum": list(values)}


def ids_of(ids: Collection[str], most: int, description: str) -> Schema | None:
    """Return the schema of a list of some of ``ids``; None where there are none to name: in a list that must
    stay empty, a model can go on with white space for ever."""
    return list_of(one_of(ids, description), min(most, len(ids))) if ids else None


def longest(schema: Schema) -> int:
    """Return the most characters of a JSON value that follows the schema, written without white space.

    A part of another kind than ``bounded`` knows (a number, a choice of schemas) counts as ``ID_CHARS``.
    """
    if "enum" in schema:
        return max(len(str(value)) for value in schema["enum"]) + 2
    kind = schema.get("type")
    if kind == "string":
        return int(schema.get("maxLength", TEXT_CHARS)) + 2
    if kind == "array":
        return 2 + int(schema.get("maxItems", ITEMS)) * (longest(schema.get("items", {})) + 1)
    if kind == "object":
        return 2 + sum(len(name) + 4 + longest(part) for name, part in schema.get("properties", {}).items())
    return ID_CHARS


def bounded(schema: Schema, room_tokens: int) -> Schema:
    """Return the schema with bounds under which a reply fits into ``room_tokens``, as estimated.

    A text or list without a bound gets one. First all texts shrink alike, but not below a quarter of their
    bounds or ``SHORT_CHARS``; then lists, but not below ``FEW_ITEMS``; then both, down to one character and
    one item. Where names and ids alone are longer than the room, the schema comes back at its smallest.
    """
    room = int(room_tokens * BYTES_PER_TOKEN * ROOM_SHARE)
    low, high = 0, 3 * STEPS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if longest(_scaled(schema, middle)) <= room else (low, middle - 1)
    return _scaled(schema, low)


def _scaled(schema: Schema, step: int) -> Schema:
    """Return the schema on the way from its smallest (0) to its own bounds (3 * STEPS)."""
    kind = schema.get("type")
    if kind == "string" and "enum" not in schema:
        most = int(schema.get("maxLength", TEXT_CHARS))
        least = min(most, max(SHORT_CHARS, most // LEAST_SHARE))
        return schema | {"maxLength": _between(1, least, most, step, step - 2 * STEPS)}
    if kind == "array":
        most = int(schema.get("maxItems", ITEMS))
        few = _between(min(1, most), min(FEW_ITEMS, most), most, step, step - STEPS)
        return schema | {"maxItems": few, "items": _scaled(schema.get("items", {}), step)}
    if kind == "object" and "properties" in schema:
        parts = schema["properties"].items()
        return schema | {"properties": {name: _scaled(part, step) for name, part in parts}}
    return schema


def _between(smallest: int, least: int, most: int, first: int, then: int) -> int:
    """Return a bound: ``smallest`` to ``least`` as ``first`` goes from 0 to STEPS, then to ``most``."""
    first, then = min(STEPS, first), min(STEPS, max(0, then))
    return max(smallest, least * first // STEPS) + (most - least) * then // STEPS


def sized(prompt: Prompt, answer_tokens: int) -> Prompt:
    """Return the prompt with this room for the answer, and the bounds that follow from it."""
    schema = None if prompt.schema is None else bounded(prompt.schema, answer_tokens)
    return replace(prompt, schema=schema, max_output_tokens=answer_tokens)
