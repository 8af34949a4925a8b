"""The types of an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def raw_path(scope: Scope) -> str:
    """The path as the client wrote it, without the query."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.decode("latin-1").split("?", 1)[0]


def header(scope: Scope, name: bytes) -> str:
    """The first header of a name; empty when there is none."""
    value: bytes = next((value for one, value in scope["headers"] if one == name), b"")
    return value.decode("latin-1")
