"""Logs as JSON lines, with a record's extra values in their own fields."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_KNOWN = frozenset(vars(logging.makeLogRecord({})))
_TALKATIVE = ("kopf", "aiohttp", "asyncio", "kubernetes", "kubernetes_asyncio")


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its line end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: _plain(v) for k, v in vars(record).items() if k not in _KNOWN and not k.startswith("_")}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def to_stderr(level: str) -> None:
    """Write all logs of this process to standard error as JSON lines; libraries log only warnings and
    errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
