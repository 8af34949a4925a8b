"""What pods use is there when they are made and when they do not come up, whoever took it away meanwhile."""

from __future__ import annotations

import pytest
from playbook_cluster import FakeKube
from test_operate_sharing import ENGINE, NOW, RUN, run_with

from combee.clients.kubernetes.kube import Object
from combee.errors import ClusterError
from combee.objects.addresses import engine_name
from combee.objects.types import Settings
from combee.operator.apply import Executor
from combee.plan.cluster.decide import ClusterPlan, JobWish
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, JobSeen, Seen, Trouble
from combee.plan.types import Step
from combee.records import Owner

SETTINGS = Settings(worker_image="worker:1", make_accounts=True)
OWNER = Owner("formula", "team-a", "3fa9c1d2-6d1e-4c0e-9a51-7b2f0c9d8e11")
STEP = Step(name="formula-3fa9c1d2-i000-profile-a0", kind="profile", iteration=0, seed=1)
USED = [
    ("ServiceAccount", "combee-worker"),
    ("ServiceAccount", "combee-publish"),
    ("RoleBinding", "combee-publish"),
    ("ConfigMap", "formula-3fa9c1d2-run"),
]
"""what the pods of a step use and no step makes."""
TROUBLE = Trouble("Unschedulable", "its pods cannot be made: serviceaccount combee-worker not found")


def seen(trouble: Trouble | None = None) -> Seen:
    """A tick's facts: the Job is there, and its pods come up or do not."""
    job = JobSeen(STEP.name, STEP.name, STEP.kind, trouble=trouble)
    return Seen(now=NOW, jobs={job.name: job})


async def follow(kube: FakeKube, executor: Executor, facts: Seen) -> list[tuple[str, str]]:
    """Carry the plan out, and return which of what pods use is there."""
    executor.kube = kube  # type: ignore[assignment]
    await executor.follow(ClusterPlan(Memory(), jobs=(JobWish(STEP, 0),)), RUN, OWNER, SETTINGS, facts)
    return [(kind, name) for kind, name in USED if name in kube.of(kind)]


async def test_a_namespace_that_was_deleted_and_made_again_has_what_pods_use() -> None:
    executor = Executor(FakeKube())  # type: ignore[arg-type]
    assert await follow(FakeKube(), executor, Seen(now=NOW)) == USED
    assert await follow(FakeKube(), executor, Seen(now=NOW)) == USED


@pytest.mark.parametrize(("kind", "name"), USED)
async def test_what_was_deleted_under_a_job_is_made_again_once_its_pods_do_not_come_up(
    kind: str, name: str
) -> None:
    kube = FakeKube()
    executor = Executor(kube)  # type: ignore[arg-type]
    await follow(kube, executor, Seen(now=NOW))
    del kube.of(kind)[name]
    assert await follow(kube, executor, seen(TROUBLE)) == USED


class Counting(FakeKube):
    """Keeps what it was asked to make."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[str] = []

    async def create(self, body: Object) -> Object | None:
        self.posted.append(f"{body['kind']}/{body['metadata']['name']}")
        return await super().create(body)


async def test_a_run_that_waits_for_days_posts_only_what_is_gone() -> None:
    kube = Counting()
    executor = Executor(kube)  # type: ignore[arg-type]
    await follow(kube, executor, Seen(now=NOW))
    kube.posted.clear()
    await follow(kube, executor, seen(TROUBLE))
    assert kube.posted == []
    del kube.of("ServiceAccount")["combee-worker"]
    await follow(kube, executor, seen(TROUBLE))
    assert kube.posted == ["ServiceAccount/combee-worker"]


async def test_a_run_whose_weights_are_being_fetched_posts_nothing() -> None:
    kube, cache = Counting(), {"modelCache": {"claimName": "models"}}
    run = run_with({**ENGINE, "vllm": {**ENGINE["vllm"], **cache}, "shared": None})
    plan = ClusterPlan(Memory(), engines={"main": EngineWish(1)})
    settings = Settings(worker_image="worker:1", vllm_image="vllm:1")
    for fetching in ({}, {"main": Trouble("Starting", "its weights are being fetched")}):
        facts = Seen(now=NOW, fetching=fetching)
        await Executor(kube).follow(plan, run, OWNER, settings, facts)  # type: ignore[arg-type]
    assert kube.posted == ["Job/formula-3fa9c1d2-e0-fetch"]


async def test_a_config_map_of_the_runs_name_that_is_not_its_own_is_not_mounted() -> None:
    kube = FakeKube()
    kube.of("ConfigMap")["formula-3fa9c1d2-run"] = {
        "kind": "ConfigMap",
        "metadata": {"name": "formula-3fa9c1d2-run"},
    }
    with pytest.raises(ClusterError, match="not made for this run"):
        await follow(kube, Executor(kube), Seen(now=NOW))  # type: ignore[arg-type]
    assert not kube.of("Job")


async def test_nothing_is_asked_for_while_pods_come_up() -> None:
    kube = FakeKube()
    executor = Executor(kube)  # type: ignore[arg-type]
    assert await follow(kube, executor, seen()) == []


class Full(FakeKube):
    """Takes no new object."""

    async def create(self, body: Object) -> Object | None:
        raise ClusterError("exceeded quota", where=body["kind"], status=403)


async def test_gpus_are_given_back_though_what_pods_use_cannot_be_made() -> None:
    kube = Full()
    run = run_with({**ENGINE, "shared": None})
    name = engine_name(run.spec, OWNER, 0, SETTINGS)
    kube.of("Deployment")[name] = {
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": {"replicas": 1},
    }
    plan = ClusterPlan(Memory(), jobs=(JobWish(STEP, 0),), engines={"main": EngineWish(0)})
    facts = Seen(now=NOW, engines={"main": EngineSeen("main", 1, ready=1)})
    with pytest.raises(ClusterError, match="exceeded quota"):
        await Executor(kube).follow(plan, run, OWNER, SETTINGS, facts)  # type: ignore[arg-type]
    assert kube.of("Deployment")[name]["spec"]["replicas"] == 0
