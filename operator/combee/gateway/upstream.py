"""Sends requests to upstreams and passes the bytes of their answers back as they come."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, AF_UNSPEC, AI_NUMERICHOST, AddressFamily
from typing import Self

from aiohttp import (
    ClientError,
    ClientOSError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.abc import AbstractResolver, ResolveResult
from multidict import CIMultiDict
from yarl import URL

from combee.clients.reach import reach, resolve
from combee.errors import AddressNotAllowedError, TransientError

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 3.0
"""Shorter than what servers allow (uvicorn, and with it vLLM, 5 s), so that a connection is seldom closed
while it is being reused."""
NAMES_SECONDS = 5
"""How long resolved addresses are trusted: those of a headless Service change with its pods."""
Headers = Iterable[tuple[bytes, bytes]]
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110). What HTTP forbids servers send all the same, and ours refuses to."""
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no value of a header may hold."""

NOT_PASSED_ON = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer trailers "
    b"transfer-encoding upgrade".split()
)
"""hop-by-hop headers (RFC 9110, 7.6.1), which neither side sees of the other."""
NOT_THE_CLIENTS = NOT_PASSED_ON | frozenset(
    b"host authorization api-key x-api-key cookie content-length accept-encoding expect "
    b"x-combee-cluster".split()
)
"""request headers that the gateway writes itself or that were meant for it."""
IDENTITY = frozenset(b"idempotency-key x-request-id".split())
"""headers that identify one request: an upstream may answer a second request of the same identity from the
first."""


def without_identity(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return ``headers`` without those that identify the request, to send it again as a new one."""
    return [(name, value) for name, value in headers if name.lower() not in IDENTITY]


class NoAnswerError(TransientError):
    """The upstream gave no answer, or broke off in the middle of one."""

    code = "Upstream"


class _Names(AbstractResolver):
    """Finds the addresses of upstreams, and refuses those that the gateway may not ask."""

    async def resolve(
        self, host: str, port: int = 0, family: AddressFamily = AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises AddressNotAllowedError."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=AF_INET6 if ":" in address else AF_INET,
                proto=0,
                flags=AI_NUMERICHOST,
            )
            for address in await resolve(host, port)
        ]

    async def close(self) -> None:
        """Nothing is open."""


class Upstreams:
    """Connections to all upstreams. Create it inside the running loop; close it with ``aclose``."""

    def __init__(self) -> None:
        connector = TCPConnector(
            limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ttl_dns_cache=NAMES_SECONDS, resolver=_Names()
        )
        self._session = ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            max_line_size=32_768,
            max_field_size=65_536,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(self, method: str, url: str, headers: Headers, key: str, body: bytes) -> ClientResponse:
        """Send a request and return the response once its head has come; the caller reads its body and closes
        it.

        The request is sent once more when a reused connection turns out to be closed before anything came
        back. Raises NoAnswerError.
        """
        left_out = NOT_THE_CLIENTS | _named(headers)
        sent: CIMultiDict[str] = CIMultiDict(
            (name.decode("latin-1"), value.decode("utf-8", "replace"))
            for name, value in headers
            if name not in left_out
        )
        if key:
            sent["Authorization"] = f"Bearer {key}"
        for last in (False, True):
            try:
                target = URL(url, encoded=True)
                _check_address(target.host or "")
                response = await self._session.request(
                    method, target, data=body or None, headers=sent, allow_redirects=False
                )
                if not 200 <= response.status < 600:
                    response.close()
                    raise NoAnswerError(f"the upstream answers with the status {response.status}")
                return response
            except (ServerDisconnectedError, ClientOSError) as error:
                if last:
                    raise _no_answer(error) from None
            except AddressNotAllowedError as error:
                raise NoAnswerError(f"{error.code}: {error}") from None
            except (ClientError, OSError, TimeoutError, ValueError) as error:
                raise _no_answer(error) from None
        raise AssertionError("unreachable")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _check_address(host: str) -> None:
    """Raise AddressNotAllowedError where a host is itself an address that may not be asked: it has no name to
    resolve."""
    try:
        address = str(ip_address(host))
    except ValueError:
        return
    if (limits := reach()) is not None:
        limits.check(host, [address])


async def next_piece(response: ClientResponse) -> bytes:
    """Return the bytes of the body that have come since; empty at its end. Raises NoAnswerError."""
    try:
        return await response.content.readany()
    except (ClientError, OSError) as error:
        raise _no_answer(error) from None


def passed_back(response: ClientResponse) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response that the client sees."""
    left_out = NOT_PASSED_ON | _named(response.raw_headers)
    return [
        (name, value)
        for name, value in response.raw_headers
        if name.lower() not in left_out and _NAME.fullmatch(name) and not _CONTROL.search(value)
    ]


def _named(headers: Headers) -> set[bytes]:
    """Return the headers that ``Connection`` names: they are for the neighbour only."""
    values = (value for name, value in headers if name.lower() == b"connection")
    return {word.strip().lower() for value in values for word in value.split(b",")}


def _no_answer(error: Exception) -> NoAnswerError:
    # Name only the class: the message may hold what was sent.
    return NoAnswerError(f"the upstream gave no answer ({type(error).__name__})")
