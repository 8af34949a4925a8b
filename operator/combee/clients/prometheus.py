"""Range queries of a Prometheus-compatible API. Answers are bounded in size and time, and not checked here.

The API: https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries. A query is posted as a
form, since URLs are limited in length. Redirects are not followed: the token goes only to the configured
server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2

from combee import __version__
from combee.clients.answers import UNENCODED, TooLongError, body_of
from combee.clients.backoff import retry_after_seconds, wait_seconds
from combee.clients.model.lanes import LaneTransport
from combee.errors import EndpointError, TransientError

QUERY_SECONDS = 30.0
"""The deadline of one answer; the server is told to give up a little earlier."""
ATTEMPTS = 3
MOST_BYTES = 1024 * 1024
"""The largest answer, uncompressed."""
ANSWERS = frozenset({200, 400, 422})
"""The statuses whose body is of use: it holds the numbers, or says what is wrong with the query."""
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_REFUSALS = {
    401: "the token is refused, or one is needed",
    403: "the token may not ask this",
    404: "there is no such API",
    405: "it takes no query",
}


@dataclass(slots=True)
class PrometheusApi:
    """A client of one server. ``token`` is never shown; ``where`` is the manifest's field for the server."""

    url: str
    token: str
    where: str
    client: httpx2.AsyncClient
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @classmethod
    def open(cls, url: str, token: str, where: str) -> PrometheusApi:
        """Return an API with its own connection; close it with ``aclose``."""
        client = httpx2.AsyncClient(
            transport=LaneTransport.to(url), timeout=QUERY_SECONDS, follow_redirects=False
        )
        return cls(url.rstrip("/"), token, where, client)

    async def aclose(self) -> None:
        """Close the connection."""
        await self.client.aclose()

    async def query_range(self, query: str, start: int, end: int, step: int) -> bytes:
        """Return the body of the answer: the numbers from ``start`` to ``end`` (Unix seconds), ``step``
        seconds apart, or why there are none.

        Raises EndpointError when the server refuses the token or the request, TransientError when it does not
        answer in time, and TooLongError for an answer of more than MOST_BYTES.
        """
        parameters = {"query": query, "start": str(start), "end": str(end), "step": str(step)}
        form = {**parameters, "timeout": f"{QUERY_SECONDS - 5:g}s"}
        failure = ""
        for attempt in range(1, ATTEMPTS + 1):
            after = None
            try:
                async with asyncio.timeout(QUERY_SECONDS):
                    status, headers, body = await self._post(form)
            except TooLongError:
                raise
            except (httpx2.RequestError, TimeoutError) as error:
                failure = f"does not answer ({type(error).__name__})"
            else:
                if status in ANSWERS:
                    return body
                if status not in _PASSING:
                    raise self._refused(status)
                failure, after = f"answers {status}", retry_after_seconds(headers, time.time())
            if attempt < ATTEMPTS:
                await self.sleep(wait_seconds(f"{self.url}{query}", attempt, after))
        raise TransientError(
            f"Prometheus {failure}", where=self.where, fix="See whether pods of this namespace may reach it"
        )

    async def _post(self, form: dict[str, str]) -> tuple[int, httpx2.Headers, bytes]:
        headers = {
            "Accept": "application/json",
            **UNENCODED,
            "User-Agent": f"combee/{__version__}",
            **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
        }
        url = f"{self.url}/api/v1/query_range"
        async with self.client.stream("POST", url, data=form, headers=headers) as answer:
            body = await body_of(answer, MOST_BYTES) if answer.status_code in ANSWERS else b""
            return answer.status_code, answer.headers, body

    def _refused(self, status: int) -> EndpointError:
        moved = "it sends us elsewhere, and no token follows" if 300 <= status < 400 else "it is no such API"
        return EndpointError(
            f"Prometheus answers {status}: {_REFUSALS.get(status, moved)}",
            where=self.where,
            fix="Correct canary.prometheus.url, or the token in its Secret",
        )
