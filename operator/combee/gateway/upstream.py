"""The way to the upstreams: bytes out, bytes back, as they come."""

from __future__ import annotations

from collections.abc import Iterable
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
from multidict import CIMultiDict
from yarl import URL

from combee.errors import TransientError

CONNECT_SECONDS = 10.0
KEEP_ALIVE_SECONDS = 3.0
"""Shorter than what servers allow (uvicorn, and with it vLLM, 5 s), so that a connection is seldom closed as it is used again."""
NAMES_SECONDS = 5
"""How long the addresses of a name are trusted: a headless Service's change with its pods."""
Headers = Iterable[tuple[bytes, bytes]]

NOT_PASSED_ON = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer trailers transfer-encoding upgrade".split()
)
"""headers between neighbours (RFC 9110, 7.6.1), which neither side sees of the other."""
NOT_THE_CLIENTS = NOT_PASSED_ON | frozenset(
    b"host authorization api-key x-api-key cookie content-length accept-encoding expect".split()
)
"""headers of a request that we write ourselves or that were meant for us."""
IDENTITY = frozenset(b"idempotency-key x-request-id".split())
"""headers that name one request: an upstream may give the answer of the first of a name to the second."""


def without_identity(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers of the same request asked once more, as another one."""
    return [(name, value) for name, value in headers if name.lower() not in IDENTITY]


class NoAnswerError(TransientError):
    """The upstream gave no answer, or not the whole of it. ``started``: whether its head has come."""

    code = "Upstream"


class Upstreams:
    """Connections to all upstreams. Made inside the running loop; closed with ``aclose``."""

    def __init__(self) -> None:
        connector = TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ttl_dns_cache=NAMES_SECONDS)
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
        """Close the connections."""
        await self._session.close()

    async def ask(self, method: str, url: str, headers: Headers, key: str, body: bytes) -> ClientResponse:
        """The head of the answer; its body is to be read, and it is to be closed. NoAnswerError.

        Sent once more when a kept connection turns out to be closed before anything came back.
        """
        sent: CIMultiDict[str] = CIMultiDict(
            (name.decode("latin-1"), value.decode("utf-8", "replace"))
            for name, value in headers
            if name not in NOT_THE_CLIENTS
        )
        if key:
            sent["Authorization"] = f"Bearer {key}"
        for last in (False, True):
            try:
                return await self._session.request(
                    method, URL(url, encoded=True), data=body or None, headers=sent, allow_redirects=False
                )
            except (ServerDisconnectedError, ClientOSError) as error:
                if last:
                    raise _none(error) from None
            except (ClientError, OSError, TimeoutError, ValueError) as error:
                raise _none(error) from None
        raise AssertionError("unreachable")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def next_piece(answer: ClientResponse) -> bytes:
    """What has come of the body since; empty at its end. NoAnswerError when it breaks off."""
    try:
        return await answer.content.readany()
    except (ClientError, OSError) as error:
        raise _none(error) from None


def passed_back(answer: ClientResponse) -> list[tuple[bytes, bytes]]:
    """The headers of an answer that the client sees."""
    return [(n, v) for n, v in answer.raw_headers if n.lower() not in NOT_PASSED_ON]


def _none(error: Exception) -> NoAnswerError:
    # Only the class: a message may hold what was sent.
    return NoAnswerError(f"the upstream gave no answer ({type(error).__name__})")
