"""Who may write: the Lease, and what an operator does that does not surely hold it."""

from __future__ import annotations

import asyncio
import copy
import gc
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.clients.kubernetes.kube import Answer, Kube
from combee.errors import ClusterError
from combee.objects.meta import owned
from combee.operator.lease import DURATION_SECONDS, MARGIN_SECONDS, Fence, NotOursError
from combee.operator.main import assemble
from combee.records import Owner
from combee.settings import OperatorSettings, read_settings

SURE_SECONDS = DURATION_SECONDS - MARGIN_SECONDS


@dataclass
class Leases:
    """An API server with one Lease, and the clock that its answers take time by."""

    lease: dict[str, Any] | None = None
    now: float = 100.0
    answer_seconds: float = 0.0
    modified: bool = False
    """whether somebody else writes between our reading and our writing."""
    patches: list[dict[str, Any]] = field(default_factory=list)

    def fence(self, holder: str = "us") -> Fence:
        return Fence(cast(Kube, self), "combee", holder, clock=lambda: self.now)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.lease)

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}
        self.now += self.answer_seconds
        return self.lease

    async def patch(self, kind: str, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.modified:
            raise ClusterError("the object has been modified", where=f"{kind} {name}", status=409)
        assert self.lease is not None
        self.patches.append(body)
        self.lease["spec"] = {**self.lease["spec"], **body["spec"]}
        self.now += self.answer_seconds
        return self.lease


def held_by(holder: str, *, seconds_ago: float) -> dict[str, Any]:
    renewed = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat()
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": DURATION_SECONDS}
    return {"metadata": {"name": "combee-operator", "resourceVersion": "7"}, "spec": spec}


async def test_a_lease_is_surely_ours_from_when_it_was_asked_for() -> None:
    api = Leases(answer_seconds=5.0)
    fence = api.fence()
    with pytest.raises(NotOursError):
        fence.check()
    await fence.acquire()
    api.now = 100.0 + SURE_SECONDS - 0.1
    fence.check()
    api.now = 100.0 + SURE_SECONDS
    with pytest.raises(NotOursError):
        fence.check()


@pytest.mark.parametrize(
    ("holder", "seconds_ago", "ours"),
    [
        ("us", 1, True),
        ("", 1, True),
        ("another", DURATION_SECONDS + 60, False),
        ("another", 1, False),
        ("another", -3600, False),
    ],
    ids=["ours", "given up", "another's, whose clock is slow", "another's", "another's, whose clock is fast"],
)
async def test_a_lease_is_taken_where_nobody_holds_it(holder: str, seconds_ago: float, ours: bool) -> None:
    api = Leases(held_by(holder, seconds_ago=seconds_ago))
    fence = api.fence()
    assert await fence._try() is ours
    assert fence.held is ours
    assert [patch["metadata"]["resourceVersion"] for patch in api.patches] == (["7"] if ours else [])


@pytest.mark.parametrize("seconds_ago", [-3600, 0, 3600])
async def test_anothers_lease_is_taken_once_it_stood_unchanged_for_its_duration(seconds_ago: float) -> None:
    api = Leases(held_by("another", seconds_ago=seconds_ago))
    fence = api.fence()
    assert not await fence._try()
    api.now += DURATION_SECONDS
    assert not await fence._try()
    assert api.lease is not None
    api.lease["spec"]["renewTime"] = "2020-01-01T00:00:00Z"
    api.now += 1.0
    assert not await fence._try(), "it was renewed, whenever its holder says"
    api.now += DURATION_SECONDS + 0.1
    assert await fence._try() and fence.held


class Skewed(Leases):
    """Each holder writes the time of its own clock, and answers take as long as they are told to."""

    def __init__(self, skews: tuple[float, float]) -> None:
        super().__init__()
        self.skews = dict(zip(("a", "b"), skews, strict=True))
        self.version = 1

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self.now += self.answer_seconds
        return await super().get(kind, namespace, name)

    async def create(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._written(await super().create(body))

    async def patch(self, kind: str, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._written(await super().patch(kind, namespace, name, body))

    def _written(self, lease: dict[str, Any]) -> dict[str, Any]:
        spec = lease["spec"]
        at = datetime.fromtimestamp(1.8e9 + self.now + self.skews[spec["holderIdentity"]], UTC)
        spec["renewTime"] = at.isoformat()
        return lease


LOOKS = st.lists(
    st.tuples(st.sampled_from("ab"), st.floats(0, 20), st.sampled_from([0.0, 0.1, 2.0, 9.0])), max_size=30
)


@given(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), LOOKS)
def test_of_two_whose_clocks_differ_never_both_surely_hold_it_and_one_comes_to(
    skews: tuple[float, float], looks: list[tuple[str, float, float]]
) -> None:
    async def play() -> None:
        api = Skewed(skews)
        fences = {name: api.fence(name) for name in "ab"}
        for name, pause, api.answer_seconds in looks:
            api.now += pause
            await fences[name]._try()
            assert sum(fence.held for fence in fences.values()) <= 1
        api.answer_seconds = 0.1
        for _ in range(DURATION_SECONDS + 2):
            api.now += 1.0
            await fences["a"]._try()
        assert fences["a"].held

    asyncio.run(play())


async def test_of_two_that_take_it_at_once_one_has_it() -> None:
    fence = Leases(held_by("", seconds_ago=1), modified=True).fence()
    assert not await fence._try()
    assert not fence.held


async def test_who_gives_it_up_writes_no_more() -> None:
    api = Leases(held_by("us", seconds_ago=1))
    fence = api.fence()
    await fence.acquire()
    await fence.release()
    assert not fence.held and api.lease is not None and api.lease["spec"]["holderIdentity"] == ""


class Recorded(Kube):
    """A connection whose requests are only written down."""

    def __init__(self) -> None:
        super().__init__(None, namespace="team", deadline_seconds=1.0)
        self.log: list[str] = []

    async def request(self, method: str, path: str, **given: Any) -> Answer:
        self.log.append(method)
        return Answer(200, {"items": []})


async def test_every_write_of_a_fenced_connection_is_asked_of_the_fence_first() -> None:
    kube = Recorded()
    fenced = kube.fenced(lambda: kube.log.append("asked"))
    await fenced.create({"kind": "Job", "metadata": {"name": "map", "namespace": "team"}})
    await fenced.patch("Job", "team", "map", {})
    await fenced.delete("Job", "team", "map")
    await fenced.get("Job", "team", "map")
    await fenced.list("Job", "team")
    assert kube.log == ["asked", "POST", "asked", "PATCH", "asked", "DELETE", "GET", "GET"]


async def test_nothing_is_written_past_a_fence_that_refuses() -> None:
    kube = Recorded()
    fenced = kube.fenced(Leases().fence().check)
    with pytest.raises(NotOursError):
        await fenced.create({"kind": "Job", "metadata": {"name": "map", "namespace": "team"}})
    for write in (fenced.patch("Job", "team", "map", {}), fenced.delete("Job", "team", "map")):
        with pytest.raises(NotOursError):
            await write
    assert kube.log == []


def test_only_the_lease_itself_is_written_without_the_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "system")
    monkeypatch.setenv("COMBEE_WORKER_IMAGE", "worker:1")
    kube = Recorded()
    parts = assemble(read_settings(OperatorSettings, "combee-operator"), kube)
    holders = {
        type(one).__name__
        for one in gc.get_objects()
        if str(type(one).__module__).startswith("combee.") and getattr(one, "kube", None) is kube
    }
    assert holders == {"Parts", "Fence"} and parts.fence.kube is kube


@pytest.mark.parametrize(("uid", "ours"), [("uid-2", True), ("uid-1", False)])
def test_what_an_earlier_run_of_the_name_made_is_not_ours(uid: str, ours: bool) -> None:
    reference = {"kind": "PromptLearningRun", "name": "formula", "uid": uid}
    child = {"metadata": {"name": "formula-plan", "ownerReferences": [reference]}}
    assert owned(child, Owner("formula", "team", "uid-2")) is ours
