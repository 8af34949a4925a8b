"""pydantic's errors as ours: the path, the value, and what would be right.

A value is not shown where it could be a secret: under any field whose name speaks of a secret or
key, and in addresses with an ``@``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from combee.api.common import Model, yaml_name
from combee.api.fields import Loc, default_of, expects, fields_of, locate, places_of, words_of
from combee.errors import ManifestError

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_SECRET = re.compile(r"secret|apikey|password|token\Z", re.IGNORECASE)
_MANY = 4


def path_text(loc: Loc) -> str:
    """Return a location as text: ``("spec", "batching", "sizes", 2)`` -> ``spec.batching.sizes[2]``."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.match(part):
            text += f".{part}" if text else part
        else:
            text += f"[{part[:60]!r}]"
    return text


def path_of(text: str) -> tuple[str | int, ...]:
    """Return the location of a path: ``spec.engines[0]`` -> ``("spec", "engines", 0)``."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", text) if part)


def shown(value: object, loc: Loc) -> str:
    """Return a value for a message: short, one line, never a secret."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if any(isinstance(part, str) and _SECRET.search(part) for part in loc) or "@" in str(value):
        return "the value (not shown)"
    text = repr(value)
    return text if len(text) <= 62 else f"{text[:58]}...{text[-1]}"


def closest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that ``word`` was probably meant to be, whatever its case or underscores."""
    folded = {name.casefold(): name for name in known}
    wanted = yaml_name(word).casefold() if "_" in word else word.casefold()
    wanted = wanted.replace("-", "")
    if wanted in folded:
        return folded[wanted]
    matches = difflib.get_close_matches(wanted[:80], list(folded), n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def explain(error: ValidationError, *, root: type[Model], where: Callable[[Loc], str]) -> list[ManifestError]:
    """Return every problem as a ManifestError, unknown fields (which often explain the rest) first.

    ``where`` turns a location into the words in front of the message.
    """
    details = sorted(error.errors(include_url=False), key=lambda d: d["type"] != "extra_forbidden")
    problems = [_problem(detail, root) for detail in details]
    return [ManifestError(what, where=where(loc), fix=fix) for loc, what, fix in problems]


def summary(problems: Sequence[ManifestError]) -> ManifestError:
    """Return the first problem, with how many more there are and where."""
    first, rest = problems[0], problems[1:]
    if not rest:
        return first
    places = "; ".join(problem.where for problem in rest[:_MANY])
    more = f"{len(rest)} more: {places}{' ...' if len(rest) > _MANY else ''}."
    return ManifestError(first.what, where=first.where, fix=f"{first.fix} ({more})".strip())


def _problem(detail: ErrorDetails, root: type[Model]) -> tuple[Loc, str, str]:
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    kind, value = detail["type"], detail["input"]
    around, field = locate(root, loc)
    if kind == "rule":
        what, fix = detail["ctx"]["what"], detail["ctx"]["fix"]
        return loc, what if isinstance(value, dict | list) else f"{what}: {shown(value, loc)}", fix
    if kind == "extra_forbidden":
        return loc, f"unknown field {str(loc[-1])[:60]!r}", _known(str(loc[-1]), around, root)
    if field is None:
        what = "nothing is written here" if value is None else f"{shown(value, loc)} cannot stand here"
        return loc, what, "Write text, in quotes."
    if kind == "missing":
        return (
            loc,
            "this field is required and missing",
            f"Add {loc[-1]}: {expects(field)}. {field.description}",
        )
    item = bool(loc) and isinstance(loc[-1], int)
    wanted = expects(field, item=item)
    default = "" if item else default_of(field)
    right = f"Write {wanted}{f'; the default is {default}' if default else ''}."
    if value is None:
        return loc, "nothing is written here", f"Remove the line or complete it. {right}"
    return (
        loc,
        _what(kind, detail.get("ctx", {}), value, loc, wanted),
        _meant(value, field) + right,
    )


def _known(name: str, around: type[Model] | None, root: type[Model]) -> str:
    names = list(fields_of(around)) if around is not None else []
    if meant := closest(name, names):
        return f"Did you mean {meant}? Fields here: {', '.join(names)}."
    if places := places_of(name, root)[:3]:
        return f"It belongs at {' or '.join(places)}. Fields here: {', '.join(names)}."
    return f"Fields here: {', '.join(names)}."


def _meant(value: object, field: Any) -> str:
    words = words_of(field)
    meant = closest(value, words) if isinstance(value, str) and len(words) > 1 else None
    return f"Did you mean {meant}? " if meant else ""


def _what(kind: str, ctx: dict[str, Any], value: object, loc: Loc, wanted: str) -> str:
    text = shown(value, loc)
    if kind.startswith(("greater_than", "less_than")):
        return f"{text} is out of bounds"
    if kind == "literal_error":
        return f"{text} is not allowed"
    if kind in ("string_too_long", "too_long") and isinstance(value, str):
        return f"{len(str(value))} characters, more than the {ctx['max_length']} allowed"
    if kind in ("string_too_short", "too_short") and isinstance(value, str):
        return "the text is empty"
    if kind == "too_long":
        return f"more than the {ctx['max_length']} items allowed"
    if kind == "too_short":
        return f"fewer than the {ctx['min_length']} items needed"
    return f"{text} is not {wanted}"
