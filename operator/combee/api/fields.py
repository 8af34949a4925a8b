"""What the fields of the models are, in words: for error messages and for the reference."""

from __future__ import annotations

import types
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from combee.api.common import Model, yaml_name
from combee.api.extension import Names

Loc = Sequence[str | int]


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields by YAML name, in order."""
    return {field.alias or yaml_name(attribute): field for attribute, field in model.model_fields.items()}


def plain(annotation: Any) -> Any:
    """Return the annotation without Annotated and None; a true union stays."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [plain(a) for a in get_args(annotation) if a is not type(None)]
        return members[0] if len(members) == 1 else annotation
    return annotation


def item_of(annotation: Any) -> Any:
    """Return the item type of a list, or None."""
    base = plain(annotation)
    return plain(get_args(base)[0]) if get_origin(base) is tuple else None


def model_of(annotation: Any) -> type[Model] | None:
    """Return the model that a field, or a list's items, hold."""
    base = item_of(annotation) or plain(annotation)
    return base if isinstance(base, type) and issubclass(base, Model) else None


def choices(annotation: Any) -> tuple[str, ...]:
    """Return the allowed words of an enumeration, or none."""
    base = plain(annotation)
    if isinstance(base, type) and issubclass(base, StrEnum):
        return tuple(base)
    if get_origin(base) is not Literal:
        return ()
    return tuple("true" if value is True else str(value) for value in get_args(base))


def words_of(field: FieldInfo) -> tuple[str, ...]:
    """Return the words that a field may hold, or none: an enumeration's, or names, with those of packages."""
    named = next((one for one in field.metadata if isinstance(one, Names)), None)
    return named.words() if named is not None else choices(field.annotation)


def locate(root: type[Model], loc: Loc) -> tuple[type[Model] | None, FieldInfo | None]:
    """Return the model around a location and the field at it; None where the location leaves the models."""
    model: type[Model] | None = root
    around: type[Model] | None = root
    field: FieldInfo | None = None
    for part in loc:
        if isinstance(part, int):
            continue
        if model is None:
            return None, None
        around, field = model, fields_of(model).get(part)
        model = model_of(field.annotation) if field is not None else None
    return around, field


def places_of(name: str, root: type[Model]) -> Sequence[str]:
    """Return the paths of all fields that are called ``name``."""
    return _places(root).get(name, ())


@cache
def _places(root: type[Model]) -> dict[str, list[str]]:
    """Return the paths of all fields by their names: a manifest may have thousands of unknown ones."""
    by_name: dict[str, list[str]] = {}
    for key, field in fields_of(root).items():
        by_name.setdefault(key, []).append(key)
        inner = model_of(field.annotation)
        for name, paths in (_places(inner) if inner is not None else {}).items():
            by_name.setdefault(name, []).extend(f"{key}.{path}" for path in paths)
    return by_name


def bounds(field: FieldInfo) -> str:
    """Return the bounds in words: ``from 1 to 100``, ``above 0``; empty without bounds."""
    low = high = ""
    for rule in field.metadata:
        if (value := getattr(rule, "ge", None)) is not None:
            low = f"from {value}"
        elif (value := getattr(rule, "gt", None)) is not None:
            low = f"above {value}"
        elif (value := getattr(rule, "le", None)) is not None and value < 2**53 - 1:
            high = f"to {value}" if low.startswith("from") else f"at most {value}"
        elif (value := getattr(rule, "lt", None)) is not None:
            high = f"below {value}"
    if low.startswith("above") and high:
        high = f"and {high}"
    if low.startswith("from") and not high:
        low = f"of {low.removeprefix('from ')} or more"
    return " ".join(part for part in (low, high) if part)


def expects(field: FieldInfo, *, item: bool = False) -> str:
    """Return what may be written in a field (or in an item of its list), as a noun phrase."""
    annotation = item_of(field.annotation) if item else plain(field.annotation)
    if words := choices(annotation) if item else words_of(field):
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    limits = "" if item else bounds(field)
    if annotation is bool:
        return "true or false"
    if annotation is int:
        return f"a whole number {limits}".strip()
    if annotation is float:
        return f"a number {limits}".strip()
    if annotation is str:
        return "text"
    if get_origin(annotation) is tuple:
        return "a list"
    if (inner := model_of(annotation)) is not None:
        return f"a mapping with {', '.join(fields_of(inner))}"
    return "a mapping"


def default_of(field: FieldInfo) -> str:
    """Return the default as YAML writes it; ``""`` for none, for a mapping, and for required fields."""
    if field.is_required() or field.default_factory is not None or field.default is None:
        return ""
    return yaml_text(field.default)


def yaml_text(value: Any) -> str:
    """Return a scalar or list of scalars as YAML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(yaml_text(v) for v in value)}]"
    return '"Off"' if value == "Off" else str(value)
