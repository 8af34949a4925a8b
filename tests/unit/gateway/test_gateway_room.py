"""``limits.maxInFlight``: of each Playbook by itself, and of those with a key only."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

import pytest

from combee.gateway.metrics import Metrics
from combee.gateway.proxy import Gateway
from combee.gateway.room import Room
from combee.gateway.table import NOTHING, Limits, Route, Table
from combee.gateway.upstream import NoAnswerError, Upstreams


class Held:
    """An upstream that answers nobody until it is told to, and then breaks off."""

    def __init__(self) -> None:
        self.came, self.go = asyncio.Semaphore(0), asyncio.Event()

    async def ask(self, *_: object) -> None:
        self.came.release()
        await self.go.wait()
        raise NoAnswerError("told to")


async def allowed(token: str) -> str:
    if token == "slow":
        await asyncio.Event().wait()
    return "a tenant" if token == "good" else ""


async def test_a_playbooks_requests_take_no_room_of_anothers_and_strangers_none_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("combee.gateway.proxy.QUEUE_SECONDS", 0.01)
    upstream = Held()
    routes = {
        name: Route(name, NOTHING, "http://upstream/v1", "", allowed, Limits(max_in_flight=2))
        for name in ("one", "two")
    }
    gateway = Gateway(lambda: Table(routes, known=True), cast(Upstreams, upstream), Metrics(), Room(2**28))

    async def request(playbook: str, key: str = "good") -> int:
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": f"/{playbook}/v1/models",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {key}".encode())],
        }
        await gateway(scope, receive, send)
        return int(sent[0]["status"])

    strangers = [asyncio.create_task(request("one", "slow")) for _ in range(5)]
    async with asyncio.timeout(60):
        first = [asyncio.create_task(request("one")) for _ in range(2)]
        for _ in first:
            await upstream.came.acquire()
        assert await request("one") == 503
        second = asyncio.create_task(request("two"))
        await upstream.came.acquire()
        upstream.go.set()
        assert await asyncio.gather(*first, second) == [502, 502, 502]
        assert await request("one") == 502
    for task in strangers:
        task.cancel()
    await asyncio.gather(*strangers, return_exceptions=True)
