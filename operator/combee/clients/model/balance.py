"""Balancing calls over the servers behind one host name.

A headless Service's name resolves to the addresses of all ready pods. A keep-alive connection would
stay with one of them for ever, so the client chooses: each request goes to the address with the
fewest requests in flight. Names are resolved again every few seconds, and at once after a failure.
An address that could not be reached is avoided for a while, unless there is no other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2

from combee.clients.reach import resolve

RESOLVE_SECONDS = 5.0
AVOID_SECONDS = 10.0

SERVER = "server"
"""The extension of a request that names the address it must go to."""

Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(slots=True)
class _Server:
    address: str
    transport: httpx2.AsyncBaseTransport
    in_flight: int = 0
    requests: int = 0
    """How many requests it ever got; this breaks ties, so that idle servers take turns."""
    avoid_until: float = 0.0
    listed: bool = True
    """Whether the name still resolves to it."""


class BalancedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to the least busy address of its host. ``lane`` makes the transport of an
    address."""

    def __init__(
        self,
        lane: Callable[[], httpx2.AsyncBaseTransport],
        *,
        resolve: Resolve = resolve,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lane = lane
        self._resolve = resolve
        self._clock = clock
        self._servers: dict[str, _Server] = {}
        self._resolved_at = float("-inf")
        self._refresh: asyncio.Task[None] | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request and return the whole answer.

        An address that refuses the connection is skipped, since nothing was sent to it. Raises httpx2's
        errors; ConnectError also when the name has no address.
        """
        host, port = request.url.host, request.url.port or 80
        if (address := request.extensions.get(SERVER)) is not None:
            named = self._servers.get(address)
            if named is None:
                raise httpx2.ConnectError(f"{address} is no longer one of {host}", request=request)
            return await self._send(request, host, named)
        unreachable: set[str] = set()
        while True:
            await self._look(host, port, request)
            server = self._least_busy(unreachable)
            if server is None:
                raise httpx2.ConnectError(f"no address of {host} takes connections", request=request)
            try:
                return await self._send(request, host, server)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                unreachable.add(server.address)
                self._failed(server)
            except httpx2.TransportError:
                self._failed(server)
                raise

    def addresses(self) -> list[str]:
        """Return the addresses that calls go to now; none before the first call."""
        return [server.address for server in self._servers.values() if server.listed]

    async def aclose(self) -> None:
        """Close every connection."""
        if self._refresh is not None:
            self._refresh.cancel()
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.transport.aclose()

    async def _send(self, request: httpx2.Request, host: str, server: _Server) -> httpx2.Response:
        extensions = {**request.extensions, "sni_hostname": host}
        # The Host header was made from the name and must stay so.
        server_request = httpx2.Request(
            request.method,
            request.url.copy_with(host=server.address),
            headers=request.headers,
            stream=request.stream,
            extensions=extensions,
        )
        server.in_flight += 1
        server.requests += 1
        try:
            return await server.transport.handle_async_request(server_request)
        finally:
            server.in_flight -= 1

    def _least_busy(self, unreachable: set[str]) -> _Server | None:
        now = self._clock()
        servers = [
            server for server in self._servers.values() if server.listed and server.address not in unreachable
        ]
        usable = [server for server in servers if server.avoid_until <= now] or servers
        return min(
            usable, key=lambda server: (server.in_flight, server.requests, server.address), default=None
        )

    def _failed(self, server: _Server) -> None:
        server.avoid_until = self._clock() + AVOID_SECONDS
        self._resolved_at = float("-inf")

    async def _look(self, host: str, port: int, request: httpx2.Request) -> None:
        """Resolve the name when it is due. Requests wait for it only while no address is known."""
        if self._refresh is None and self._clock() - self._resolved_at >= RESOLVE_SECONDS:
            self._refresh = asyncio.ensure_future(self._update(host, port))
            self._refresh.add_done_callback(lambda task: task.cancelled() or task.exception())
        if self._refresh is not None and not any(server.listed for server in self._servers.values()):
            refresh = self._refresh
            try:
                await asyncio.shield(refresh)
            except OSError as error:
                raise httpx2.ConnectError(f"{host} has no address ({error})", request=request) from error

    async def _update(self, host: str, port: int) -> None:
        try:
            addresses = await self._resolve(host, port)
        except OSError:
            if not any(server.listed for server in self._servers.values()):
                raise
            return
        finally:
            self._refresh = None
            self._resolved_at = self._clock()
        await self._replace(addresses)

    async def _replace(self, addresses: list[str]) -> None:
        fewest_requests = min(
            (server.requests for server in self._servers.values() if server.listed), default=0
        )
        for server in list(self._servers.values()):
            server.listed = server.address in addresses
            if not server.listed and server.in_flight == 0:
                del self._servers[server.address]
                await server.transport.aclose()
        for address in addresses:
            if address not in self._servers:
                # A new server starts with the others' count: otherwise it would get every call for a while.
                self._servers[address] = _Server(address, self._lane(), requests=fewest_requests)
