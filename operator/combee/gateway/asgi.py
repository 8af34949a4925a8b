"""The types of an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def raw_path(scope: Scope) -> str:
    """Return the path as the client wrote it, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").split("?", 1)[0]


def header(scope: Scope, name: bytes) -> str:
    """Return the first header called ``name``, or an empty string when there is none."""
    value: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return value.decode("latin-1")
