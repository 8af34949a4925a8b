"""Errors on the way to a person: one line on stderr, one exit code."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Callable

from combee.errors import CombeeError

USER_ERROR = 2


def say(error: CombeeError, *, as_json: bool = False) -> None:
    """``error: what, where, what to do`` on stderr; with ``as_json`` an object on stdout too."""
    if as_json:
        print(jsonlib.dumps({"event": "error", "code": error.code, "message": str(error)}), flush=True)  # noqa: T201
    print(f"error: {error}", file=sys.stderr)  # noqa: T201


def guarded(work: Callable[[], int], *, as_json: bool = False) -> int:
    """``work()``; a CombeeError that it raises is the user's: said in one line, exit code 2."""
    try:
        return work()
    except CombeeError as error:
        say(error, as_json=as_json)
        return USER_ERROR
