"""From pydantic's JSON schema of a model to the structural OpenAPI schema that a CRD carries.

What a person writes keeps its bounds, defaults and rules. A status is the operator's own word: only
its structure is kept, so that an operator of a newer version is never refused by an older CRD.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from combee.api.cel_table import rules_for
from combee.api.common import SCALAR_KEY, Model, Rule
from combee.api.fields import fields_of, model_of
from combee.api.playbook import RunTemplate

Schema = dict[str, Any]
OPAQUE: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_BOUNDS = ("enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties")
_FORMATS = {"integer": "int64", "number": "double"}


def spec_schema(root: type[Model]) -> Schema:
    """The structural schema of what people write in a kind of object, rules and defaults included."""
    return _Spec(root).convert({"$ref": root.__name__})


def status_schema(root: type[Model]) -> Schema:
    """The structure of a status: types and descriptions, no bounds."""
    return _Status(root).convert({"$ref": root.__name__})


class _Converter:
    """Turns schemas of one root model; a recursion over plain data."""

    def __init__(self, root: type[Model]) -> None:
        whole = root.model_json_schema(by_alias=True)
        self._defs: Mapping[str, Schema] = {**whole.pop("$defs", {}), root.__name__: whole}
        self._models = _models(root)

    def convert(self, node: Schema, *, in_list: bool = False) -> Schema:
        """``node`` as a structural schema."""
        node, model = self._inline(node)
        if node.get("type") == "object" and "properties" in node:
            made = self._object(node, in_list)
        elif node.get("type") == "object" and isinstance(node.get("additionalProperties"), dict):
            made = {"type": "object", "additionalProperties": self.convert(node["additionalProperties"])}
        elif node.get("type") == "array":
            made = {"type": "array", "items": self.convert(node["items"], in_list=True)}
            made |= {"x-kubernetes-list-type": node.get("x-kubernetes-list-type", "atomic")}
            made |= {key: node[key] for key in ("x-kubernetes-list-map-keys",) if key in node}
        elif "type" in node and node["type"] != "object":
            made = _scalar(node)
        else:
            made = dict(OPAQUE)
        words = {"description": node["description"]} if node.get("description") else {}
        made = words | made | self._more(node, model, made, in_list)
        return words | unexplained(made) if model is RunTemplate else made

    def _inline(self, node: Schema) -> tuple[Schema, type[Model] | None]:
        """``node`` with references and "or null" resolved, and the model it is of."""
        model = None
        while "$ref" in node or "anyOf" in node:
            node = dict(node)
            if "anyOf" in node:
                (inner,) = (member for member in node.pop("anyOf") if member.get("type") != "null")
            else:
                name = node.pop("$ref").rsplit("/", 1)[-1]
                inner, model = self._defs[name], self._models.get(name)
            node = {**inner, **node}
        if "const" in node:
            node = {**node, "enum": [node["const"]]}
        return node, model

    def _object(self, node: Schema, in_list: bool) -> Schema:
        required = self._required(node)
        inner = {name: self.convert(value, in_list=in_list) for name, value in node["properties"].items()}
        for name, value in inner.items():
            if self._filled_in(node, name) and not in_list and (defaults := _defaults(value)):
                value["default"] = defaults
        return {"type": "object", **({"required": required} if required else {}), "properties": inner}

    def _required(self, node: Schema) -> list[str]:
        return list(node.get("required", ()))

    def _filled_in(self, node: Schema, name: str) -> bool:
        """Whether an absent part is written out with the defaults of its fields."""
        field = node["properties"][name]
        return not (name in node.get("required", ()) or "default" in field or "x-combee-default" in field)

    def _more(self, node: Schema, model: type[Model] | None, made: Schema, in_list: bool) -> Schema:
        raise NotImplementedError


class _Spec(_Converter):
    def _more(self, node: Schema, model: type[Model] | None, made: Schema, in_list: bool) -> Schema:
        more: Schema = {key: node[key] for key in _BOUNDS if key in node}
        for key, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if key in node:
                more |= {bound: node[key], key: True}
        if not in_list and node.get("default") not in (None, [], {}):
            more["default"] = node["default"]
        return more | validations(rules_for(model, node.get(SCALAR_KEY)))


class _Status(_Converter):
    def _required(self, node: Schema) -> list[str]:
        return [name for name in ("type",) if name in node["properties"] and "status" in node["properties"]]

    def _filled_in(self, node: Schema, name: str) -> bool:
        return False

    def _more(self, node: Schema, model: type[Model] | None, made: Schema, in_list: bool) -> Schema:
        return {}


def _defaults(made: Schema) -> Schema:
    """The defaults of an object's fields: rules look at a default before the API server fills in more."""
    fields = made.get("properties", {}).items()
    return {name: value["default"] for name, value in fields if "default" in value}


def _scalar(node: Schema) -> Schema:
    kind = node["type"]
    if node.get(SCALAR_KEY) == "Quantity":
        return {"x-kubernetes-int-or-string": True}
    return {"type": kind, **({"format": _FORMATS[kind]} if kind in _FORMATS else {})}


def unexplained(schema: Schema) -> Schema:
    """``schema`` without a word to people: they stand once, where the kind itself is defined."""
    made = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in made:
        made["properties"] = {name: unexplained(value) for name, value in made["properties"].items()}
    return made | {key: unexplained(made[key]) for key in ("items", "additionalProperties") if key in made}


def validations(rules: list[Rule]) -> Schema:
    """``rules`` as a schema carries them."""
    made = [
        {"rule": rule.cel, "message": rule.message, **({"fieldPath": rule.field} if rule.field else {})}
        for rule in rules
    ]
    return {"x-kubernetes-validations": made} if made else {}


def _models(root: type[Model]) -> dict[str, type[Model]]:
    """Every model under ``root``, by name."""
    by_name = {root.__name__: root}
    for field in fields_of(root).values():
        if (inner := model_of(field.annotation)) is not None and inner.__name__ not in by_name:
            by_name |= _models(inner)
    return by_name
