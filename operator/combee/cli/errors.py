"""Errors on the way to a person: one line on stderr, one exit code."""

from __future__ import annotations

import contextlib
import json as jsonlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from combee.errors import CombeeError

USER_ERROR = 2
OUR_ERROR = 5
STOPPED = 130


def say(error: CombeeError, *, as_json: bool = False) -> None:
    """Write ``error: what, where, what to do`` to stderr; with ``as_json`` an error event to stdout too."""
    if as_json:
        fields = {name: getattr(error, name) for name in ("code", "what", "where", "fix")}
        write(sys.stdout, jsonlib.dumps({"event": "error", "seconds": 0.0, **fields}) + "\n")
    say_line(str(error))


def say_line(text: str) -> None:
    """Write ``error: text`` to stderr, on one line whatever is in it."""
    line = "".join(char if char.isprintable() else " " for char in text)
    write(sys.stderr, f"error: {' '.join(line.split())}\n")


def write(stream: TextIO, text: str) -> None:
    """Write and flush. Characters that the stream cannot hold become question marks. A reader that has gone
    (``| head -1``) is no error: whatever else is written is lost."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        forget(stream)


def forget(stream: TextIO) -> None:
    """Point a stream whose reader has gone at nothing, so that no later flush fails."""
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def guarded(work: Callable[[], int], *, as_json: bool = False) -> int:
    """Return ``work()``. A CombeeError that it raises is the user's: one line says it, the exit code is 2."""
    try:
        return work()
    except CombeeError as error:
        say(error, as_json=as_json)
        return USER_ERROR
