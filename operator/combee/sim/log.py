"""The log of answered requests, one JSON line each, so that tests can prove nothing was asked twice."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import IO


class AnswerLog:
    """Appends ``{"n", "request", "role", "status", "time", "seconds"}``; digests only, never prompts.

    Status 0 means that no answer was sent. ``time`` (seconds since 1970) and ``seconds`` show which requests
    were in flight when something was killed.
    """

    def __init__(self, path: Path | None) -> None:
        self._count = 0
        self._file: IO[str] | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def write(self, digest: str, role: str, status: int, seconds: float = 0.0) -> None:
        """Append one line and flush it."""
        self._count += 1
        if self._file is not None:
            line = {"n": self._count, "request": digest, "role": role, "status": status}
            line |= {"time": round(time.time(), 3), "seconds": round(seconds, 3)}
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
