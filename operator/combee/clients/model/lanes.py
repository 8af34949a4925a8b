"""An HTTP transport whose cost per request does not grow with the number of connections.

The usual pool looks at all of its connections for every request (a poll of each idle socket):
3 ms a request at 256 connections. Here each *lane* is a pool of one connection, lanes are taken
from a stack (the warmest first) and one TLS context serves them all. A body is read to its end
before its lane is given back, which suits answers that are one JSON document.
"""

from __future__ import annotations

from collections import defaultdict
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from combee.clients.answers import body_of
from combee.clients.connecting import within_reach
from combee.clients.reach import check_by_name

MAX_BODY_BYTES = 8 << 20
"""A longer body cannot be the answer of a model; it is refused before it fills the memory."""

IDLE_SECONDS = 3.0
"""A lane that was idle for this long reconnects. Servers close idle connections (uvicorn, and with it
vLLM, after 5 s), and a request that is sent at that moment is lost."""


class LaneTransport(httpx2.AsyncBaseTransport):
    """Opens as many connections as there are requests in flight, and keeps them for later ones."""

    def __init__(self, proxy: str | None = None, *, resolved: bool = False) -> None:
        """``proxy``: the URL of the proxy that all requests go by. ``resolved``: whether their hosts are what
        ``reach.resolve`` returned."""
        self._proxy = proxy
        self._resolved = resolved
        self._idle: dict[str, list[httpx2.AsyncHTTPTransport]] = defaultdict(list)
        self._lanes: list[httpx2.AsyncHTTPTransport] = []
        self._contexts: dict[str, SSLContext] = {}

    @classmethod
    def to(cls, url: str, *, resolved: bool = False) -> LaneTransport:
        """Return one whose requests go by the proxy that the machine's settings name for ``url``, if any."""
        return cls(proxy_of(url), resolved=resolved)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send on an idle lane and return the whole answer. Raises httpx2's errors, and
        AddressNotAllowedError."""
        if self._proxy and not self._resolved:
            check_by_name(request.url.host)
        idle = self._idle[request.url.scheme]
        lane = idle.pop() if idle else self._new_lane(request.url.scheme)
        try:
            response = await lane.handle_async_request(request)
            try:
                body = await body_of(response, MAX_BODY_BYTES)
            finally:
                await response.aclose()
        finally:
            idle.append(lane)
        return httpx2.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=httpx2.ByteStream(body),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every lane."""
        lanes, self._lanes = self._lanes, []
        self._idle.clear()
        for lane in lanes:
            await lane.aclose()

    def _context(self, scheme: str) -> SSLContext:
        """Reading the certificates costs a pod more than its first call, so ``http`` goes without any: its
        context trusts nobody."""
        if scheme not in self._contexts:
            tls = httpx2.create_ssl_context() if scheme == "https" else SSLContext(PROTOCOL_TLS_CLIENT)
            self._contexts[scheme] = tls
        return self._contexts[scheme]

    def _new_lane(self, scheme: str) -> httpx2.AsyncHTTPTransport:
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS
        )
        lane = httpx2.AsyncHTTPTransport(verify=self._context(scheme), limits=limits, proxy=self._proxy)
        self._lanes.append(lane)
        return lane if self._resolved and not self._proxy else within_reach(lane)


def proxy_of(url: str) -> str | None:
    """Return the URL of the proxy that the machine's settings name for ``url``; None where it is asked
    directly."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
