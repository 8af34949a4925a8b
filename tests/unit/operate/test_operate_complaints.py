"""A namespace's events are read once for all who wait in it, and seldom where that takes long."""

from __future__ import annotations

import asyncio
from typing import Any

from combee.observe.complaints import FRESH_SECONDS, LONGEST_SECONDS, SHARE, Complaints


def about(uid: str, namespace: str = "ns") -> dict[str, Any]:
    return {"metadata": {"uid": uid, "namespace": namespace}}


def event(uid: str, kind: str = "Job") -> dict[str, Any]:
    return {"involvedObject": {"uid": uid, "kind": kind}, "reason": "FailedCreate"}


class Server:
    """Answers after ``takes`` seconds of a clock that stands still but for that."""

    def __init__(self, takes: float = 0.0) -> None:
        self.now, self.takes = 0.0, takes
        self.asked: list[tuple[str, str, str]] = []
        self.events: list[dict[str, Any]] = []

    async def list(self, kind: str, namespace: str, *, fields: str) -> list[dict[str, Any]]:
        self.asked.append((kind, namespace, fields))
        await asyncio.sleep(0)
        self.now += self.takes
        return list(self.events)

    def complaints(self) -> Complaints:
        return Complaints(self, clock=lambda: self.now)  # type: ignore[arg-type]


async def test_all_who_wait_in_a_namespace_share_one_reading() -> None:
    server = Server()
    server.events = [event("1"), event("2"), event("1"), event("3", "ReplicaSet")]
    complaints = server.complaints()
    found = await asyncio.gather(*(complaints.about(about(str(uid))) for uid in range(1, 6)))
    assert [len(one) for one in found] == [2, 1, 1, 0, 0]
    assert await complaints.about_kind("ns", "ReplicaSet") == [event("3", "ReplicaSet")]
    assert server.asked == [("Event", "ns", "type=Warning")]
    await complaints.about(about("1", "other"))
    assert [namespace for _, namespace, _ in server.asked] == ["ns", "other"]


async def test_it_is_read_anew_when_it_is_no_longer_fresh() -> None:
    server = Server()
    complaints = server.complaints()
    assert await complaints.about(about("1")) == []
    server.events, server.now = [event("1")], FRESH_SECONDS - 0.1
    assert await complaints.about(about("1")) == []
    server.now = FRESH_SECONDS
    assert await complaints.about(about("1")) == [event("1")]


async def test_the_longer_it_takes_the_longer_it_is_believed_within_bounds() -> None:
    for takes, believed in ((0.01, FRESH_SECONDS), (1.0, SHARE), (10.0, LONGEST_SECONDS)):
        server = Server(takes)
        complaints = server.complaints()
        await complaints.about(about("1"))
        read_at = server.now
        server.now = read_at + believed - 0.01
        await complaints.about(about("1"))
        assert len(server.asked) == 1
        server.now = read_at + believed
        await complaints.about(about("1"))
        assert len(server.asked) == 2


async def test_a_reading_that_fails_is_tried_by_the_next() -> None:
    server = Server()
    complaints = server.complaints()

    async def refuse(*_: Any, **__: Any) -> list[dict[str, Any]]:
        raise ConnectionError

    whole, server.list = server.list, refuse  # type: ignore[method-assign]
    failed = await asyncio.gather(complaints.about(about("1")), return_exceptions=True)
    assert isinstance(failed[0], ConnectionError)
    server.list = whole  # type: ignore[method-assign]
    server.events = [event("1")]
    assert await complaints.about(about("1")) == [event("1")]


async def test_namespaces_that_nobody_asks_about_are_forgotten() -> None:
    server = Server()
    complaints = server.complaints()
    for number in range(50):
        await complaints.about(about("1", f"ns-{number}"))
        server.now += FRESH_SECONDS
    assert len(complaints._readings) == 1 and len(complaints._locks) <= 2
