"""Times as the Kubernetes API writes them. The clock is the caller's."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    """Return seconds since 1970 in the API's form, to the second; empty for 0.

    >>> rfc3339(1.0), rfc3339(0.0)
    ('1970-01-01T00:00:01Z', '')
    """
    return utc(seconds).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


def utc(seconds: float) -> datetime:
    """Return the moment that lies ``seconds`` after the start of 1970.

    >>> utc(86400.0).isoformat()
    '1970-01-02T00:00:00+00:00'
    """
    return datetime.fromtimestamp(seconds, UTC)


def seconds_of(moment: str) -> float:
    """Return the seconds since 1970 of a time that the API wrote. Raises ValueError when it is no time.

    >>> seconds_of("1970-01-01T00:00:01Z")
    1.0
    """
    return datetime.fromisoformat(moment).timestamp()
