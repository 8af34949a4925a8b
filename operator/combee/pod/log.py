"""What a pod says: one JSON object a line on stderr, never a prompt, a row or a secret."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TextIO

from combee.assembly.crash import bug_text
from combee.errors import BugError, CombeeError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
PROGRESS_SECONDS = 10.0
DONE, FAILED, BUG = 0, 1, 70
"""The exit codes of a pod's program; 1 may pass another time, 70 is a bug."""


@dataclass(slots=True)
class PodLog:
    """Writes lines with time, level, message and subject (run, iteration, step, shard, modelRole)."""

    about: Mapping[str, object] = field(default_factory=dict)
    level: str = "INFO"
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    begun: float = field(default_factory=time.monotonic)
    """when the program started, on ``time.monotonic``."""

    def say(self, level: str, message: str, **more: object) -> None:
        """Write one line, unless its level is below the log's."""
        if level in LEVELS and self.level in LEVELS and LEVELS.index(level) < LEVELS.index(self.level):
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level.lower(),
            **self.about,
            **more,
            "message": " ".join(message.split()),
        }
        self.stream.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        self.stream.flush()

    def guarded(self, work: Callable[[], None], tell: Callable[[str], None] = lambda error: None) -> int:
        """Do the work; return the exit code. Nothing is raised: errors are logged and given to ``tell``."""
        try:
            work()
        except CombeeError as error:
            self.say("ERROR", str(error), error=error.code)
            tell(str(error))
            return BUG if isinstance(error, BugError) else FAILED
        except Exception as error:
            self.say("ERROR", bug_text(error), error=BugError.code)
            tell(bug_text(error))
            return BUG
        return DONE


@dataclass(slots=True)
class LogProgress:
    """Implements ``work.context.Progress`` with a line as a stage begins, then at most one in ten seconds."""

    log: PodLog
    clock: Callable[[], float] = time.monotonic
    stage: str = ""
    done: int = 0
    total: int = 0
    said_at: float = 0.0
    noted: set[str] = field(default_factory=set)

    def begin(self, stage: str, total: int) -> None:
        """Start a stage of ``total`` units."""
        self.stage, self.done, self.total, self.said_at = stage, 0, total, self.clock()
        self.log.say("INFO", "stage", stage=stage, total=total)

    def advance(self, units: int = 1) -> None:
        """Count ``units`` more as done."""
        self.done += units
        if self.clock() - self.said_at >= PROGRESS_SECONDS:
            self.said_at = self.clock()
            self.log.say("INFO", "progress", stage=self.stage, done=self.done, total=self.total)

    def note(self, text: str) -> None:
        """Say something, once."""
        if text not in self.noted:
            self.noted.add(text)
            self.log.say("WARNING", text)
