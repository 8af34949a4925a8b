"""One pool of HTTP connections per endpoint, shared by every role that talks to it.

The official ``openai`` client does the talking (its URL rules, headers and error classes); its own
retries are off, since ``chat`` counts, spaces and records them. Bodies go out as bytes and come
back as bytes: building the client's response models would cost more than the rest of a call.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
from openai import AsyncOpenAI, Omit, RequestOptions

from combee.adapters.balance import BalancedTransport
from combee.adapters.lanes import LaneTransport
from combee.adapters.wire import Endpoint

CONNECT_SECONDS = 15.0
_MODELS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One row of the server's ``/models``: its own words, nothing inferred."""

    id: str
    owned_by: str
    max_model_len: int | None


class Connection:
    """The way to one endpoint, and what was learned about it on the way."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.quirks: set[str] = set()
        """what this server does not take (see ``body.QUIRKS``); learned once, for all calls"""
        key = endpoint.api_key.get_secret_value()
        # Said outright, so that no Authorization comes in from the environment.
        self._headers: dict[str, object] = {"Authorization": f"Bearer {key}" if key else Omit()}
        self._client = AsyncOpenAI(
            base_url=endpoint.url,
            api_key=key or "none",
            admin_api_key="",
            max_retries=0,
            http_client=_http_client(endpoint),
        )
        # An organisation or project named in the environment belongs to another endpoint.
        self._client.organization = None
        self._client.project = None
        self._models: tuple[ServedModel, ...] | None = None
        self._models_lock = asyncio.Lock()

    async def post_chat(self, body: bytes) -> httpx2.Response:
        """``POST /chat/completions``; openai's errors for every status of 400 and above."""
        return await self._client.post(
            "/chat/completions",
            cast_to=httpx2.Response,
            content=body,
            options=cast(RequestOptions, {"headers": self._headers}),
        )

    async def models(self, *, again: bool = False) -> tuple[ServedModel, ...]:
        """What ``GET /models`` lists, asked once unless ``again``.

        openai's errors; ValueError when it is no list of models.
        """
        async with self._models_lock:
            if self._models is None or again:
                options = {"headers": self._headers, "timeout": _MODELS_SECONDS}
                response = await self._client.get(
                    "/models", cast_to=httpx2.Response, options=cast(RequestOptions, options)
                )
                self._models = _served(response.content)
            return self._models

    async def aclose(self) -> None:
        """Close the sockets; use it no more."""
        await self._client.close()


class ConnectionPool:
    """Connections by endpoint, made on first use. Each holds as many sockets as calls in flight."""

    def __init__(self) -> None:
        self._connections: dict[Endpoint, Connection] = {}

    def to(self, endpoint: Endpoint) -> Connection:
        """The connection to ``endpoint``, made on first use."""
        if endpoint not in self._connections:
            self._connections[endpoint] = Connection(endpoint)
        return self._connections[endpoint]

    async def aclose(self) -> None:
        """Close them all."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.aclose()


def _served(content: bytes) -> tuple[ServedModel, ...]:
    try:
        rows = json.loads(content)["data"]
        return tuple(
            ServedModel(
                str(row["id"]),
                str(row.get("owned_by") or ""),
                int(row["max_model_len"]) if row.get("max_model_len") else None,
            )
            for row in rows
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a list of models") from error


def _http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Lanes, over all servers of the name where the endpoint is a balanced one; or the ordinary pool
    where the machine's proxy settings apply to the URL.

    Redirects are not followed: prompts go where the user said and nowhere else.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    if endpoint.balanced:
        balanced = BalancedTransport(LaneTransport)
        return httpx2.AsyncClient(transport=balanced, timeout=timeout, follow_redirects=False)
    if _is_proxied(endpoint.url):
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False)
    return httpx2.AsyncClient(transport=LaneTransport(), timeout=timeout, follow_redirects=False)


def _is_proxied(url: str) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return False
    proxies = getproxies()
    return bool(proxies.get(parts.scheme) or proxies.get("all")) and not proxy_bypass(host)
