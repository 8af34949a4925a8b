"""Kept traffic ends in its time, whatever became of the gateway, the store or the Playbook that kept it."""

from __future__ import annotations

import asyncio
import copy
import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from combee.api.stores import default_store
from combee.clients.kubernetes.kube import Kube, Object
from combee.clients.store.store import Store
from combee.objects.sweep import KEEPS, sweep_job
from combee.objects.types import Settings
from combee.operator.sweeper import Sweeper
from combee.operator.watch import registry
from combee.plan.sweep import MARGIN_SECONDS, SLOT_SECONDS, Kept, Memory
from combee.pod.main import main

RETENTION = 86_400
BEGUN = 1_000_000_000.0
S3 = {"uri": "s3://bucket/prefix", "secretRef": {"name": "s3"}}


class Api:
    """Holds Jobs as an API server does, and ends them."""

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.claims = {"combee-store": Object()}
        self.written: list[str] = []
        self.now = BEGUN

    async def list(self, kind: str, namespace: str, *, labels: str = "") -> list[Object]:
        assert (kind, labels) == (
            "Job",
            "app.kubernetes.io/managed-by=combee-operator,app.kubernetes.io/component=sweep",
        )
        return copy.deepcopy(list(self.jobs.values()))

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        assert kind == "PersistentVolumeClaim"
        return {"metadata": {"name": name}} if name in self.claims else None

    async def create(self, body: Object) -> Object | None:
        name = body["metadata"]["name"]
        if name in self.jobs:
            return None
        created = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.jobs[name] = {
            **body,
            "metadata": {**body["metadata"], "uid": f"uid-{name}", "creationTimestamp": created},
        }
        self.written.append("create")
        return self.jobs[name]

    async def patch(self, kind: str, namespace: str, name: str, patch: Object) -> Object:
        self.jobs[name]["metadata"]["annotations"] |= patch["metadata"]["annotations"]
        self.written.append("patch")
        return self.jobs[name]

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str = "") -> bool:
        assert uid == f"uid-{name}"
        del self.jobs[name]
        self.written.append("delete")
        return True

    def end(self, condition: str = "Complete") -> None:
        for job in self.jobs.values():
            if not job["spec"]["suspend"]:
                job["status"] = {"conditions": [{"type": condition, "status": "True"}]}

    async def tick(self, *playbooks: Object, at: float, policy: bool = True) -> bool:
        """One look, so many seconds after the beginning."""
        self.now = BEGUN + at
        self.written = []
        sweeper = Sweeper(cast(Kube, self), Settings(worker_image="w:1", secret_policy=policy))
        return await sweeper.keep("team-a", playbooks, self.now)

    @property
    def told(self) -> dict[str, Any]:
        """What the one pod there is, is told; empty where it does not run."""
        (job,) = self.jobs.values()
        env = {
            one["name"]: one.get("value") for one in job["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        told: dict[str, Any] = json.loads(env["COMBEE_SWEEP"])
        return {} if job["spec"]["suspend"] else told


def playbook(name: str = "formula", *, mode: str = "Shadow", enabled: bool = True, **capture: Any) -> Object:
    gateway = {"enabled": enabled, "capture": {"retentionSeconds": RETENTION, **capture}}
    gateway |= {"upstream": {"url": "http://llm/v1"}} if enabled else {}
    meta = {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"}
    return {"metadata": meta, "spec": {"delivery": {"gateway": gateway}, "canary": {"mode": mode}}}


async def test_while_a_gateway_looks_after_it_the_job_only_remembers() -> None:
    api = Api()
    assert await api.tick(playbook(), at=0)
    assert api.written == ["create"] and api.told == {}
    (job,) = api.jobs.values()
    assert "ownerReferences" not in job["metadata"], "it must outlive the Playbook and the gateway"
    assert await api.tick(playbook(), at=5 * SLOT_SECONDS)
    assert api.written == []


ENDINGS = {
    "the gateway is turned off": (playbook(enabled=False),),
    "its canary is another one, and nothing is captured": (playbook(mode="Manual"),),
    "another store is named": (playbook(store={"pvc": {"claimName": "other"}}),),
    "the last Playbook is deleted": (),
    "another Playbook of the store stays": (playbook("more"),),
}


@pytest.mark.parametrize("after", ENDINGS.values(), ids=ENDINGS)
async def test_what_was_kept_is_swept_until_it_is_over_and_then_forgotten(after: tuple[Object, ...]) -> None:
    api = Api()
    await api.tick(playbook(), at=0)
    assert await api.tick(*after, at=60)
    until = round(BEGUN + 60 + RETENTION + MARGIN_SECONDS)
    swept = []
    for slot in range(1, 40):
        at = slot * SLOT_SECONDS
        await api.tick(*after, at=at)
        for job in api.jobs.values():
            told = json.loads(job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"])
            if "formula" in told["ending"] and not job["spec"]["suspend"] and told["store"] == "/store":
                assert told["retention"]["formula"] == RETENTION
                swept.append(job["metadata"]["name"])
        api.end()
        await api.tick(*after, at=at + 60)
    times = [int(name.rpartition("-")[2]) * SLOT_SECONDS for name in dict.fromkeys(swept)]
    assert times[0] <= BEGUN + 2 * SLOT_SECONDS and max(times) + SLOT_SECONDS >= until, (
        "hourly, and once after"
    )
    assert all(later - one == SLOT_SECONDS for one, later in pairwise(times))
    assert times[-1] <= until + SLOT_SECONDS, "and then no more"
    left = (Memory.from_json(job["metadata"]["annotations"][KEEPS]) for job in api.jobs.values())
    here = [
        one.playbook for memory in left if memory and memory.store == default_store() for one in memory.kept
    ]
    assert "formula" not in here


async def test_a_replay_without_a_gateway_is_swept_all_along() -> None:
    api = Api()
    await api.tick(playbook(mode="Replay", enabled=False), at=0)
    assert api.told == {"store": "/store", "retention": {"formula": RETENTION}, "ending": []}
    api.end()
    await api.tick(playbook(mode="Replay", enabled=False), at=60)
    assert api.written == [], "once an hour"
    await api.tick(playbook(mode="Replay", enabled=False), at=SLOT_SECONDS)
    assert api.written == ["create", "delete"]


async def test_a_sweep_that_fails_is_made_again_and_nothing_is_forgotten_for_it() -> None:
    api = Api()
    await api.tick(playbook(), at=0)
    await api.tick(at=60)
    over = RETENTION + MARGIN_SECONDS + 60
    await api.tick(at=over + SLOT_SECONDS)
    api.end("Failed")
    assert await api.tick(at=over + 2 * SLOT_SECONDS)
    assert api.written == ["create", "delete"]
    api.end()
    assert not await api.tick(at=over + 3 * SLOT_SECONDS)
    assert api.jobs == {}
    await api.tick(playbook(), at=0)
    await api.tick(at=60)
    assert not await api.tick(at=over + 2 * 86_400), "a store that cannot be reached is given up a day later"


async def test_a_playbook_that_comes_back_keeps_again() -> None:
    api = Api()
    await api.tick(playbook(), at=0)
    await api.tick(at=60)
    await api.tick(playbook(), at=120)
    assert api.written == ["patch"]
    assert await api.tick(playbook(), at=10 * RETENTION) and api.written == []


async def test_what_cannot_be_read_is_not_taken_for_gone() -> None:
    api = Api()
    await api.tick(playbook(), at=0)
    later = playbook()
    later["spec"]["delivery"]["gateway"]["later"] = 1
    assert await api.tick(later, at=10 * RETENTION) and api.written == []


async def test_what_was_in_a_claim_that_is_gone_has_ended_with_it() -> None:
    api = Api()
    await api.tick(playbook(), at=0)
    del api.claims["combee-store"]
    assert not await api.tick(at=60)
    assert api.jobs == {}, "its pods would wait for the claim"


async def test_each_store_has_a_job_of_its_own_with_its_secret_where_the_policy_guards_it() -> None:
    api = Api()
    both = playbook("a", mode="Replay"), playbook("b", mode="Replay", store=S3)
    await api.tick(*both, at=0, policy=False)
    assert len(api.jobs) == 1
    await api.tick(*both, at=1)
    mounts = {
        json.loads(job["metadata"]["annotations"][KEEPS])["kept"][0][0]: {
            mount["mountPath"] for mount in job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        }
        for job in api.jobs.values()
    }
    assert mounts == {"a": {"/tmp", "/store"}, "b": {"/tmp", "/etc/combee/secrets/store"}}


async def test_where_nothing_is_kept_there_is_nothing() -> None:
    api = Api()
    assert not await api.tick(playbook(mode="Manual"), at=0)
    assert api.written == []


def test_its_job_wakes_who_keeps_the_namespace_also_where_no_playbook_is_left() -> None:
    woken: list[str] = []
    handlers = registry(lambda run: None, lambda playbook: None, woken.append, children=())
    (told,) = (one.fn for one in handlers._watching._handlers if one.fn.__name__ == "job_changed")
    job = sweep_job(
        Memory(default_store(), (Kept("gone", 1.0),)), "team-a", BEGUN, Settings(worker_image="w")
    )
    told(namespace="team-a", labels=job["metadata"]["labels"])
    told(namespace="team-b", labels={"app.kubernetes.io/managed-by": "combee-operator"})
    assert woken == ["team-a"]


@pytest.fixture
def pod() -> Iterator[Callable[[], int]]:
    """The pod's program in this process, which hears SIGTERM afterwards as it did before."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda: main(["sweep"])
    signal.signal(signal.SIGTERM, before)


def test_the_pod_deletes_what_is_over_and_the_statement_with_the_last_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod: Callable[[], int]
) -> None:
    store = Store.open(str(tmp_path / "store"))
    paths = (
        "traffic/formula/requests/1000-ab-000001.jsonl",
        "traffic/formula/retention",
        "traffic/live/requests/1000-ab-000001.jsonl",
        "traffic/live/retention",
        "blobs/ab/abcdef",
    )
    for path in paths:
        asyncio.run(store.aput(path, b"99999999999"))
    kept = Kept("formula", 100.0, until=1.0), Kept("live", 100.0)
    job = sweep_job(Memory(default_store(), kept), "team-a", BEGUN, Settings(worker_image="w:1"))
    for one in job["spec"]["template"]["spec"]["containers"][0]["env"]:
        monkeypatch.setenv(one["name"], one.get("value", "team-a"))
    monkeypatch.setenv("COMBEE_ROOT", str(tmp_path))
    assert pod() == 0
    assert asyncio.run(store.alist()) == ["blobs/ab/abcdef", "traffic/live/retention"]


@pytest.mark.parametrize("seconds", ["1e999", "NaN", "1" + "0" * 400, "[" * 100_000])
def test_a_memory_that_cannot_be_is_none(seconds: str) -> None:
    """A Job's annotation can be anybody's."""
    text = Memory(default_store(), (Kept("formula", 3600),)).to_json()
    assert Memory.from_json(text) and Memory.from_json(text.replace("3600", seconds)) is None


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"store": "/store", "retention": [], "ending": []}'])
def test_a_pod_that_cannot_read_what_it_is_told_says_so(
    said: str, monkeypatch: pytest.MonkeyPatch, pod: Callable[[], int]
) -> None:
    monkeypatch.setenv("COMBEE_SWEEP", said)
    assert pod() == 70
