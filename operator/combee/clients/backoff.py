"""How long to wait before the next attempt. Pure: the same call waits equally long in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 120.0


def wait_seconds(key: str, attempt: int, retry_after: float | None) -> float:
    """Return the seconds to wait: full jitter (uniform below ``min(30, 0.5 * 2^(attempt - 1))`` s), drawn
    from (key, attempt).

    A server's Retry-After, capped at 120 s, is waited for in full and the jitter comes on top, so that
    callers which were refused together do not come back together.
    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """
    ceiling = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(attempt - 1, 30))
    digest = hashlib.sha256(f"{key}:{attempt}".encode()).digest()
    jitter = ceiling * int.from_bytes(digest[:8], "big") / 2**64
    return jitter + min(max(retry_after or 0.0, 0.0), LONGEST_RETRY_AFTER_SECONDS)


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds of ``retry-after-ms`` or ``Retry-After`` (seconds or a date); None when absent
    or unreadable.

    A date is compared with the server's own ``Date`` when it sends one, else with ``now`` (Unix
    seconds): the server's clock may be wrong, but the difference of its dates is right.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    retry_date = _date(text)
    server_date = _date(headers.get("date"))
    if retry_date is None:
        return None
    return max(0.0, retry_date.timestamp() - (server_date.timestamp() if server_date else now))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0.0 <= value < float("inf") else None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
