"""Transports of httpx2 that connect only to what ``reach`` lets a pod ask, at addresses it looked at."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, TypeVar

import httpcore2
import httpx2

from combee.clients.reach import reach, resolve, resolve_now
from combee.errors import BugError

Transport = TypeVar("Transport", httpx2.HTTPTransport, httpx2.AsyncHTTPTransport)


def within_reach(transport: Transport) -> Transport:
    """Return ``transport``, which connects from now on only to what may be asked, be it a proxy."""
    if reach() is not None:
        pool: Any = transport._pool
        if not hasattr(pool, "_network_backend"):
            raise BugError("connections cannot be looked at: httpx2's pool has another form")
        waits = isinstance(transport, httpx2.HTTPTransport)
        pool._network_backend = _WaitingConnections() if waits else _Connections()
    return transport


class _Connections(httpcore2.AnyIOBackend):
    """Opens connections to addresses that were looked at."""

    async def connect_tcp(self, host: str, port: int, *arguments: Any, **options: Any) -> Any:
        """Connect to the first address that answers."""
        try:
            async with asyncio.timeout(options.get("timeout")):
                *others, last = await resolve(host, port)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host} is not resolved") from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return await super().connect_tcp(address, port, *arguments, **options)
        return await super().connect_tcp(last, port, *arguments, **options)


class _WaitingConnections(httpcore2.SyncBackend):
    """Does as ``_Connections``."""

    def connect_tcp(self, host: str, port: int, *arguments: Any, **options: Any) -> Any:
        """Connect to the first address that answers."""
        try:
            *others, last = resolve_now(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        for address in others:
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return super().connect_tcp(address, port, *arguments, **options)
        return super().connect_tcp(last, port, *arguments, **options)
