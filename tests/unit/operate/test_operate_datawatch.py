"""A Playbook's data are watched: ConfigMaps by their metadata, buckets and claims by one Job for each
poll."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playbook_cluster import FakeKube, Object

from combee.api.playbook import PlaybookSpec
from combee.objects.types import Settings
from combee.operator.playbooks.datawatch import LOOK_SECONDS, DataWatch
from combee.plan.playbook.datawatch import places
from combee.records import Owner
from combee.times import rfc3339

OWNER = Owner("formula", "team", "3fa9c1d2-6d1e-4c0e-9a51-7b2f0c9d8e11")
NOW = 1_800_000_000.0
MODEL = {"endpoint": {"url": "http://llm:8000/v1", "model": "m"}}
ROWS = {"configMap": {"name": "rows", "key": "train.jsonl"}}
BUCKET = {"uri": "s3://d/heldout.jsonl", "secretRef": {"name": "s3"}}


def spec_of(train: Object, held_out: Object, **learn: Any) -> PlaybookSpec:
    template = {
        "task": {"type": "Formula", "data": {"train": train, "heldOut": held_out}},
        "method": {"type": "ACE"},
        "models": {"task": MODEL, "proposer": MODEL},
    }
    return PlaybookSpec.model_validate({"learn": {"template": template, "pollSeconds": 60, **learn}})


def watch(kube: FakeKube, *, secret_policy: bool = True) -> DataWatch:
    settings = Settings(worker_image="worker:1", make_accounts=True, secret_policy=secret_policy)
    return DataWatch(kube, settings)  # type: ignore[arg-type]


async def poll(kube: FakeKube, spec: PlaybookSpec, now: float = NOW) -> tuple[dict[str, str], float | None]:
    """One tick's look and what follows; new Jobs are as old as now."""
    watcher = watch(kube)
    seen = await watcher.look(OWNER, spec)
    again = await watcher.keep(OWNER, spec, seen, now)
    for job in kube.of("Job").values():
        job["metadata"].setdefault("made", now)
        job["metadata"]["creationTimestamp"] = rfc3339(job["metadata"]["made"])
    return dict(seen.marks), again


async def ends(kube: FakeKube, said: Object, condition: str = "Complete") -> None:
    """The newest Job's pod leaves ``said``."""
    job = max(kube.of("Job").values(), key=lambda one: one["metadata"]["creationTimestamp"])
    job["status"] = {"conditions": [{"type": condition, "status": "True"}]}
    uid = job["metadata"]["uid"]
    ended = {"state": {"terminated": {"exitCode": 0, "message": json.dumps(said)}}, "name": "worker"}
    labels = {"batch.kubernetes.io/controller-uid": uid}
    meta = {"name": f"pod-{uid}", "namespace": "team", "labels": labels}
    await kube.create({"kind": "Pod", "metadata": meta, "status": {"containerStatuses": [ended]}})


async def config_map(kube: FakeKube) -> None:
    await kube.create({"kind": "ConfigMap", "metadata": {"name": "rows", "namespace": "team"}})


async def test_config_maps_take_no_pod_and_are_never_read() -> None:
    kube, spec = FakeKube(), spec_of(ROWS, {**ROWS, "configMap": {"name": "rows", "key": "h"}})
    await config_map(kube)
    first, again = await poll(kube, spec)
    assert (len(first), again) == (2, 60.0)
    assert kube.read == [] and not kube.of("Job")
    await kube.patch("ConfigMap", "team", "rows", {"data": {"train.jsonl": "{}"}})
    assert (await poll(kube, spec))[0] != first


async def test_a_bucket_takes_one_job_for_each_poll_and_its_last_word_counts() -> None:
    kube, spec = FakeKube(), spec_of(ROWS, BUCKET)
    assert spec.learn is not None
    key = next(key for key in places(spec.learn) if key.startswith("heldOut-"))
    assert await poll(kube, spec) == ({}, LOOK_SECONDS)
    assert await poll(kube, spec, NOW + 30) == ({}, LOOK_SECONDS)
    assert len(kube.of("Job")) == 1
    await ends(kube, {"marks": {key: "etag-1"}})
    assert await poll(kube, spec, NOW + 30) == ({key: "etag-1"}, 30.0)
    assert len(kube.of("Job")) == 1
    assert await poll(kube, spec, NOW + 60) == ({key: "etag-1"}, LOOK_SECONDS)
    assert len(kube.of("Job")) == 2
    await ends(kube, {"marks": {key: "etag-2"}})
    assert (await poll(kube, spec, NOW + 70))[0] == {key: "etag-2"}


async def test_what_a_pod_could_not_read_is_told_and_marks_nothing() -> None:
    kube, spec = FakeKube(), spec_of(ROWS, BUCKET)
    await poll(kube, spec)
    await ends(kube, {"error": "no such object or bucket"}, "Failed")
    seen = await watch(kube).look(OWNER, spec)
    assert (dict(seen.marks), seen.trouble) == ({}, "no such object or bucket")


@pytest.mark.parametrize("message", ["", "[]", "{", '{"marks": 3}'])
async def test_what_a_pod_left_that_cannot_be_read_marks_nothing(message: str) -> None:
    kube, spec = FakeKube(), spec_of(ROWS, BUCKET)
    await poll(kube, spec)
    await ends(kube, {})
    for pod in kube.of("Pod").values():
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = message
    assert (await watch(kube).look(OWNER, spec)).marks == {}


async def test_without_the_policy_no_secret_is_mounted() -> None:
    kube, spec = FakeKube(), spec_of(ROWS, BUCKET)
    watcher = watch(kube, secret_policy=False)
    again = await watcher.keep(OWNER, spec, await watcher.look(OWNER, spec), NOW)
    assert (again, kube.of("Job")) == (60.0, {})


@pytest.mark.parametrize("learn", [{"trigger": "Manual"}, {"trigger": "Schedule", "schedule": "0 3 * * 1"}])
async def test_nobody_looks_for_another_trigger(learn: dict[str, str]) -> None:
    kube, spec = FakeKube(), spec_of(ROWS, BUCKET, **learn)
    await config_map(kube)
    assert await poll(kube, spec) == ({}, None)
    assert not kube.of("Job")
