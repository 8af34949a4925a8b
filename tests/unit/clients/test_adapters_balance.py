"""One name, several servers: who is asked, and what happens when one goes or comes."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx2
import pytest

from combee.clients.model.balance import AVOID_SECONDS, RESOLVE_SECONDS, SERVER, BalancedTransport
from combee.clients.model.ready import Gate
from combee.errors import EndpointError, TransientError, UnreachableError

URL = "http://engine.team.svc:8000/v1/chat/completions"


class World:
    """Servers by address, the name's addresses, and the time."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.now = 0.0
        self.asked: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.down: set[str] = set()
        self.hosts: set[str] = set()
        self.resolved = 0
        self.hold: asyncio.Event | None = None
        self.busy = asyncio.Event()
        self.transport = BalancedTransport(lambda: Lane(self), resolve=self.resolve, clock=lambda: self.now)

    async def resolve(self, host: str, port: int) -> list[str]:
        self.resolved += 1
        if not self.addresses:
            raise OSError("no such name")
        return list(self.addresses)

    async def ask(self) -> int:
        async with httpx2.AsyncClient(transport=Borrowed(self.transport)) as client:
            return (await client.post(URL, content=b"{}")).status_code


class Borrowed(httpx2.AsyncBaseTransport):
    def __init__(self, inner: BalancedTransport) -> None:
        self.handle_async_request = inner.handle_async_request  # type: ignore[method-assign]


class Lane(httpx2.AsyncBaseTransport):
    def __init__(self, world: World) -> None:
        self.world = world

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        world, address = self.world, request.url.host
        if address in world.down:
            raise httpx2.ConnectError("refused", request=request)
        world.hosts.add(request.headers["host"])
        world.asked[address] += 1
        world.in_flight[address] += 1
        world.most[address] = max(world.most[address], world.in_flight[address])
        if sum(world.asked.values()) == 30:
            world.busy.set()
        if world.hold is not None:
            await world.hold.wait()
        world.in_flight[address] -= 1
        return httpx2.Response(200, content=b"{}")


async def test_calls_in_flight_are_shared_out_evenly() -> None:
    world = World("10.0.0.1", "10.0.0.2", "10.0.0.3")
    world.hold = asyncio.Event()
    calls = [asyncio.create_task(world.ask()) for _ in range(30)]
    await world.busy.wait()
    world.hold.set()
    assert await asyncio.gather(*calls) == [200] * 30
    assert world.most == {"10.0.0.1": 10, "10.0.0.2": 10, "10.0.0.3": 10}
    assert world.hosts == {"engine.team.svc:8000"}
    assert world.resolved == 1


async def test_idle_servers_are_asked_in_turn() -> None:
    world = World("10.0.0.1", "10.0.0.2")
    for _ in range(10):
        await world.ask()
    assert world.asked == {"10.0.0.1": 5, "10.0.0.2": 5}


async def test_a_server_that_cannot_be_reached_is_passed_over_and_tried_again_later() -> None:
    world = World("10.0.0.1", "10.0.0.2")
    world.down.add("10.0.0.1")
    assert [await world.ask() for _ in range(6)] == [200] * 6
    assert world.asked == {"10.0.0.2": 6}
    world.down.clear()
    world.now += AVOID_SECONDS
    for _ in range(6):
        await world.ask()
    assert world.asked["10.0.0.1"] > 0


async def test_a_new_server_is_found_and_gets_its_share_only() -> None:
    world = World("10.0.0.1")
    for _ in range(20):
        await world.ask()
    world.addresses.append("10.0.0.2")
    world.now += RESOLVE_SECONDS
    await world.ask()
    await asyncio.sleep(0)
    before = world.asked["10.0.0.1"]
    for _ in range(10):
        await world.ask()
    assert world.asked["10.0.0.2"] == 5 and world.asked["10.0.0.1"] == before + 5


async def test_a_server_that_left_the_name_is_asked_no_more() -> None:
    world = World("10.0.0.1", "10.0.0.2")
    await world.ask()
    world.addresses = ["10.0.0.2"]
    world.now += RESOLVE_SECONDS
    await world.ask()
    await asyncio.sleep(0)
    asked = world.asked["10.0.0.1"]
    for _ in range(4):
        await world.ask()
    assert world.asked["10.0.0.1"] == asked


async def test_no_address_and_no_server_are_connection_errors() -> None:
    world = World()
    with pytest.raises(httpx2.ConnectError, match="has no address"):
        await world.ask()
    world.addresses, world.down = ["10.0.0.1"], {"10.0.0.1"}
    world.now += RESOLVE_SECONDS
    with pytest.raises(httpx2.ConnectError, match="takes connections"):
        await world.ask()
    world.down.clear()
    assert await world.ask() == 200


async def test_a_name_that_fails_for_a_while_keeps_its_servers() -> None:
    world = World("10.0.0.1")
    await world.ask()
    world.addresses = []
    world.now += RESOLVE_SECONDS
    assert [await world.ask() for _ in range(3)] == [200] * 3


class Starting:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked = 0
        self.now = 0.0

    async def check(self) -> None:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def gate(self, seconds: float) -> Gate:
        return Gate(self.check, seconds, clock=lambda: self.now, sleep=self.sleep)


def refused() -> UnreachableError:
    return UnreachableError(
        "the endpoint cannot be reached (ConnectError)", where="models.task", fix="Start it"
    )


async def test_a_starting_server_is_waited_for_once_for_all() -> None:
    server = Starting(refused(), TransientError("503"), refused())
    gate = server.gate(60)
    await asyncio.gather(*(gate() for _ in range(20)))
    assert server.asked == 4 and server.now > 0


async def test_a_server_that_does_not_come_up_is_given_up_once_for_all() -> None:
    server = Starting(*(refused() for _ in range(100)))
    gate = server.gate(20)
    found = await asyncio.gather(*(gate() for _ in range(5)), return_exceptions=True)
    assert [str(error) for error in found] == [
        "models.task: not ready within 20 s: the endpoint cannot be reached (ConnectError). Start it"
    ] * 5
    assert server.now == 20 and isinstance(found[0], UnreachableError)


async def test_a_refused_key_is_not_waited_for() -> None:
    server = Starting(EndpointError("the API key is refused (401)"))
    with pytest.raises(EndpointError, match="401"):
        await server.gate(60)()
    assert server.asked == 1 and server.now == 0


async def test_a_request_that_names_its_server_goes_there_however_busy_it_is() -> None:
    world = World("10.0.0.1", "10.0.0.2")
    assert world.transport.addresses() == []
    await world.ask()
    assert world.transport.addresses() == ["10.0.0.1", "10.0.0.2"]
    async with httpx2.AsyncClient(transport=Borrowed(world.transport)) as client:
        for _ in range(3):
            await client.get(URL, extensions={SERVER: "10.0.0.2"})
        assert world.asked == {"10.0.0.1": 1, "10.0.0.2": 3}
        with pytest.raises(httpx2.ConnectError, match=r"10\.0\.0\.9 is no longer one of engine"):
            await client.get(URL, extensions={SERVER: "10.0.0.9"})
