"""The gateway's door: it bounds and counts connections, heads and their time before any key is read.

uvicorn speaks HTTP, but its parser takes heads of any length for any time, and it stops by closing kept
connections on which a request may be on its way. ``Connection`` adds the bounds to one connection, and
``Door`` holds what all of them share.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from combee.gateway.request import error_body

MOST_HEAD_BYTES = 32 * 1024
"""The most bytes of a request's line and headers: twice the longest key that is looked at."""
MOST_FIELDS = 100
"""The most headers of one request, trailers included. Each costs memory beyond its bytes; SDKs send 20."""
HEAD_SECONDS = 10.0
"""A whole head must come in this time, and the rest of a body that was already refused."""
READ_SECONDS = 0.05
"""A turn of the loop, in which it reads what is there."""
MOST_PIPELINED = 16
"""Requests that wait on one connection for the answer to the one before: one read could bring thousands."""
MOST_WAITING_BYTES = 1024
"""Where bodies of these come to more, nothing is read, and a client that leaves is not noticed, until it is
their turn."""
LINGER_SECONDS = 1.0
"""A refused connection is read and not heard for so long: closed at once, it would lose the answer. One for
which there is no place has so long to send its request: an answer that comes before is taken for none."""
MOST_LINGERING = 1000
"""Refused connections that are so read at once. Others are closed: they may lose the answer."""
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep idle connections, so that clients close them and not the gateway."""
QUIET_SECONDS = 10
"""An idle connection is closed after so long where its client has no good key, or the gateway stops; so is
one that ends, whose client still sends what was refused."""

UNREAD_SECONDS = 10
"""A connection ends whose client takes none of what was sent for so long."""
UNREAD_WITH_KEY_SECONDS = 600
"""The same where the client has a good key: it may stop for a while in a long answer."""


@dataclass(frozen=True, slots=True)
class Unwelcome:
    """Why a connection is closed, and the answer that says so. ``reason`` is counted."""

    status: int
    reason: str
    code: str
    message: str


class Refused(Exception):
    """Stops the parser."""


MALFORMED = Unwelcome(400, "Malformed", "malformed", "This is not a request of HTTP/1.1.")
CODING = Unwelcome(501, "Malformed", "malformed", "The only transfer coding is chunked, of HTTP/1.1.")
UPGRADE = Unwelcome(
    501,
    "Malformed",
    "malformed",
    "Send no Upgrade header with a body (Java's HttpClient: set version HTTP_1_1).",
)
PIPELINED = Unwelcome(
    400, "Pipelined", "pipelined", f"On one connection, {MOST_PIPELINED} requests wait for answers at most."
)
TOO_LARGE = Unwelcome(
    431,
    "HeadTooLarge",
    "head_too_large",
    f"A head has {MOST_HEAD_BYTES} bytes and {MOST_FIELDS} headers at most.",
)
LATE = Unwelcome(408, "HeadLate", "head_late", f"The head did not come in {HEAD_SECONDS:g} seconds.")
FULL = Unwelcome(503, "Full", "connections", "Too many connections.")
CLIENT_FULL = Unwelcome(503, "ClientFull", "connections", "Too many connections from this address.")


@dataclass(slots=True)
class Door:
    """What all connections share."""

    most: int
    """connections at once."""
    most_per_client: int
    """connections at once from one address."""
    refused: Callable[[str], None]
    """counts a refusal by its reason."""
    stopping: bool = False
    """whether answers end their connections."""
    inside: int = 0
    """connections, but not refused ones, which take nobody's place."""
    lingering: int = 0
    """refused connections that are still read."""
    clients: Counter[str] = field(default_factory=Counter)
    """address -> its connections."""
    strangers: dict[Connection, None] = field(default_factory=dict)
    """connections that have not shown a good key, oldest first. They give way to new ones."""

    def enter(self, connection: Connection, address: str) -> Unwelcome | None:
        """Let a connection in, or return why not."""
        if self.clients[address] >= self.most_per_client:
            return CLIENT_FULL
        if self.inside >= self.most:
            oldest = next(iter(self.strangers), None)
            if oldest is None:
                return FULL
            oldest.give_way()
        self.inside += 1
        self.clients[address] += 1
        self.strangers[connection] = None
        return None

    def leave(self, connection: Connection, address: str) -> None:
        """Forget a connection."""
        self.strangers.pop(connection, None)
        self.inside -= 1
        self.clients[address] -= 1
        if not self.clients[address]:
            del self.clients[address]


class _Flow(FlowControl):
    """Reads no more while bodies wait on the connection for the answers before theirs."""

    def __init__(
        self, transport: asyncio.Transport, waiting: Iterable[tuple[RequestResponseCycle, Any]]
    ) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read on, unless what was read waits."""
        if sum(len(cycle.body) for cycle, _ in self._waiting) < MOST_WAITING_BYTES:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """One client's connection."""

    def __init__(self, *arguments: Any, door: Door, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._door, self._address, self._stranger = door, "", True
        self._inside = self._lingers = self._over = False
        self._in_head, self._read, self._bytes, self._fields = False, 0, 0, 0
        self._answering: RequestResponseCycle | None = None
        self._late: asyncio.TimerHandle | None = None
        self._refusal: Unwelcome | None = None
        self._turned_away: Unwelcome | None = None
        """why there is no place for the connection, until that is answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let the connection in, or close it."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)
        self._out: Any = SimpleNamespace(
            write=transport.write, is_closing=transport.is_closing, close=self._close
        )
        self._address = self.client[0] if self.client else ""
        self._read_within(UNREAD_SECONDS)
        if refusal := self._door.enter(self, self._address):
            self._turned_away = refusal
            if self._linger():
                self._late = self.loop.call_later(LINGER_SECONDS, self._refuse, refusal)
            else:
                self._refuse(refusal)
        else:
            self._inside = True
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        # uvicorn tells the request that came last; of several, another one is being answered.
        self._leave_unanswered()
        self._head_came()
        self._leave()
        self._door.lingering -= self._lingers

    def data_received(self, data: bytes) -> None:
        """Read what came, unless it is too much for a head."""
        if self._over or self.transport.is_closing():
            return
        if self._turned_away is not None:
            self._refuse(self._turned_away)
            return
        # The parser joins a header, or a trailer, until it is whole: what came without any use is counted.
        self._read += len(data)
        super().data_received(data)
        if self._over or self.transport.is_closing():
            return
        if self._read > MOST_HEAD_BYTES:
            self._refuse(TOO_LARGE)
        elif self._idle() and self.timeout_keep_alive_task is None:
            # Part of a head, or of a body that was answered already, or empty lines: a head must follow.
            self._expect_head()

    def on_message_begin(self) -> None:
        """Count a new head's bytes."""
        self._unset_keepalive_if_required()
        self._in_head, self._bytes, self._fields = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target."""
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Trailers come here, too, and are dropped: nobody downstream has asked for them."""
        self._fields += 1
        self._count(name, value)
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request, unless its body could be read in two ways."""
        self._in_head, self._read = False, 0
        self._head_came()
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (codings != [b"chunked"] or self.parser.get_http_version() != "1.1"):
            self._raise(CODING)
        upgrades = self.parser.should_upgrade()
        if upgrades and (codings or any(n == b"content-length" and v != b"0" for n, v in self.headers)):
            self._raise(UPGRADE)
        if len(self.pipeline) >= MOST_PIPELINED:
            self._raise(PIPELINED)
        super().on_headers_complete()
        self.cycle.transport = self._out
        self.flow.pause_reading()  # until the body is asked for
        self.scope["state"]["key_fits"] = self.key_fits
        if self._door.stopping or upgrades:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, and no more until it is asked for."""
        self._read = 0
        super().on_body(body)
        if not self.cycle.response_complete:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """End the request. One that was answered before it had come whole is over now."""
        self._read = 0
        super().on_message_complete()
        if self._idle():
            self._head_came()
            self._wait(self._patience_seconds())

    def on_response_complete(self) -> None:
        """Forget a body that nobody read. Wait for the next request: long only for a client with a key."""
        assert self._answering is not None
        self._answering.body.clear()
        self.timeout_keep_alive = self._patience_seconds()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Close with an answer that says so; where none is due, or its head is out, after a quiet time."""
        if self._idle():
            self._wait(QUIET_SECONDS)
        elif not self.cycle.response_started:
            self.cycle.keep_alive = False

    def key_fits(self) -> None:
        """Remember that the client has a good key."""
        if self._stranger:
            self._stranger = False
            self._read_within(UNREAD_WITH_KEY_SECONDS)
        self._door.strangers.pop(self, None)

    def give_way(self) -> None:
        """Close the connection for a new one."""
        self._leave()
        self._door.refused("GaveWay")
        self.transport.abort()  # close() would wait until the client has read all

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser did not take."""
        self._refuse(self._refusal or MALFORMED)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _patience_seconds(self) -> int:
        short = self._stranger or self._in_head or self._over or self._door.stopping
        return QUIET_SECONDS if short else KEEP_ALIVE_SECONDS

    def _wait(self, seconds: int) -> None:
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _read_within(self, seconds: int) -> None:
        """Have the kernel end the connection where nothing that was sent is taken for so long. Nothing else
        does: closed, a transport waits until all is sent."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux has it
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * seconds)

    def _idle(self) -> bool:
        return self._answering is None or self._answering.response_complete

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            self._door.leave(self, self._address)

    def _leave_unanswered(self) -> None:
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.waiting_for_100_continue = False
            self._answering.message_event.set()

    def _count(self, *parts: bytes) -> None:
        self._bytes += sum(map(len, parts))
        if self._bytes > MOST_HEAD_BYTES or self._fields > MOST_FIELDS:
            self._raise(TOO_LARGE)

    def _raise(self, refusal: Unwelcome) -> None:
        self._refusal = refusal
        raise Refused

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._look_again)

    def _look_again(self) -> None:
        """Read what came while the loop was busy, before the connection is judged by it."""
        self._late = self.loop.call_later(READ_SECONDS, self._is_late)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _is_late(self) -> None:
        if not self._over and not self.transport.is_closing():
            self._refuse(LATE)

    def _close(self) -> None:
        """Close after an answer. A client whose request has not come whole is read for a while and not heard:
        closed at once, the kernel would reset the connection, and the answer would be lost."""
        answered = self._answering is not None and self._answering.response_complete
        if answered and (self.cycle.more_body or self.pipeline) and not self.transport.is_closing():
            self._over = True
            self.pipeline.clear()
            self.transport.write_eof()
        else:
            self.transport.close()

    def _refuse(self, refusal: Unwelcome) -> None:
        """Say why, unless it could be taken for the answer to an earlier request, and close."""
        self._over = True
        self._door.refused(refusal.reason)
        self._head_came()
        self._leave()
        request = self._answering
        heard = self._idle() or (request is not None and request.more_body and not request.response_started)
        self._leave_unanswered()
        if heard:
            self.transport.write(_answer(refusal))
        if heard and self._linger():
            self.transport.write_eof()
        else:
            self.transport.close()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _linger(self) -> bool:
        """Return whether a refused connection may be read on."""
        if not self._lingers and self._door.lingering < MOST_LINGERING:
            self._door.lingering += 1
            self._lingers = True
        return self._lingers


def _answer(refusal: Unwelcome) -> bytes:
    body = error_body(refusal.code, refusal.message)
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
    more = "retry-after: 1\r\n" if refusal.status == 503 else ""
    return STATUS_LINE[refusal.status] + f"{head}{more}\r\n".encode() + body
