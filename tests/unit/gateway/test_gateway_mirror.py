"""A copy kept true by list and watch, through outages and forgotten versions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from combee.clients.kubernetes.kube import Answer, Kube
from combee.clients.kubernetes.mirror import Mirror
from combee.errors import ClusterError


def item(name: str, version: int, said: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "said": said}


def event(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


class Api:
    """Lists and watches as scripted, then hangs; keeps what it was asked."""

    def __init__(self, lists: list[Any], watches: list[list[bytes] | Exception]) -> None:
        self.lists, self.watches, self.asked = lists, watches, list[str]()
        self.moved = asyncio.Event()
        """set whenever it is asked, or its copy has changed."""

    async def request(self, method: str, path: str, *, query: dict[str, str]) -> Answer:
        self.asked.append(f"list {query.get('continue', '')}".strip())
        self.moved.set()
        said = self.lists.pop(0)
        if isinstance(said, Exception):
            raise said
        return Answer(200, said)

    async def stream(
        self, path: str, *, query: dict[str, str], silence_seconds: float
    ) -> AsyncIterator[bytes]:
        self.asked.append(f"watch {query['resourceVersion']}")
        self.moved.set()
        if not self.watches:
            await asyncio.Event().wait()
        said = self.watches.pop(0)
        if isinstance(said, Exception):
            raise said
        for piece in said:
            yield piece


def page(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


async def followed(api: Api, until: Callable[[Mirror[str]], bool]) -> tuple[Mirror[str], int]:
    """The mirror once it is so, and how often it told of a change."""
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1
        api.moved.set()

    mirror: Mirror[str] = Mirror(cast(Kube, api), "Playbook", "n", lambda body: str(body["said"]), changed)
    task = asyncio.create_task(mirror.run())
    try:
        async with asyncio.timeout(60):
            while not until(mirror):
                await api.moved.wait()
                api.moved.clear()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return mirror, changes


async def test_pages_make_one_copy_and_events_change_it() -> None:
    lines = (
        event("MODIFIED", item("a", 6, "new"))
        + event("DELETED", item("b", 7))
        + event("ADDED", item("c", 8, "c"))
    )
    api = Api([page(5, item("a", 1, "old"), more="next"), page(5, item("b", 2))], [[lines[:40], lines[40:]]])
    mirror, changes = await followed(api, lambda m: "c" in m.objects)
    assert mirror.objects == {"a": "new", "c": "c"}
    assert (api.asked[:3], changes) == (["list", "list next", "watch 5"], 4)


async def test_a_watch_that_ends_goes_on_where_it_was_also_after_a_bookmark() -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    api = Api([page(5, item("a", 1))], [[event("MODIFIED", item("a", 6)), bookmark]])
    await followed(api, lambda m: len(api.asked) == 3)
    assert api.asked == ["list", "watch 5", "watch 9"]


@pytest.mark.parametrize(
    "forgotten",
    [
        [event("ERROR", {"code": 410, "message": "too old resource version"})],
        ClusterError("gone", status=410),
    ],
    ids=["in the stream", "at once"],
)
async def test_a_version_that_the_server_forgot_means_a_new_list(forgotten: Any) -> None:
    api = Api([page(5, item("a", 1)), page(20, item("b", 19))], [forgotten])
    mirror, _ = await followed(api, lambda m: "b" in m.objects)
    assert mirror.objects == {"b": ""}
    assert api.asked[:3] == ["list", "watch 5", "list"]


async def test_the_copy_stays_while_nobody_answers() -> None:
    away = ClusterError("the Kubernetes API does not answer")
    api = Api([away, page(5, item("a", 1, "kept"))], [away, away, [event("MODIFIED", item("a", 6, "new"))]])
    seen: list[dict[str, str]] = []

    def until(mirror: Mirror[str]) -> bool:
        if mirror.known:
            seen.append(dict(mirror.objects))
        return mirror.objects.get("a") == "new"

    await followed(api, until)
    assert api.asked[:5] == ["list", "list", "watch 5", "watch 5", "watch 5"]
    assert {"a": "kept"} in seen
    assert {} not in seen
