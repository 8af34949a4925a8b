"""Memory for bodies is bounded: samples give way first, and a request without room is told to come again."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from combee.gateway import request as gateway_request
from combee.gateway.door import Door
from combee.gateway.main import server_of
from combee.gateway.metrics import Metrics
from combee.gateway.proxy import Gateway
from combee.gateway.request import SLOWEST_BYTES, Refusal, body_of
from combee.gateway.room import EACH, Room, working
from combee.gateway.shadow import Shadow
from combee.gateway.spool import Place, Spool
from combee.gateway.table import Limits, Mirroring, Route, Served, Table, TrafficComparison
from combee.gateway.upstream import Upstreams
from waiting import until

MIB = 1024 * 1024
A, B = Served("a" * 64, "the rule of A"), Served("b" * 64, "the rule of B")
TEST = TrafficComparison("test-1", B.digest, A.digest, 1.0, B)


@dataclass
class Measured(Room):
    """Remembers the most that was taken."""

    peak: int = 0

    def take(self, size: int, holder: str = "", *, sample: bool = False) -> bool:
        took = super().take(size, holder, sample=sample)
        self.peak = max(self.peak, self.taken)
        return took


@dataclass
class Scene:
    """A gateway and its upstream, both on sockets."""

    url: str
    room: Measured
    metrics: Metrics
    shadow: Shadow
    client: aiohttp.ClientSession
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """the upstream answers requests to A once it is set."""
    came: list[str] = field(default_factory=list)
    """digest's letter of each request that the upstream got."""

    async def upstream(self, request: web.Request) -> web.Response:
        told = json.loads(await request.read())["messages"][0]["content"]
        self.came.append(told[-1:])
        if told.endswith("A"):
            await self.go.wait()
        else:
            await asyncio.Event().wait()  # of a candidate, nobody ever hears
        message = {"role": "assistant", "content": "so"}
        return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    async def ask(self, size: int, *, whole: bool = True) -> tuple[int, str, str]:
        """(status, code, Retry-After) of a request of about so many bytes."""
        body = chat(size)
        told = body if whole else _pieces(body)
        async with self.client.post(self.url, data=told, headers={"Authorization": "Bearer k"}) as answer:
            said = await answer.json()
            code = said["error"]["code"] if "error" in said else ""
            return answer.status, code, answer.headers.get("Retry-After", "")

    def count(self, outcome: str) -> float:
        got = self.metrics.registry.get_sample_value(
            "combee_gateway_mirrored_total", {"playbook": "formula", "outcome": outcome}
        )
        return got or 0.0

    def gauge(self, name: str, **labels: str) -> float:
        got = self.metrics.registry.get_sample_value(f"combee_gateway_{name}", labels)
        assert got is not None, name
        return got


def chat(size: int) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "x" * size}]}).encode()


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 64 * 1024):
        yield body[start : start + 64 * 1024]


async def allowed(token: str) -> str:
    return "a tenant" if token == "k" else ""


@asynccontextmanager
async def started(room: int, mirroring: Mirroring | None = None) -> AsyncIterator[Scene]:
    metrics, memory = Metrics(), Measured(room)
    metrics.look_at(memory)
    app = web.Application(client_max_size=2**30)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    async with Upstreams() as upstreams, Upstreams() as mirrored, aiohttp.ClientSession() as client:
        shadow = Shadow(mirrored, Spool(), metrics, memory)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            scene = Scene(
                f"http://127.0.0.1:{listener.getsockname()[1]}/formula/v1/chat/completions",
                memory,
                metrics,
                shadow,
                client,
            )
            app.router.add_post("/v1/chat/completions", scene.upstream)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            upstream = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            route = Route("formula", A, upstream, "", allowed, Limits(), mirroring)
            table = Table({"formula": route}, known=True)
            server = server_of(
                Gateway(lambda: table, upstreams, metrics, memory, shadow),
                Door(1000, 1000, metrics.turned_away),
            )
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await until(lambda: server.started)
            try:
                yield scene
            finally:
                scene.go.set()
                await shadow.aclose()
                await runner.cleanup()
                await client.close()
                server.should_exit = True
                await serving


@pytest.mark.parametrize("whole", [True, False], ids=["told", "chunked"])
async def test_bodies_take_no_more_than_there_is_and_who_finds_none_is_told_to_come_again(
    whole: bool,
) -> None:
    async with started(16 * MIB) as scene:
        asked = [asyncio.create_task(scene.ask(MIB, whole=whole)) for _ in range(24)]
        await until(lambda: len(scene.came) + sum(one.done() for one in asked) == 24)
        refused = [one.result() for one in asked if one.done()]
        assert refused and set(refused) == {(503, "no_memory", "1")}
        assert scene.gauge("body_bytes") == scene.room.taken > 2 * MIB * len(scene.came)
        assert scene.gauge("no_memory_total", playbook="formula") == len(refused)
        scene.go.set()
        answers = await asyncio.gather(*asked)
        assert [status for status, *_ in answers].count(200) == len(scene.came) >= 3
        # All of it is free again, and the next one finds its place.
        assert scene.gauge("body_bytes") == 0 < scene.room.peak <= scene.room.most == 16 * MIB
        assert await scene.ask(MIB, whole=whole) == (200, "", "")
        assert scene.room.taken == 0


async def test_a_body_for_which_there_will_never_be_room_is_too_large() -> None:
    async with started(4 * MIB) as scene:
        assert [(await scene.ask(3 * MIB, whole=whole))[:2] for whole in (True, False)] == [
            (413, "too_large")
        ] * 2
        # It could be held, but not be read: text that is all brackets takes many times its size.
        nested = b'{"messages": [{"role": "user", "content": [' + b"{}," * 100_000 + b"{}]}]}"
        async with scene.client.post(scene.url, data=nested, headers={"Authorization": "Bearer k"}) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (413, "too_large")
        assert (scene.came, scene.room.taken) == ([], 0)


async def test_samples_give_way_to_a_request_and_are_counted() -> None:
    mirroring = Mirroring(Place("/nowhere"), (TEST,), captured_share=0.0, queue=100, concurrency=2)
    async with started(8 * MIB, mirroring) as scene:
        scene.go.set()
        for _ in range(16):
            assert (await scene.ask(250_000))[0] == 200
        await until(lambda: scene.came.count("B") == 2)
        # Two are at work and some wait; those for which there was no room by half were left out.
        left_out, held = scene.count("Shed"), scene.room.taken
        assert left_out > 0 and 0 < held <= scene.room.most // 2
        scene.go.clear()
        large = asyncio.create_task(scene.ask(int(1.2 * MIB)))
        await until(lambda: large.done() or scene.came.count("A") == 17)
        assert not large.done() and scene.count("Shed") > left_out
        assert scene.room.peak <= scene.room.most
        scene.go.set()
        assert await large == (200, "", "")
        assert (scene.count("Kept"), scene.count("Failed")) == (0, 0)


async def test_a_long_answer_ends_its_sample_and_nothing_is_left_taken() -> None:
    mirroring = Mirroring(Place("/nowhere"), (TEST,), queue=0, concurrency=1)
    async with started(64 * MIB, mirroring) as scene:
        scene.go.set()
        # Over the size of a sample.
        assert await scene.ask(300 * 1024) == (200, "", "")
        assert (scene.count("Shed"), scene.room.taken) == (1, 0)
        assert await scene.ask(10) == (200, "", "")
        await until(lambda: "B" in scene.came)
        assert scene.room.taken > EACH
        # No place in the queue.
        assert await scene.ask(10) == (200, "", "")
        assert scene.count("Shed") == 2
        await scene.shadow.aclose()
        assert scene.room.taken == 0


async def test_a_body_has_the_more_time_the_more_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_request, "BODY_SECONDS", 0.05)
    minute = b"x" * (60 * SLOWEST_BYTES)
    pieces: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    pieces.put_nowait({"type": "http.request", "body": minute, "more_body": True})
    asyncio.get_running_loop().call_later(0.2, pieces.put_nowait, {"type": "http.request", "body": b"y"})
    with Room(16 * MIB).hold() as hold:
        assert await body_of([], pieces.get, 16 * MIB, hold) == minute + b"y"


async def test_a_body_that_trickles_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_request, "BODY_SECONDS", 0.05)

    async def trickled() -> dict[str, object]:
        await asyncio.sleep(0.001)
        return {"type": "http.request", "body": b"x", "more_body": True}

    with Room(16 * MIB).hold() as hold, pytest.raises(Refusal, match="body_late"):
        await body_of([], trickled, 16 * MIB, hold)


def test_samples_find_room_only_while_half_is_free() -> None:
    room = Room(100)
    request, sample = room.hold(), room.hold(sample=True)
    assert sample.take(50) and not sample.take(1)
    assert request.take(50) and not request.take(1)
    sample.close()
    assert request.take(50) and room.taken == 100
    assert not sample.take(1)
    request.close()
    assert room.taken == 0


def test_what_it_takes_to_read_a_body_is_never_told_too_low() -> None:
    """By what Python's own parser takes, of bodies that are made of one thing only."""
    import tracemalloc

    from combee.work.traffic.rewrite import with_preface

    many = 5_000
    contents = {
        "text": b'"' + b"x" * 200_000 + b'"',
        "other alphabets": ('"' + "é" * 100_000 + "😀" + '"').encode(),
        "empty objects": b"[" + b",".join([b"{}"] * many) + b"]",
        "small objects": b"[" + b",".join(b'{"k%d": %d.5}' % (n, n) for n in range(many)) + b"]",
        "one large object": b"{" + b",".join(b'"k%d": "v%d"' % (n, n) for n in range(many)) + b"}",
        "empty lists": b"[" + b",".join([b"[]"] * many) + b"]",
        "numbers": b"[" + b",".join(b"%d" % (10**9 + n) for n in range(many)) + b"]",
    }
    for name, content in contents.items():
        for role in (b"user", b"system"):
            body = b'{"messages": [{"role": "%s", "content": %s}]}' % (role, content)
            tracemalloc.start()
            with_preface(body, "the rule")
            took = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert took <= working(body) + len(body), (name, role, took / len(body))
