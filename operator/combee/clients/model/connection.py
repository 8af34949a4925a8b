"""One pool of HTTP connections per endpoint, shared by every role that talks to it.

Only two requests are needed, so they are written here: the official client takes .6 s of CPU to
import, in every pod of every step, and its response models cost more than the rest of a call. Nothing
is retried here, since ``chat`` counts, spaces and records attempts. Bodies are bytes in both directions.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import httpx2

from combee import __version__
from combee.clients.answers import UNENCODED
from combee.clients.model.balance import SERVER, BalancedTransport
from combee.clients.model.body import MOST_TOKENS, RESPONSE_FORMAT
from combee.clients.model.failures import NoAnswerError, NotInTimeError, StatusError
from combee.clients.model.lanes import LaneTransport
from combee.clients.model.looks import Looks
from combee.clients.model.wire import Endpoint
from combee.jsonread import MALFORMED, read_json

CONNECT_SECONDS = 15.0
IGNORED = 3
"""How many replies without an object show that a server holds no model to a schema."""
_MODELS_SECONDS = 30.0
_OWNER_CHARS = 100


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One row of the server's ``/models``, as the server wrote it."""

    id: str
    owned_by: str
    context_tokens: int | None
    """The length of the model's context; None where the server does not say it."""


class Connection:
    """The HTTP client of one endpoint, and the server's quirks that calls have met."""

    def __init__(self, endpoint: Endpoint, *, looking: bool = False) -> None:
        self.endpoint = endpoint
        self.looks = Looks(self._metrics_pages) if looking else None
        """What is looked at after answers; None where nothing is."""
        self.quirks: set[str] = set()
        """The parameters that this server refuses or ignores (``body.QUIRKS``), learned for all calls."""
        self._schemas_ignored = 0
        self._schemas_followed = False
        key = endpoint.api_key.get_secret_value()
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "User-Agent": f"combee/{__version__}",
            **dict(endpoint.headers),
            **UNENCODED,
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }
        self._balanced = (
            BalancedTransport(partial(LaneTransport, resolved=True)) if endpoint.balanced else None
        )
        self._client = _http_client(endpoint, self._balanced)
        self._models: tuple[ServedModel, ...] | None = None
        self._models_lock = asyncio.Lock()

    async def post(self, path: str, body: bytes) -> httpx2.Response:
        """Send a ``POST`` below the endpoint's URL and return its 2xx response.

        Raises StatusError for any other status and NoAnswerError when no response comes.
        """
        return await self._send("POST", path, content=body)

    def weigh_schema(self, followed: bool | None) -> None:
        """Take note of whether a reply followed its schema; None says nothing.

        A server that ignored ``IGNORED`` schemas and never followed one gets them in words from then on. What
        it answered until then stands, and is asked for again where it cannot be read.
        """
        if followed is None:
            return
        self._schemas_followed |= followed
        self._schemas_ignored += not followed
        if self._schemas_ignored >= IGNORED and not self._schemas_followed:
            self.quirks.add(RESPONSE_FORMAT)

    def context_tokens(self, model: str) -> int | None:
        """Return the length of a model's context; None where ``models`` did not say, or was not asked yet."""
        return next((one.context_tokens for one in self._models or () if one.id == model), None)

    async def models(self, *, again: bool = False) -> tuple[ServedModel, ...]:
        """Return what ``GET /models`` lists. The server is asked once, unless ``again``.

        Raises StatusError, NoAnswerError, or ValueError when the body is no list of models.
        """
        async with self._models_lock:
            if self._models is None or again:
                response = await self._send("GET", "/models", within=_MODELS_SECONDS)
                self._models = _served(response.content)
            return self._models

    async def _metrics_pages(self) -> list[bytes]:
        """Return ``/metrics`` of every server of the endpoint, which is beside ``/v1``.

        Raises StatusError or NoAnswerError as soon as one does not give it.
        """
        url = self.endpoint.url.rstrip("/").removesuffix("/v1") + "/metrics"
        servers = [None] if self._balanced is None else self._balanced.addresses()
        pages = await asyncio.gather(*(self._sent("GET", url, server=server) for server in servers))
        return [page.content for page in pages]

    async def aclose(self) -> None:
        """Close the sockets; the connection cannot be used afterwards."""
        await self._client.aclose()

    async def _send(
        self, method: str, path: str, *, content: bytes | None = None, within: float | None = None
    ) -> httpx2.Response:
        url = self.endpoint.url.rstrip("/") + path
        return await self._sent(method, url, content=content, within=within)

    async def _sent(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        within: float | None = None,
        server: str | None = None,
    ) -> httpx2.Response:
        """``within``: seconds for the whole answer. ``server``: the address that it must go to, of those that
        the calls are shared out over."""
        extensions = None if server is None else {SERVER: server}
        try:
            async with asyncio.timeout(within):
                response = await self._client.request(
                    method, url, content=content, headers=self._headers, extensions=extensions
                )
        except (httpx2.TimeoutException, TimeoutError) as error:
            raise NotInTimeError from error
        except (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream) as error:
            raise NoAnswerError from error
        if not response.is_success:
            raise StatusError(response)
        return response


class ConnectionPool:
    """One connection per endpoint, made on first use. Each opens as many sockets as it has calls in
    flight. ``looking``: whether a server's metrics are looked at now and then."""

    def __init__(self, *, looking: bool = False) -> None:
        self._looking = looking
        self._connections: dict[Endpoint, Connection] = {}

    def to(self, endpoint: Endpoint) -> Connection:
        """Return the connection to ``endpoint``, made on first use."""
        if endpoint not in self._connections:
            self._connections[endpoint] = Connection(endpoint, looking=self._looking)
        return self._connections[endpoint]

    async def aclose(self) -> None:
        """Close all connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.aclose()


def _served(content: bytes) -> tuple[ServedModel, ...]:
    try:
        rows = read_json(content)["data"]
        return tuple(
            ServedModel(str(row["id"]), str(row.get("owned_by") or "")[:_OWNER_CHARS], _context_tokens(row))
            for row in rows
        )
    except MALFORMED as error:
        raise ValueError("not a list of models") from error


def _context_tokens(row: dict[str, Any]) -> int | None:
    """Return the length that a row of ``/models`` has under one of the names for it that are in use."""
    meta = row.get("meta")
    length = row.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
    return length if type(length) is int and 0 < length <= MOST_TOKENS else None


def _http_client(endpoint: Endpoint, balanced: BalancedTransport | None) -> httpx2.AsyncClient:
    """Return a client over lanes: to all servers of the name where the endpoint is ``balanced``, or by the
    machine's proxy where its settings apply to the URL.

    It follows no redirects: prompts go only to the URL that the user named.
    """
    timeout = httpx2.Timeout(None, connect=CONNECT_SECONDS)
    lanes = balanced or LaneTransport.to(endpoint.url)
    return httpx2.AsyncClient(transport=lanes, timeout=timeout, follow_redirects=False)
