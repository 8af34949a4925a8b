"""A pod's log as lines for people. Pure: its JSON lines in, plain lines out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from combee.report.text import visible

_TOLD = ("time", "level", "run", "iteration", "step", "shard", "message")


def readable(line: str) -> str:
    """One line; what is not ours stays as it is, but for what could drive a terminal.

    >>> readable('{"time":"2026-01-02T03:04:05.678+00:00","level":"info","step":"s","message":"stage","stage":"map"}')
    '03:04:05 info     stage (stage map)'
    >>> readable("plain")
    'plain'
    """
    said = parsed(line)
    if said is None:
        return visible(line)
    more = ", ".join(f"{key} {value}" for key, value in said.items() if key not in _TOLD)
    clock, level = visible(str(said.get("time", ""))[11:19]), visible(str(said.get("level", "")))
    return f"{clock} {level:<8} {visible(said['message'] + (f' ({more})' if more else ''))}"


def parsed(line: str) -> dict[str, Any] | None:
    """A line of ours as data; None for any other."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and isinstance(said.get("message"), str) else None


def last_words(lines: Iterable[str]) -> str:
    """What a pod that failed said last: its last error, else its last line; empty when it said nothing."""
    words = ""
    error = ""
    for line in lines:
        said = parsed(line)
        if said is not None and said.get("level") == "error":
            error = str(said["message"])
        elif line.strip():
            words = str(said["message"]) if said is not None else line.strip()
    return visible(error or words)
