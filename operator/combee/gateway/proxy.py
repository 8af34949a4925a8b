"""The gateway as an ASGI application: pass each request on and its answer back as it comes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientResponse

from combee.assembly.crash import bug_text
from combee.errors import ClusterError
from combee.gateway.asgi import Receive, Scope, Send, raw_path
from combee.gateway.keys import MOST_CHARACTERS, bearer
from combee.gateway.metrics import UNKNOWN, Metrics
from combee.gateway.page.app import Page
from combee.gateway.request import (
    CHAT,
    NO_MEMORY,
    PASSED,
    RETRY,
    SHED,
    Gone,
    Refusal,
    body_of,
    changed,
    cluster_of,
    kind,
    refuse,
    shed,
    take,
)
from combee.gateway.room import EACH, LEAST_AT_ONCE, Hold, Room, paced
from combee.gateway.shadow import Sample, Shadow, chosen
from combee.gateway.table import NOTHING, Route, Served, Table
from combee.gateway.upstream import NoAnswerError, Upstreams, next_piece, passed_back
from combee.work.traffic.record import NO_ANSWER, PASSING, TIMEOUT

log = logging.getLogger(__name__)

QUEUE_SECONDS = 1.0
"""A request without a place waits so long for one before it is told to come again: short bursts pass, and
clients that do not wait by themselves ask at most once a second on each connection."""
BROKEN = 599
"""the status under which an answer is counted that broke off after its head was sent."""
DIGEST_HEADER, PLAYBOOK_HEADER, REQUEST_HEADER = b"x-combee-digest", b"x-combee-playbook", b"x-combee-request"


class Broken(Exception):
    """The answer broke off after its head was sent. The server closes the connection, so that no client takes
    a part of the answer for the whole."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer."""

    route: Route
    method: str
    path: str
    query: str
    """the query with its question mark, or empty."""
    headers: list[tuple[bytes, bytes]]
    send: Send
    request: str = field(default_factory=lambda: secrets.token_hex(8))
    """a random id, from which sampling is decided."""
    served: Served = NOTHING
    cluster: str = ""
    """what the client says that the request belongs to."""
    body: bytes = b""
    started: bool = False
    status: int = 0
    asked_at: float = 0.0
    first_byte_at: float = 0.0
    waited: float = 0.0  # seconds, for the upstream alone and not for a slow client
    sample: Sample | None = None
    """the sample of this request, when it is one."""

    def draw(self, name: str) -> float:
        """Return a number in [0, 1) from a hash of the request's id and ``name``."""
        digest = hashlib.sha256(f"{name}\n{self.request}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


class Gateway:
    """The ASGI application. ``look`` returns the current table; each request looks once."""

    def __init__(
        self,
        look: Callable[[], Table],
        upstreams: Upstreams,
        metrics: Metrics,
        room: Room,
        shadow: Shadow | None = None,
        page: Page | None = None,
    ) -> None:
        self._look, self._upstreams, self._metrics = look, upstreams, metrics
        self._memory, self._shadow, self._page = room, shadow, page
        self._in_flight = 0
        self._places: dict[str, Room] = {}
        """by Playbook: requests with a good key that are under way, of ``limits.maxInFlight``."""
        self._most_at_once = max(LEAST_AT_ONCE, room.most // EACH)
        self._at_once = Room(self._most_at_once, soft=True)
        """the same of all Playbooks, of as many as the loop keeps up with."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        if self._page is not None and self._page.takes(scope):
            await self._page(scope, receive, send)
            return
        began = time.perf_counter()
        playbook, code = UNKNOWN, 499
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        try:
            route, path = self._route(scope)
            playbook = route.playbook
            query = scope["query_string"].decode("latin-1")
            exchange = Exchange(
                route, scope["method"], path, f"?{query}" if query else "", scope["headers"], send
            )
            key_fits = scope.get("state", {}).get("key_fits", _nothing)
            code = await self._answer(exchange, receive, began, key_fits)
        except Refusal as refusal:
            code = refusal.status
            if refusal.code == NO_MEMORY:
                self._metrics.no_memory.labels(playbook).inc()
            if refusal.code in SHED:
                self._metrics.shed.labels(playbook, refusal.code).inc()
            await refuse(send, refusal)
        except Gone:
            pass
        except Broken:
            code = BROKEN
            raise
        except Exception as error:
            code = 500
            log.error(bug_text(error), extra={"playbook": playbook})
            raise
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)
            self._metrics.answered(playbook, code, time.perf_counter() - began)

    def _route(self, scope: Scope) -> tuple[Route, str]:
        table = self._look()
        _, playbook, path = (*raw_path(scope).split("/", 2), "", "")[:3]
        if not table.known:
            raise Refusal(503, "starting", "The gateway has not heard from the API server yet.", **RETRY)
        route = table.routes.get(playbook)
        if route is None:
            raise Refusal(
                404, "playbook_not_found", "No Playbook of this name is served here: /<playbook>/v1/..."
            )
        return route, f"/{path}"

    async def _answer(
        self, exchange: Exchange, receive: Receive, began: float, key_fits: Callable[[], None]
    ) -> int:
        route = exchange.route
        who = await self._let_in(exchange)
        key_fits()
        if PASSED.get(kind(exchange.path)) != exchange.method:
            raise Refusal(
                404, "not_found", f"Passed on are: {', '.join(f'{m} {p}' for p, m in PASSED.items())}."
            )
        if route.problem:
            raise Refusal(
                503, "not_ready", "This Playbook cannot be served; the gateway's log says why.", **RETRY
            )
        places = self._places.setdefault(route.playbook, Room(0))
        places.most = route.limits.max_in_flight
        with places.hold(who) as place, self._at_once.hold(who) as other, self._memory.hold(who) as hold:
            await self._enter(place, other)
            try:
                return await self._serve(exchange, receive, began, hold)
            finally:
                if exchange.sample is not None and self._shadow is not None:
                    self._shadow.forget(exchange.sample)

    async def _enter(self, *places: Hold) -> None:
        """Take a place of each. Who finds none waits, and holds no other meanwhile. Raises Refusal."""
        for last in (False, True):
            full = next((place.room for place in places if not place.take(1)), None)
            if full is None:
                return
            for place in places:
                place.close()
            if last:
                raise shed(full)
            await asyncio.sleep(QUEUE_SECONDS)

    def beat(self, late: float) -> None:
        """Take fewer requests at once while the loop is late, and slowly more while it is not."""
        self._at_once.most = paced(self._at_once, late, self._most_at_once)

    async def _serve(self, exchange: Exchange, receive: Receive, began: float, hold: Hold) -> int:
        route = exchange.route
        take(hold, EACH)
        if exchange.method == "POST":
            exchange.body = await body_of(exchange.headers, receive, route.limits.max_request_bytes, hold)
        body = exchange.body
        if exchange.path == CHAT:
            exchange.cluster = cluster_of(exchange.headers)
            exchange.served = route.served
            body = changed(body, exchange.served.preface, hold, route.model)
            self._sample(exchange)
        exchange.body = b""
        exchange.asked_at = time.perf_counter()
        self._metrics.sent_on(route.playbook, exchange.asked_at - began)
        async with _while_wanted(receive):
            try:
                async with asyncio.timeout(route.limits.deadline_seconds):
                    await self._pass(exchange, body)
            except TimeoutError:
                self._missed(exchange, TIMEOUT)
                if exchange.started:
                    raise Broken from None
                raise Refusal(504, "deadline", "The upstream did not answer in time.") from None
            except NoAnswerError as error:
                log.warning("no answer", extra={"playbook": route.playbook, "error": error.what})
                self._missed(exchange, NO_ANSWER)
                if exchange.started:
                    raise Broken from None
                raise Refusal(502, "no_answer", "The upstream gave no answer.") from None
        return exchange.status

    async def _let_in(self, exchange: Exchange) -> str:
        header = next((value for name, value in exchange.headers if name == b"authorization"), b"")
        token = bearer(header.decode("latin-1")) if len(header) < MOST_CHARACTERS else ""
        try:
            if token and (who := await exchange.route.allowed(token)):
                return who
        except ClusterError as error:
            log.warning("no review", extra={"playbook": exchange.route.playbook, "error": str(error)})
            raise Refusal(503, "no_review", "Nobody can say whether the key is good.", **RETRY) from None
        raise Refusal(401, "invalid_api_key", "Send a key of this gateway as: Authorization: Bearer ...")

    async def _pass(self, exchange: Exchange, body: bytes) -> None:
        route = exchange.route
        url = route.upstream + exchange.path.removeprefix("/v1") + exchange.query
        answer = await self._upstreams.ask(exchange.method, url, exchange.headers, route.upstream_key, body)
        async with answer:
            exchange.first_byte_at = time.perf_counter()
            exchange.waited = exchange.first_byte_at - exchange.asked_at
            self._metrics.began(route.playbook, exchange.waited)
            await self._start(exchange, answer)
            while piece := await _next(exchange, answer):
                if exchange.sample is not None and self._shadow is not None:
                    self._shadow.hear(exchange.sample, piece)
                await exchange.send({"type": "http.response.body", "body": piece, "more_body": True})
        await exchange.send({"type": "http.response.body", "body": b""})
        self._mirror(exchange, answer)

    def _sample(self, exchange: Exchange) -> None:
        mirroring = exchange.route.mirroring
        if mirroring is None or self._shadow is None:
            return
        comparisons, captured = chosen(mirroring, exchange.served, exchange.draw)
        if not (comparisons or captured):
            return
        path, hold = exchange.path.removeprefix("/v1") + exchange.query, self._memory.hold(sample=True)
        context = (exchange.route, mirroring, exchange.served, comparisons, captured, exchange.request)
        sample = Sample(*context, path, exchange.headers, exchange.body, hold, exchange.cluster)
        if self._shadow.begin(sample):
            exchange.sample = sample

    def _mirror(self, exchange: Exchange, answer: ClientResponse) -> None:
        """Hand over a sample, without waiting for what becomes of it."""
        if exchange.sample is None or self._shadow is None or answer.status in PASSING:
            return
        self._shadow.offer(
            exchange.sample,
            streamed=answer.content_type == "text/event-stream",
            seconds=exchange.waited,
            first_byte_seconds=exchange.first_byte_at - exchange.asked_at,
            failed="" if answer.status == 200 else str(answer.status),
        )

    def _missed(self, exchange: Exchange, reason: str) -> None:
        """Hand over a sample without a whole answer. A client that reads slowly is no version's fault."""
        if (sample := exchange.sample) is None or self._shadow is None:
            return
        seconds = exchange.waited if exchange.started else time.perf_counter() - exchange.asked_at
        if reason != TIMEOUT or seconds > sample.mirroring.deadline_seconds:
            self._shadow.offer(
                sample, streamed=False, seconds=seconds, first_byte_seconds=seconds, failed=reason
            )

    async def _start(self, exchange: Exchange, answer: ClientResponse) -> None:
        exchange.status, exchange.started = answer.status, True
        headers = [
            *passed_back(answer),
            (PLAYBOOK_HEADER, exchange.route.playbook.encode()),
            (DIGEST_HEADER, (exchange.served.digest or "none").encode()),
            (REQUEST_HEADER, exchange.request.encode()),
        ]
        await exchange.send({"type": "http.response.start", "status": answer.status, "headers": headers})


async def _next(exchange: Exchange, answer: ClientResponse) -> bytes:
    began = time.perf_counter()
    try:
        return await next_piece(answer)
    finally:
        exchange.waited += time.perf_counter() - began


def _nothing() -> None:
    """What a server without doors does with a good key."""


@asynccontextmanager
async def _while_wanted(receive: Receive) -> AsyncIterator[None]:
    """Cancel the body of the context when the client goes away, and then raise Gone."""
    task = asyncio.current_task()
    assert task is not None
    gone = asyncio.create_task(_disconnected(receive))
    gone.add_done_callback(lambda done: None if done.cancelled() else task.cancel())
    try:
        yield
    except asyncio.CancelledError:
        if gone.done() and not gone.cancelled():
            task.uncancel()
            raise Gone from None
        raise
    finally:
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
