"""Derives the form of an answer from a JSON schema, or from the example in an instruction.

Names of fields are only hints: two forms of one shape are filled alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from combee.sim.prompts import TextCache

_OPERATION = re.compile(r"(?:ADD|UPDATE|MERGE|DELETE|KEEP|REPLACE|REMOVE|CREATE_META)", re.I)
_TAGS = frozenset({"helpful", "harmful", "neutral"})
_UNCHANGED = re.compile(r"\b(?:unchanged|verbatim|untouched|word for word|as (?:it is|they are))\b")
_IDS = re.compile(r"\bids?\b")
_CUE = re.compile(r"json|format|structure|schema", re.I)
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Form:
    """One node. ``kind``: object, array, string, number, integer, boolean, enum or null."""

    kind: str
    name: str = ""
    hint: str = ""
    """name and description, lower case."""
    description: str = ""
    """in lower case."""
    fields: tuple[Form, ...] = ()
    item: Form | None = None
    values: tuple[Any, ...] = ()
    """what it may be; empty: anything. Of ids to choose from the kind is string, of other choices enum."""
    nullable: bool = False

    def of(self, *kinds: str) -> tuple[Form, ...]:
        """Return the fields of these kinds, in order."""
        return tuple(f for f in self.fields if f.kind in kinds)

    def lists_of(self, *kinds: str) -> tuple[Form, ...]:
        """Return the fields that are lists of these kinds, in order."""
        return tuple(
            f for f in self.fields if f.kind == "array" and f.item is not None and f.item.kind in kinds
        )

    def is_operation(self) -> bool:
        """Return whether this is an enumeration of operations on an entry."""
        return self.kind == "enum" and any(_OPERATION.fullmatch(str(v)) for v in self.values)

    def is_tag(self) -> bool:
        """Return whether this is an enumeration of votes on a bullet."""
        return self.kind == "enum" and bool(_TAGS & {str(v).lower() for v in self.values})

    def keeps(self) -> bool:
        """Return whether this is a list of ids (or of groups of ids) of items to carry on unchanged."""
        inner = self.item.item if self.item is not None and self.item.kind == "array" else self.item
        is_list = self.kind == "array" and inner is not None and inner.kind == "string"
        return is_list and bool(_UNCHANGED.search(self.description) and _IDS.search(self.description))

    def walk(self) -> Iterator[Form]:
        """Yield this node and all below it."""
        yield self
        for child in self.fields:
            yield from child.walk()
        if self.item is not None:
            yield from self.item.walk()


def from_schema(schema: Mapping[str, Any]) -> Form:
    """Return the form of a JSON schema; $ref, anyOf with null, const and enum are supported."""
    return _node(schema, schema, "", 0)


def _node(node: Mapping[str, Any], root: Mapping[str, Any], name: str, depth: int) -> Form:
    node, nullable = _resolved(node, root)
    description = str(node.get("description", "")).lower()
    hint = f"{name.lower()} {description}"
    values = tuple(node["enum"]) if isinstance(node.get("enum"), list) else ()
    if "const" in node:
        values = (node["const"],)
    if values:
        non_null = tuple(v for v in values if v is not None)
        choice = "string" if _IDS.search(description) else "enum"
        return Form(choice, name, hint, values=non_null or values, nullable=nullable or None in values)
    kind = node.get("type")
    if isinstance(kind, list):
        nullable = nullable or "null" in kind
        kind = next((k for k in kind if k != "null"), "null")
    if kind == "object" or (kind is None and "properties" in node):
        too_deep = depth > _MAX_DEPTH
        children = {} if too_deep else node.get("properties") or {}
        fields = tuple(_node(child, root, key, depth + 1) for key, child in children.items())
        return Form("object", name, hint, fields=fields, nullable=nullable)
    if kind == "array":
        item = (
            _node(node.get("items") or {"type": "string"}, root, "", depth + 1)
            if depth <= _MAX_DEPTH
            else None
        )
        return Form("array", name, hint, description, item=item, nullable=nullable)
    return Form(str(kind or "string"), name, hint, nullable=nullable)


def _resolved(node: Mapping[str, Any], root: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    nullable = False
    for _ in range(_MAX_DEPTH):
        if isinstance(ref := node.get("$ref"), str) and ref.startswith("#/"):
            target: Any = root
            for part in ref[2:].split("/"):
                target = target.get(part, {}) if isinstance(target, Mapping) else {}
            node = target if isinstance(target, Mapping) else {}
            continue
        options = node.get("anyOf") or node.get("oneOf") or node.get("allOf")
        if not isinstance(options, list) or not options:
            break
        real = [o for o in options if isinstance(o, Mapping) and o.get("type") != "null"]
        nullable = nullable or len(real) < len(options)
        node = real[0] if real else {}
    return node, nullable


def from_example(text: str) -> Form | None:
    """Return the form of the last JSON object (or schema) that an instruction shows as its format, or
    None."""
    decoder = json.JSONDecoder()
    position = len(text)
    for _ in range(16):
        position = max(text.rfind("\n{", 0, position), text.rfind("\n[", 0, position))
        if position < 0:
            return None
        if not _CUE.search(text, max(0, position - 200), position):
            continue
        try:
            _, end = decoder.raw_decode(text, position + 1)
        except ValueError:
            continue
        form = _examples(text[position + 1 : end])
        if form.kind == "object" and form.fields:
            return form
    return None


def _of_example(text: str) -> Form:
    example = json.loads(text)
    return from_schema(example) if _is_schema(example) else _shape(example, "")


_examples: TextCache[Form] = TextCache(_of_example, 2_000_000)


def _is_schema(example: Any) -> bool:
    """Return whether the JSON in an instruction is a schema rather than an example."""
    return (
        isinstance(example, dict)
        and example.get("type") == "object"
        and isinstance(example.get("properties"), dict)
    )


def _shape(value: Any, name: str) -> Form:
    hint = name.lower()
    if isinstance(value, dict):
        return Form("object", name, hint, fields=tuple(_shape(v, k) for k, v in value.items()))
    if isinstance(value, list):
        return Form("array", name, hint, item=_shape(value[0], "") if value else Form("string"))
    if isinstance(value, bool):
        return Form("boolean", name, hint)
    if isinstance(value, int | float):
        return Form("number", name, hint)
    words = [w.strip() for w in re.split(r"[|/]", str(value))]
    if all(w.lower() in _TAGS for w in words):
        return Form("enum", name, hint, values=("helpful", "harmful", "neutral"))
    if all(_OPERATION.fullmatch(w) for w in words):
        return Form("enum", name, hint, values=tuple(words))
    return Form("string", name, hint)
