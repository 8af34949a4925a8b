"""A gateway without sockets: its own parsers and application read what a client or an upstream sends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock
from urllib.parse import unquote

from aiohttp import BaseConnector, ClientConnectionError
from aiohttp.client_proto import ResponseHandler
from uvicorn.server import ServerState

from combee.gateway.door import Connection, Door
from combee.gateway.main import server_of
from combee.gateway.metrics import Metrics
from combee.gateway.proxy import Gateway, log
from combee.gateway.room import Room
from combee.gateway.table import Limits, Route, Served, Table
from combee.gateway.upstream import NOT_THE_CLIENTS, Upstreams

RULE = "the rule of A"
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "q"}], "stream": true}'
REQUEST = (
    b"POST /formula/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n%%s\r\n"
    b"Content-Length: %d\r\n\r\n%s"
) % (len(BODY), BODY)
CHUNKED = (
    b"POST /formula/v1/embeddings HTTP/1.1\r\nAuthorization: Bearer good\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Trailer: 1\r\n\r\n"
)
PASSED_ON = re.compile(
    r"http://upstream/v1/(chat/completions|completions|embeddings|models(/[^%?]+)?)(\?.*)?"
)


class Client(asyncio.Transport):
    """The transport of one client, who reads all that is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1), "sockname": ("10.0.0.2", 80)})
        self.closed, self.got = False, bytearray()

    def write(self, data: Any) -> None:
        self.got += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


class NobodyBehind:
    """The upstream's session: it answers nothing, and looks at what it is asked."""

    async def request(
        self, method: str, url: Any, *, data: bytes, headers: Any, allow_redirects: bool
    ) -> None:
        path = str(url).partition("?")[0]
        assert PASSED_ON.fullmatch(path) and not allow_redirects, url
        assert all(part.strip(".") for part in unquote(path).split("/")[3:]), url
        names = {name.lower().encode() for name in headers}
        assert not (names - {b"authorization"}) & NOT_THE_CLIENTS, names
        if path == "http://upstream/v1/chat/completions":
            told = json.loads(data)
            messages = told.get("messages")
            assert not (isinstance(messages, list) and messages) or RULE.encode() in data, data
        raise ClientConnectionError


async def allowed(token: str) -> str:
    return "a tenant" if token == "good" else ""


class Answering(BaseConnector):
    """Connections to an upstream that sends so many bytes as the first one says, then the rest, and ends."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data

    async def _create_connection(self, *_: Any) -> ResponseHandler:
        handler = ResponseHandler(self._loop)
        handler.connection_made(Asked(lambda: self._answer(handler)))
        return handler

    def _answer(self, handler: ResponseHandler) -> None:
        cut = self.data[0] if self.data else 0
        for piece in (self.data[1 : cut + 1], self.data[cut + 1 :]):
            self._loop.call_soon(handler.data_received, piece)
        self._loop.call_soon(handler.connection_lost, None)


class Asked(Client):
    """The transport to an upstream, which answers what is written first."""

    def __init__(self, answer: Callable[[], None]) -> None:
        super().__init__()
        self.answer = answer

    def write(self, data: Any) -> None:
        if not self.got:
            self.answer()
        super().write(data)


class GatewayAlone:
    """What hears a client's bytes, or passes an upstream's on."""

    def __init__(self) -> None:
        self.metrics, self.room = Metrics(), Room(2**24)
        served = Served("a" * 64, RULE)
        route = Route("formula", served, "http://upstream/v1", "key", allowed, Limits(2**16))
        self.table = Table({"formula": route}, known=True)

    async def heard(self, data: bytes) -> None:
        """A client sends so many bytes as the first one says, then the rest, and goes away."""
        upstreams = Upstreams.__new__(Upstreams)
        upstreams._session = NobodyBehind()  # type: ignore[assignment]
        cut = data[0] if data else 0
        await self._served(upstreams, data[1 : cut + 1], data[cut + 1 :])

    async def passed(self, data: bytes) -> bytes:
        """An upstream answers a request with these bytes. Return what the client gets."""
        async with Upstreams() as upstreams:
            own = upstreams._session._connector
            upstreams._session._connector = Answering(data)
            assert own is not None
            await own.close()
            return await self._served(upstreams, REQUEST % b"X: 1", stays=True)

    async def _served(self, upstreams: Upstreams, *pieces: bytes, stays: bool = False) -> bytes:
        app = Gateway(lambda: self.table, upstreams, self.metrics, self.room)
        door, state, client = Door(10, 10, self.metrics.turned_away), ServerState(), Client()
        connection = Connection(server_of(app, door).config, state, {}, door=door)
        with mock.patch.object(log, "error") as bugs:
            connection.connection_made(client)
            for piece in pieces:
                if piece and not client.closed:
                    connection.data_received(piece)
                for _ in range(3):
                    await asyncio.sleep(0)
            if stays:
                await asyncio.gather(*state.tasks)
            connection.connection_lost(None)
            for task in list(state.tasks):
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        assert not bugs.called, bugs.call_args
        answers = bytes(client.got)
        assert not answers or re.match(rb"HTTP/1\.1 \d{3} ", answers), answers[:200]
        assert answers or not stays
        assert self.room.taken == 0 and door.inside == 0 and not door.strangers and not door.clients
        return answers

    def seeds(self) -> Iterable[bytes]:
        """Requests that pass, and those of the tests that do not."""
        hidden = (b"Connection: close, X-Hidden", b"X-Hidden: 1\r\nExpect: 100-continue", b"Upgrade: h2c")
        for whole in (*(REQUEST % one for one in (b"X: 1", *hidden)), CHUNKED, CHUNKED + REQUEST % b"X: 1"):
            yield b"\xff" + whole
            yield b"\x28" + whole
        for path in (
            b"models",
            b"models/org/name",
            b"models/..;/files",
            b"models/%252e%252e/files",
            b"files",
        ):
            yield b"\xffGET /formula/v1/" + path + b" HTTP/1.1\r\nAuthorization: Bearer good\r\n\r\n"
