"""JSON that a stranger wrote (a server, a model), as values that can be written down again."""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DEPTH = 64
"""Nothing that is read here says anything deeper."""
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""What reading a value of JSON raises that has another shape, or a number that no float holds."""


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, as ``plain`` does. Raises ValueError, and nothing else, for a text
    that holds none.

    >>> read_json('{"a": "\\\\ud800"}')
    {'a': '\ufffd'}
    """
    try:
        return plain(json.loads(text))
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def plain(value: Any, depth: int = MOST_DEPTH) -> Any:
    """Return a value of JSON with U+FFFD for its lone surrogates, which no file takes.

    Raises ValueError for NaN and infinities, which are no JSON, and for what is nested deeper than ``depth``.
    """
    if isinstance(value, str):
        return _well_formed(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it has a number that is not finite")
    if not isinstance(value, dict | list):
        return value
    if not depth:
        raise ValueError("it is nested too deep")
    if isinstance(value, list):
        return [plain(part, depth - 1) for part in value]
    return {plain(name): plain(part, depth - 1) for name, part in value.items()}


def finite(value: Any) -> float:
    """Return a number of JSON as a float. Raises an error of MALFORMED for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)


def _well_formed(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
