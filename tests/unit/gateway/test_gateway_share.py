"""What is shed when too much comes: by key first, then whatever the loop cannot keep up with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import fields
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_gateway_room import Held

from combee.gateway.metrics import Metrics
from combee.gateway.proxy import Gateway
from combee.gateway.request import MOST_RETRY_SECONDS
from combee.gateway.room import LATE_SECONDS, LEAST_AT_ONCE, SHARE, Hold, Room, paced
from combee.gateway.table import NOTHING, Limits, Route, Table
from combee.gateway.upstream import Upstreams
from combee.settings import GatewaySettings

TENANTS = "abcde"


def fill(room: Room, holder: str, size: int = 1) -> int:
    """Take as often as there is something; return how often that was."""
    taken = 0
    while room.take(size, holder):
        taken += 1
    return taken


@pytest.mark.parametrize("most", [9, 90, 900, 1000])
def test_one_key_takes_eight_ninths_and_leaves_the_rest(most: int) -> None:
    room = Room(most)
    assert fill(room, "a") == pytest.approx(most * SHARE / (SHARE + 1), abs=1)
    assert fill(room, "b") > 0


def test_all_of_a_small_limit_can_be_used() -> None:
    assert [fill(Room(most), "a") for most in (1, 2, 5, 8)] == [1, 2, 5, 8]


@given(st.integers(100, 5000), st.integers(0, 5000))
def test_a_burst_leaves_a_ninth_to_the_next_key(most: int, others: int) -> None:
    room = Room(most)
    for number in range(min(others, most // 2)):
        room.take(1, f"other {number}")
    fill(room, "burst")
    assert fill(room, "next") >= (most - min(others, most // 2)) // 10 - 8


@given(st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(1, 300), st.booleans()), max_size=100))
def test_what_is_taken_is_never_over_and_all_given_back(steps: list[tuple[str, int, bool]]) -> None:
    room, holds = Room(1000), list[Hold]()
    for holder, size, ends in steps:
        if ends and holds:
            holds.pop(0).close()
        hold = room.hold(holder)
        if hold.take(size):
            holds.append(hold)
        assert room.taken == sum(one.taken for one in holds) == sum(room.held.values()) <= room.most
    for hold in holds:
        hold.close()
    assert (room.taken, dict(room.held)) == (0, {})


def test_a_soft_limit_gives_everybody_an_equal_part_and_no_more() -> None:
    room = Room(100, soft=True)
    fill(room, "a")
    room.most = 30
    assert [fill(room, holder) for holder in "abc"] == [0, 15, 10]


def test_a_tenant_that_comes_late_gets_as_much_as_the_first_once_the_first_gives_back() -> None:
    room = Room(900)
    first = room.hold("a")
    while first.take(1):
        pass
    second = room.hold("b")
    for _ in range(900):
        first.give(1) if first.taken else None
        while second.take(1):
            pass
        while first.take(1):
            pass
    assert first.taken == pytest.approx(second.taken, rel=0.05)


def test_a_late_loop_takes_fewer_and_fewer_and_recovers() -> None:
    room = Room(1000, taken=500)
    assert [paced(room, late, 1000) for late in (0.0, 0.25, 0.5, 9.0)] == [1000, 375, 250, 250]
    for _ in range(100):
        room.taken = room.most
        room.most = paced(room, LATE_SECONDS * 2, 1000)
    assert room.most == LEAST_AT_ONCE
    for _ in range(100):
        room.most = paced(room, 0.0, 1000)
    assert room.most == 1000


@pytest.mark.parametrize("taken", [0, 1, LEAST_AT_ONCE])
def test_a_loop_that_is_late_with_few_requests_takes_as_many_as_before(taken: int) -> None:
    assert paced(Room(1000, taken=taken), LATE_SECONDS * 2, 1000) == 1000


def test_one_ingress_has_connections_for_all_places_and_as_many_idle_ones() -> None:
    [variable] = [each for each in fields(GatewaySettings) if each.name == "connections_per_client"]
    assert int(variable.metadata["variable"][2]) >= 2 * Limits().max_in_flight


async def who(token: str) -> str:
    return token


async def asked(gateway: Gateway, key: str) -> tuple[int, str, int]:
    """(status, code, Retry-After) of one request."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {key}".encode())]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/formula/v1/models",
        "query_string": b"",
        "headers": headers,
    }
    await gateway(scope, receive, send)
    later = dict(sent[0]["headers"]).get(b"retry-after", b"0")
    return sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"], int(later)


@pytest.mark.parametrize("late", [False, True], ids=["over its share", "the loop is late"])
async def test_a_burst_is_told_to_come_again_and_another_key_is_served(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.gateway.proxy.QUEUE_SECONDS", 0.01)
    upstream, metrics = Held(), Metrics()
    route = Route("formula", NOTHING, "http://upstream/v1", "", who, Limits(max_in_flight=90))
    table = Table({"formula": route}, known=True)
    gateway = Gateway(lambda: table, cast(Upstreams, upstream), metrics, Room(2**28))
    async with asyncio.timeout(60):
        burst = [asyncio.create_task(asked(gateway, "noisy")) for _ in range(60)]
        for _ in burst:
            await upstream.came.acquire()
        if late:
            for _ in range(2):
                gateway.beat(LATE_SECONDS * 2)
        else:
            burst += [asyncio.create_task(asked(gateway, "noisy")) for _ in range(20)]
            for _ in range(20):
                await upstream.came.acquire()
        status, code, later = await asked(gateway, "noisy")
        assert (status, code) == ((503, "overloaded") if late else (429, "share_taken"))
        assert 1 <= later <= MOST_RETRY_SECONDS
        shed = {"playbook": "formula", "code": code}
        assert metrics.registry.get_sample_value("combee_gateway_shed_total", shed) == 1
        quiet = asyncio.create_task(asked(gateway, "quiet"))
        await upstream.came.acquire()
        upstream.go.set()
        assert {status for status, *_ in await asyncio.gather(quiet, *burst)} == {502}
        assert (await asked(gateway, "noisy"))[0] == 502
