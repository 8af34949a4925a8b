"""What a client may do before its key is looked at, over raw sockets: heads, connections and time are
bounded, each refusal is counted, and nothing but plain requests reaches the upstream."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from combee.clients.server import Server
from combee.gateway import door as gateway_door
from combee.gateway.door import (
    MOST_FIELDS,
    MOST_HEAD_BYTES,
    MOST_PIPELINED,
    MOST_WAITING_BYTES,
    Connection,
    Door,
)
from combee.gateway.main import UNREAD_BYTES, server_of
from combee.gateway.metrics import Metrics
from combee.gateway.proxy import Gateway
from combee.gateway.room import EACH, Room
from combee.gateway.table import NOTHING, Route, Table
from combee.gateway.upstream import Upstreams
from waiting import PATIENCE_SECONDS, until

EMBEDDINGS = "/formula/v1/embeddings"


@dataclass
class Scene:
    """A gateway behind a port, and what its upstream was sent."""

    port: int
    metrics: Metrics
    door: Door
    server: Server
    seen: list[tuple[str, set[str], bytes]] = field(default_factory=list)
    """path, names of the headers, body."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """the upstream ends its answers once it is set."""
    answer: dict[str, str] = field(default_factory=dict)
    """headers of its answers."""
    first: bytes = b"first "
    """how its answers begin."""
    judged: asyncio.Event = field(default_factory=asyncio.Event)
    """it is known whether a strange key is good once it is set."""

    async def allowed(self, token: str) -> str:
        if token == "strange":
            await self.judged.wait()
        return "a tenant" if token == "good" else ""

    async def upstream(self, request: web.Request) -> web.StreamResponse:
        names = {name.lower() for name in request.headers}
        self.seen.append((request.raw_path, names, await request.read()))
        response = web.StreamResponse(headers=self.answer)
        await response.prepare(request)
        await response.write(self.first)
        await self.go.wait()
        await response.write(b"last")
        return response

    async def open(self) -> Raw:
        """A connection to the gateway."""
        return Raw(*await asyncio.open_connection("127.0.0.1", self.port))

    def turned_away(self, reason: str) -> float:
        """How many connections were refused for that reason."""
        return (
            self.metrics.registry.get_sample_value("combee_gateway_turned_away_total", {"reason": reason})
            or 0.0
        )


@dataclass
class Raw:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Send, whether or not the other side still reads."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def head(self) -> tuple[int, bytes]:
        """(status, the whole head) of the next answer; status 0 where the connection ends without one."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0, b""
        return int(head.split(b" ", 2)[1]), head.lower()

    async def rest(self) -> bytes:
        """All that comes until the connection ends."""
        data = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(65_536):
                    data += piece
        return data


def request(
    body: bytes = b"{}", *headers: str, path: str = EMBEDDINGS, method: str = "POST", key: str = "good"
) -> bytes:
    """A request as bytes; its length is given unless a header says how the body is sent."""
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *headers]
    if not any(line.lower().startswith("transfer-encoding") for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def opened(most: int = 1000, per_client: int = 1000) -> AsyncIterator[Scene]:
    app, metrics = web.Application(), Metrics()
    door = Door(most, per_client, metrics.turned_away)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    async with Upstreams() as upstreams:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
            routes: dict[str, Route] = {}
            server = server_of(
                Gateway(lambda: Table(routes, known=True), upstreams, metrics, Room(2**26)), door
            )
            scene = Scene(listener.getsockname()[1], metrics, door, server)
            scene.go.set()
            app.router.add_route("*", "/{path:.*}", scene.upstream)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            routes["formula"] = Route("formula", NOTHING, url, "", scene.allowed)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await until(lambda: server.started)
            try:
                yield scene
            finally:
                scene.go.set()
                for connection in list(server.server_state.connections):
                    connection.transport.close()
                server.should_exit = True
                await serving
                await runner.cleanup()


TOO_MUCH = {
    "one header that does not end": b"GET / HTTP/1.1\r\nX: " + b"x" * (400 * 1024),
    "a target that does not end": b"GET /" + b"x" * (400 * 1024),
    "whole headers": b"GET / HTTP/1.1\r\n" + b"X: %s\r\n" % (b"x" * 600) * (MOST_HEAD_BYTES // 600 + 2),
    "small ones": b"GET / HTTP/1.1\r\n" + b"x:\r\n" * (MOST_FIELDS + 2),
    "a trailer that does not end": (
        request(b"2\r\n{}\r\n0\r\nx: ", "Transfer-Encoding: chunked") + b"x" * 2**20
    ),
    "trailers": request(b"2\r\n{}\r\n0\r\n" + b"x:\r\n" * MOST_FIELDS, "Transfer-Encoding: chunked"),
}


@pytest.mark.parametrize("sent", TOO_MUCH.values(), ids=TOO_MUCH)
async def test_a_head_is_bounded_before_any_key_is_looked_at(sent: bytes) -> None:
    async with opened() as scene:
        link = await scene.open()
        await link.send(sent)
        status, head = await link.head()
        assert (status, b"connection: close" in head) == (431, True)
        await link.rest()
        assert scene.turned_away("HeadTooLarge") == 1
        assert scene.seen == []


async def test_a_head_counts_from_its_first_byte() -> None:
    async with opened() as scene:
        link = await scene.open()
        await link.send(b"GET / HTTP/1.1\r\nX: " + b"x" * (MOST_HEAD_BYTES + 100))
        assert (await link.head())[0] == 431


async def test_a_head_that_is_just_small_enough_passes() -> None:
    async with opened() as scene:
        link = await scene.open()
        await link.send(request(b"{}", *(f"x-{at}: {'y' * 300}" for at in range(MOST_FIELDS - 10))))
        assert (await link.head())[0] == 200


HALVES = {
    "nothing": b"",
    "a part of a line": b"POST /formu",
    "a part of a head": request()[:60],
    "empty lines": b"\r\n" * 20,
    "the next head": request(b"{}", key="bad") + b"POST /",
    "a body that was refused already": request(b"x" * 5000, key="bad")[:-4000],
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
async def test_a_whole_head_must_come_in_time(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(gateway_door, "QUIET_SECONDS", 0.2)
    async with opened() as scene:
        link = await scene.open()
        await link.send(sent)
        await link.rest()
        assert scene.seen == []


async def test_a_late_head_is_answered_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "HEAD_SECONDS", 0.2)
    async with opened() as scene:
        link = await scene.open()
        await link.send(b"POST ")
        assert (await link.head())[0] == 408
        assert json.loads(await link.rest())["error"]["code"] == "head_late"
        assert scene.turned_away("HeadLate") == 1


async def test_a_client_refused_before_its_body_came_is_asked_for_no_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[Connection] = []
    complete = Connection.on_message_complete

    def seen(connection: Connection) -> None:
        complete(connection)
        done.append(connection)

    monkeypatch.setattr(Connection, "on_message_complete", seen)
    async with opened() as scene:
        link = await scene.open()
        sent = request(b"{}", path="/formula/v1/nothing")
        await link.send(sent[:-2])
        assert (await link.head())[0] == 404
        await link.send(sent[-2:])
        await until(lambda: done)
        assert (done[0]._late, done[0].timeout_keep_alive_task is None) == (None, False)
        await link.reader.readuntil(b"}}")
        await link.send(request())
        assert (await link.head())[0] == 200


@pytest.mark.parametrize("then", ["keep-alive", "close"])
async def test_who_trickles_what_was_refused_is_closed_all_the_same(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_door, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(gateway_door, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(gateway_door, "KEEP_ALIVE_SECONDS", 3600)
    async with opened() as scene:
        link = await scene.open()
        await link.send(request(b"x" * 100_000, f"Connection: {then}", path="/formula/v1/no")[:-100_000])
        assert (await link.head())[0] == 404

        async def trickle() -> None:
            while not link.writer.is_closing():
                await link.send(b"x")
                await asyncio.sleep(0.01)

        trickling = asyncio.create_task(trickle())
        await link.rest()
        await until(lambda: scene.door.inside == 0)
        trickling.cancel()


async def test_who_is_refused_and_has_more_to_send_has_a_place_until_another_needs_it() -> None:
    async with opened(most=1) as scene:
        link = await scene.open()
        await link.send(request(b"x" * 100_000, "Connection: close", key="bad")[:-100_000])
        assert (await link.head())[0] == 401
        await link.rest()
        await link.send(b"x" * 50_000 + request())
        assert (scene.door.inside, scene.turned_away("GaveWay")) == (1, 0)
        newcomer = await scene.open()
        await newcomer.send(request())
        assert (await newcomer.head())[0] == 200
        assert (scene.door.inside, scene.turned_away("GaveWay")) == (1, 1)
        assert len(scene.seen) == 1


async def test_one_address_has_so_many_connections_and_no_more() -> None:
    async with opened(per_client=2) as scene:
        first, second = await scene.open(), await scene.open()
        for link in (first, second):
            await link.send(request())
            assert (await link.head())[0] == 200
        status, head = await (await scene.open()).head()
        assert (status, b"retry-after: 1" in head) == (503, True)
        assert scene.turned_away("ClientFull") == 1
        await first.send(b"x")  # a malformed one: its connection ends
        await first.rest()
        first.writer.close()
        await until(lambda: sum(scene.door.clients.values()) == 1)
        third = await scene.open()
        await third.send(request())
        assert (await third.head())[0] == 200


async def test_strangers_give_way_to_new_connections_and_those_with_a_key_stay() -> None:
    async with opened(most=2) as scene:
        friend, stranger = await scene.open(), await scene.open()
        await friend.send(request())
        assert (await friend.head())[0] == 200
        newcomer = await scene.open()
        assert await stranger.rest() == b""
        await newcomer.send(request())
        assert (await newcomer.head())[0] == 200
        assert (await (await scene.open()).head())[0] == 503
        await friend.send(request())
        await friend.reader.readuntil(b"\r\n0\r\n\r\n")
        assert (await friend.head())[0] == 200
        assert (scene.turned_away("GaveWay"), scene.turned_away("Full")) == (1, 1)


async def test_who_is_refused_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "LINGER_SECONDS", 3600.0)
    monkeypatch.setattr(gateway_door, "MOST_LINGERING", 3, raising=False)
    async with opened(most=6, per_client=2) as scene:
        friends = [await scene.open() for _ in range(2)]
        for link in friends:
            await link.send(request())
            assert (await link.head())[0] == 200
        refused = [await scene.open() for _ in range(9)]
        for link in refused[:3]:  # the others are answered at once
            await link.send(request())
        assert [(await link.head())[0] for link in refused] == [503] * 9
        assert (scene.door.inside, scene.door.clients.total(), scene.door.lingering) == (2, 2, 3)
        for link in refused:
            link.writer.close()
        await until(lambda: scene.door.lingering == 0)


async def test_who_finds_no_place_is_answered_once_it_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "LINGER_SECONDS", 3600.0)
    async with opened(per_client=1) as scene:
        friend, refused = await scene.open(), await scene.open()
        await until(lambda: scene.door.lingering == 1)
        assert scene.turned_away("ClientFull") == 0
        await refused.send(request(b"x" * 2**20))
        status, head = await refused.head()
        assert (status, b"retry-after: 1" in head, b"connection: close" in head) == (503, True, True)
        assert json.loads(await refused.rest())["error"]["code"] == "connections"
        assert scene.turned_away("ClientFull") == 1
        friend.writer.close()


async def test_who_finds_no_place_and_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "LINGER_SECONDS", 0.1)
    async with opened(per_client=1) as scene:
        friend, refused = await scene.open(), await scene.open()
        assert (await refused.head())[0] == 503
        await refused.rest()
        await until(lambda: scene.door.lingering == 0)
        friend.writer.close()


async def test_a_body_is_not_read_before_its_key_is_known_and_not_kept_after() -> None:
    async with opened() as scene:
        link, other = await scene.open(), await scene.open()
        sent = request(b"x" * 50_000, key="strange")
        await link.send(sent[:-50_000])
        await until(lambda: any(one.cycle for one in scene.server.server_state.connections))
        (stranger,) = [one for one in scene.server.server_state.connections if one.cycle]
        await link.send(sent[-50_000:-40_000])
        await other.send(request())
        assert (await other.head())[0] == 200
        assert stranger.cycle.body == b""
        scene.judged.set()
        assert (await link.head())[0] == 401
        await link.reader.readuntil(b"}}")
        await link.send(sent[-40_000:] + request())
        assert (await link.head())[0] == 200


WAITING = {
    "behind an answer under way": request(),
    "behind a large body": request(b"x" * 300_000),
    "behind one that is refused": request(key="bad"),
    "behind many that are refused": request(b"x" * 5_000, key="bad") * (MOST_PIPELINED - 1),
    "behind others with bodies": request() + request(b"x" * 40_000, key="strange") * (MOST_PIPELINED - 2),
}


@pytest.mark.parametrize("before", WAITING.values(), ids=WAITING)
async def test_bodies_that_wait_on_one_connection_are_part_of_what_it_takes(
    before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, come = list[int](), Connection.on_body

    def seen(connection: Connection, body: bytes) -> None:
        come(connection, body)
        first, *behind = connection._answering, *(cycle for cycle, _ in connection.pipeline)
        asked = (b"authorization", b"Bearer good") in first.scope["headers"]
        held.append(sum(len(one.body) for one in (behind if asked else (first, *behind))))

    monkeypatch.setattr(Connection, "on_body", seen)
    async with opened() as scene:
        scene.go.clear()
        link, other = await scene.open(), await scene.open()
        sending = asyncio.create_task(link.send(before + request(b"y" * 300_000, key="strange")))
        for _ in range(20):
            await other.send(request(key="bad"))
            assert (await other.head())[0] == 401
            await other.reader.readuntil(b"}}")
        scene.judged.set()
        scene.go.set()
        await sending
        await link.reader.readuntil(b" 401 ")
        assert 0 < max(held) < 2 * UNREAD_BYTES + MOST_WAITING_BYTES < EACH


async def test_what_came_of_a_body_that_is_refused_is_forgotten() -> None:
    async with opened() as scene:
        link = await scene.open()
        await link.send(request(b"x" * 50_000, key="bad")[:-40_000])
        assert (await link.head())[0] == 401
        (stranger,) = scene.server.server_state.connections
        await until(lambda: stranger.cycle.response_complete)
        assert stranger.cycle.body == b""


async def test_a_connection_ends_whose_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "UNREAD_WITH_KEY_SECONDS", 1)
    async with opened() as scene:
        scene.first = b"x" * 2**24
        link = await scene.open()
        await link.send(request())
        await until(lambda: len(scene.seen) == 1)
        await until(lambda: scene.door.inside == 0)
        await until(lambda: scene.metrics.registry.get_sample_value("combee_gateway_in_flight") == 0)


async def test_a_client_that_does_not_read_gives_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_door, "UNREAD_SECONDS", 600)
    async with opened(most=1) as scene:
        silent = await scene.open()
        await until(lambda: scene.door.inside == 1)
        stranger = next(iter(scene.door.strangers))
        stranger.transport.write(b"x" * 2**24)
        await until(lambda: stranger.transport.get_write_buffer_size() > 0)
        newcomer = await scene.open()
        await until(lambda: scene.turned_away("GaveWay") == 1)
        await until(lambda: stranger not in scene.server.server_state.connections)
        for link in (silent, newcomer):
            link.writer.close()


async def test_all_connections_are_forgotten_when_they_end() -> None:
    async with opened(per_client=2) as scene:
        for _ in range(20):
            link = await scene.open()
            await link.send(b"no request\r\n\r\n")
            assert (await link.head())[0] in (400, 503)
            await link.rest()
        await until(lambda: not scene.door.clients)
        assert scene.door.inside == 0
        assert not scene.door.strangers


MODELS, CHUNKED = "/formula/v1/models", b"2\r\n{}\r\n0\r\n\r\n"
NOT_PASSED = {
    "a word that some servers read as a way up": (
        request(b"", path=f"{MODELS}/..;/files", method="GET"),
        404,
    ),
    "one decoded twice": (request(b"", path=f"{MODELS}/%252e%252e/files", method="GET"), 404),
    "a backslash": (request(b"", path=f"{MODELS}/..%5cfiles", method="GET"), 404),
    "a line end": (request(b"", path=f"{MODELS}/a%0a", method="GET"), 404),
    "parameters of a path": (request(path=f"{EMBEDDINGS};x=1"), 404),
    "another coding": (request(CHUNKED, "Transfer-Encoding: gzip, chunked"), 501),
    "two codings": (request(CHUNKED, "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), 501),
    "two lengths": (request(b"{}", "Content-Length: 3"), 400),
    "a length and chunks": (request(CHUNKED, "Transfer-Encoding: chunked", "Content-Length: 5"), 400),
    "another protocol after a body": (request(b"{}", "Connection: upgrade", "Upgrade: h2c"), 501),
}


@pytest.mark.parametrize("case", NOT_PASSED.values(), ids=NOT_PASSED)
async def test_what_could_be_read_in_two_ways_does_not_pass(case: tuple[bytes, int]) -> None:
    sent, status = case
    async with opened() as scene:
        link = await scene.open()
        await link.send(sent)
        assert (await link.head())[0] == status
        assert scene.seen == []


async def test_headers_between_neighbours_and_trailers_do_not_pass() -> None:
    async with opened() as scene:
        scene.answer = {"Connection": "X-Theirs", "X-Theirs": "1", "X-Kept": "1"}
        link = await scene.open()
        hidden = ("Connection: keep-alive, X-Hidden", "X-Hidden: 1", "X-Passed: 1")
        body = b"2\r\n{}\r\n0\r\nX-Trailer: 1\r\nAuthorization: Bearer x\r\n\r\n"
        await link.send(request(body, *hidden, "Transfer-Encoding: chunked"))
        status, head = await link.head()
        _, names, given = scene.seen[-1]
        assert (status, given) == (200, b"{}")
        assert {"x-hidden", "x-trailer", "x-passed"} & names == {"x-passed"}
        assert (b"x-theirs" in head, b"x-kept" in head) == (False, True)


async def test_few_requests_wait_on_one_connection() -> None:
    async with opened() as scene:
        scene.go.clear()
        link = await scene.open()
        await link.send(request() * (MOST_PIPELINED + 3))
        await link.rest()
        assert scene.turned_away("Pipelined") == 1
        assert len(scene.seen) <= 1


async def test_a_head_behind_a_large_body_counts_without_it() -> None:
    async with opened() as scene:
        scene.go.clear()
        link, sent, following = await scene.open(), b"x" * (2 * MOST_HEAD_BYTES), request()
        await link.send(request(sent) + following[:20])
        await link.reader.readuntil(b"first ")
        scene.go.set()
        await link.reader.readuntil(b"last\r\n0\r\n\r\n")
        await link.send(following[20:])
        assert (await link.head())[0] == 200
        assert [body for _, _, body in scene.seen] == [sent, b"{}"]


async def test_a_client_that_leaves_ends_the_first_of_several_requests() -> None:
    async with opened() as scene:
        scene.go.clear()
        link = await scene.open()
        await link.send(request() * 3)
        await link.reader.readuntil(b"first ")
        link.writer.close()
        await until(lambda: scene.metrics.registry.get_sample_value("combee_gateway_in_flight") == 0)
        assert len(scene.seen) == 1


async def test_a_malformed_body_is_refused_where_a_client_waits_to_continue() -> None:
    async with opened() as scene:
        link = await scene.open()
        await link.send(request(b"no size\r\n", "Transfer-Encoding: chunked", "Expect: 100-continue"))
        assert (await link.head())[0] == 400
        await until(lambda: scene.metrics.registry.get_sample_value("combee_gateway_in_flight") == 0)
        counted = {"playbook": "formula", "code": "499"}
        assert scene.metrics.registry.get_sample_value("combee_gateway_requests_total", counted) == 1


async def test_what_follows_a_request_never_breaks_into_its_answer() -> None:
    async with opened() as scene:
        scene.go.clear()
        link = await scene.open()
        await link.send(request())
        await link.reader.readuntil(b"first ")
        await link.send(b"no request\r\n\r\n")
        assert b"HTTP/1.1" not in await link.rest()
        assert scene.turned_away("Malformed") == 1


async def test_a_gateway_that_stops_answers_what_comes_on_kept_connections() -> None:
    async with opened() as scene:
        idle, streaming, asking = [await scene.open() for _ in range(3)]
        for link in (idle, asking):
            await link.send(request())
            await link.reader.readuntil(b"\r\n0\r\n\r\n")
        scene.go.clear()
        await streaming.send(request())
        await streaming.reader.readuntil(b"first ")
        scene.door.stopping = scene.server.should_exit = True
        await until(lambda: not scene.server.servers[0].is_serving())
        scene.go.set()
        await streaming.reader.readuntil(b"\r\n0\r\n\r\n")
        for link in (idle, streaming):
            await link.send(request())
            status, head = await link.head()
            assert (status, b"connection: close" in head) == (200, True)
            assert (await link.rest()).endswith(b"\r\n0\r\n\r\n")
        assert len(scene.seen) == 5
        asking.writer.close()
