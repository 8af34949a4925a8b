"""The operator's dealings with Kueue: what it reads of a run's Workload, and what it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from playbook_cluster import FakeKube
from test_operate_apply import OWNER
from test_operate_sharing import ENGINE, NOW, run_with

from combee import names
from combee.api.run import PromptLearningRun
from combee.api.stores import Queue
from combee.clients.kubernetes.kube import Object
from combee.errors import ClusterError, ManifestError
from combee.objects.engines import engine_deployment
from combee.objects.types import Settings
from combee.observe.queues import ABSENT, see_queue
from combee.operator.apply import Executor
from combee.operator.main import CLAIMS, WORKLOADS
from combee.operator.watch import registry, settings
from combee.plan.cluster.decide import ClusterPlan, JobWish, QueueWish
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Assigned, QueueSeen, Seen
from combee.plan.types import Step

QUEUE = Queue.model_validate({"name": "team-a", "priorityClass": "learning"})
RUN = run_with({**ENGINE, "shared": None}).model_copy(deep=True)
QUEUED = RUN.model_copy(update={"spec": RUN.spec.model_copy(update={"queue": QUEUE})})
SETTINGS = Settings(worker_image="worker:1", vllm_image="vllm:1")
NAME = names.workload_name(OWNER.name, OWNER.uid)
GONE = QueueSeen(made=True, evicted=True)


class NoKueue(FakeKube):
    """A cluster that does not serve Kueue's kinds, or does not let the operator see them."""

    status = 404

    async def list(self, kind: str, namespace: str, **_: Any) -> list[Object]:
        raise ClusterError("may not be listed", where=kind, status=self.status)


def conditions(**statuses: str) -> list[Object]:
    return [
        {"type": type, "status": status, "reason": type, "message": f"{type} says"}
        for type, status in statuses.items()
    ]


async def cluster(*told: Object, **status: Any) -> FakeKube:
    """A cluster in which the run has a place."""
    kube = FakeKube()
    labels = {names.LABEL_RUN_UID: OWNER.uid}
    meta = {"name": NAME, "labels": labels, "ownerReferences": [{"uid": OWNER.uid}]}
    body = {"kind": "Workload", "metadata": meta}
    await kube.create({**body, "status": {"conditions": list(told), **status}})
    return kube


async def see(kube: FakeKube, queue: Queue | None = QUEUE) -> QueueSeen:
    seen = await see_queue(kube, queue, OWNER)  # type: ignore[arg-type]
    assert seen is not None
    return seen


@pytest.mark.parametrize(("status", "says"), [(404, ABSENT), (403, "may not be listed")])
async def test_without_kueue_or_a_right_to_it_the_run_waits_and_says_so(status: int, says: str) -> None:
    kube = NoKueue()
    kube.status = status
    assert await see(kube) == QueueSeen(hidden=status == 403, lacks=says)
    assert await see_queue(kube, None, OWNER) is None  # type: ignore[arg-type]
    kube.status = 500
    with pytest.raises(ClusterError):
        await see(kube)


async def test_before_it_has_a_place_its_priority_is_read() -> None:
    kube = FakeKube()
    assert (await see(kube)).lacks == "the WorkloadPriorityClass learning is not there"
    await kube.create({"kind": "WorkloadPriorityClass", "metadata": {"name": "learning"}, "value": 40})
    assert await see(kube) == QueueSeen(priority=40)
    assert await see(kube, Queue.model_validate({"name": "team-a"})) == QueueSeen()


EVICTED = conditions(QuotaReserved="True", Admitted="True", Evicted="True")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([], QueueSeen(made=True)),
        (conditions(QuotaReserved="False"), QueueSeen(made=True, because="QuotaReserved says")),
        (conditions(QuotaReserved="True"), QueueSeen(made=True, because="QuotaReserved says")),
        (conditions(QuotaReserved="True", Admitted="True"), QueueSeen(made=True, admitted=True)),
        (
            conditions(QuotaReserved="True", Admitted="True", Evicted="False", PodsReady="True"),
            QueueSeen(made=True, admitted=True, ready=True),
        ),
        (EVICTED, QueueSeen(made=True, evicted=True, because="Evicted says")),
        (
            conditions(QuotaReserved="False", Admitted="False", Evicted="True"),
            QueueSeen(made=True, because="QuotaReserved says"),
        ),
        (
            conditions(QuotaReserved="True", Admitted="True", Finished="True"),
            QueueSeen(made=True, stale=True, because="QuotaReserved says"),
        ),
    ],
    ids=["new", "waits", "checks", "admitted", "works", "evicted", "given back", "finished"],
)
async def test_what_kueue_says_of_a_place(told: list[Object], expected: QueueSeen) -> None:
    assert await see(await cluster(*told)) == expected


async def test_a_workload_that_somebody_else_made_is_no_place() -> None:
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    kube.of("Workload")[NAME]["metadata"]["ownerReferences"] = [{"uid": "another"}]
    assert not (await see(kube, Queue.model_validate({"name": "team-a"}))).made


class Unreadable(FakeKube):
    """An API server that lets nobody read a flavor."""

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        if kind == "ResourceFlavor":
            raise ClusterError("may not be read", where=kind, status=403)
        return await super().get(kind, namespace, name)


async def test_who_may_not_read_flavors_asks_for_nothing_and_keeps_sight_of_what_it_has() -> None:
    given = {"admission": {"podSetAssignments": [{"name": "steps", "flavors": {"cpu": "spot"}}]}}
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"), **given)
    lacking = QueueSeen(lacks="may not be read")
    assert await see(Unreadable()) == lacking
    assert await see(Unreadable(kube.objects)) == replace(lacking, made=True)


async def test_a_place_that_is_being_deleted_admits_nothing() -> None:
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    kube.of("Workload")[NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not (await see(kube)).admitted


async def test_pods_go_where_flavors_and_checks_of_the_admission_say() -> None:
    assignment = {"name": "steps", "count": 4, "flavors": {"cpu": "spot", "memory": "spot"}}
    engine = {"name": "engine-0-main", "count": 1, "flavors": {"cpu": "spot", "nvidia.com/gpu": "h100"}}
    taint, check = {"key": "gpu", "operator": "Exists"}, {"key": "new", "operator": "Exists"}
    update = {
        "name": "steps",
        "nodeSelector": {"node": "n1"},
        "tolerations": [check],
        "annotations": {"a": "b"},
    }
    kube = await cluster(
        *conditions(QuotaReserved="True", Admitted="True"),
        admission={"clusterQueue": "q", "podSetAssignments": [assignment, engine]},
        admissionChecks=[{"name": "provisioning", "podSetUpdates": [update]}],
    )
    for name, spec in (
        ("spot", {"nodeLabels": {"pool": "spot"}}),
        ("h100", {"nodeLabels": {"gpu": "h100"}, "tolerations": [taint]}),
    ):
        await kube.create({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec})
    assert (await see(kube)).assigned == {
        "steps": Assigned(4, {"pool": "spot", "node": "n1"}, (check,), {"a": "b"}),
        "engine-0-main": Assigned(1, {"pool": "spot", "gpu": "h100"}, (taint,)),
    }


async def follow(
    kube: FakeKube,
    wish: QueueWish,
    queue: QueueSeen = GONE,
    run: PromptLearningRun = QUEUED,
    **more: Any,
) -> None:
    plan = ClusterPlan(Memory(), queue=wish, **more)
    await Executor(kube).follow(plan, run, OWNER, SETTINGS, Seen(now=NOW, queue=queue))  # type: ignore[arg-type]


async def test_a_place_is_taken_with_the_priority_of_its_class_and_left() -> None:
    kube = FakeKube()
    await follow(kube, "Join", QueueSeen(priority=40))
    spec = kube.of("Workload")[NAME]["spec"]
    assert (spec["queueName"], spec["priority"], spec["priorityClassRef"]["name"]) == (
        "team-a",
        40,
        "learning",
    )
    await follow(kube, "Leave")
    assert not kube.of("Workload")


async def test_no_place_is_asked_for_by_a_run_whose_servers_cannot_share_their_weights() -> None:
    server = {"model": "example/tiny", "gpusPerReplica": 0, "replicas": 2, "modelCache": {"claimName": "c"}}
    run = run_with({"name": "main", "vllm": server})
    run = run.model_copy(update={"spec": run.spec.model_copy(update={"queue": QUEUE})})
    kube, plan = FakeKube(), ClusterPlan(Memory(), queue="Join")
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": OWNER.namespace}}
    await kube.create({**claim, "spec": {"accessModes": ["ReadWriteOnce"]}})
    with pytest.raises(ManifestError, match="ReadWrite"):
        await Executor(kube).follow(plan, run, OWNER, SETTINGS, Seen(now=NOW, queue=QueueSeen()))  # type: ignore[arg-type]
    assert not kube.of("Workload")


@pytest.mark.parametrize(("phase", "given"), [("Running", False), ("Succeeded", True)])
async def test_a_place_is_given_back_or_left_when_no_pod_of_the_run_works(phase: str, given: bool) -> None:
    kube = await cluster(*EVICTED, admission={"clusterQueue": "q"})
    meta = {"name": "p", "labels": {names.LABEL_RUN_UID: OWNER.uid}}
    await kube.create({"kind": "Pod", "metadata": meta, "status": {"phase": phase}})
    await follow(kube, "GiveBack")
    assert ("admission" not in kube.of("Workload")[NAME]["status"]) is given
    assert (await see(kube)).evicted is not given
    await follow(kube, "Leave")
    assert (NAME not in kube.of("Workload")) is given


@pytest.mark.parametrize("used", [True, False], ids=["another run uses it", "it was taken down"])
async def test_pods_of_a_shared_engine_count_until_they_end_where_it_was_taken_down(used: bool) -> None:
    run = run_with(ENGINE)
    run = run.model_copy(update={"spec": run.spec.model_copy(update={"queue": QUEUE})})
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    deployment = engine_deployment(run, OWNER, 0, SETTINGS)
    if used:
        await kube.create(deployment)
    pod = {"name": "p", "labels": deployment["spec"]["template"]["metadata"]["labels"]}
    await kube.create({"kind": "Pod", "metadata": pod, "status": {"phase": "Running"}})
    await follow(kube, "Leave", run=run)
    assert (NAME in kube.of("Workload")) is not used


async def test_kueue_is_told_that_pods_came_up() -> None:
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    await follow(kube, "TellReady")
    place = await see(kube)
    assert (place.admitted, place.ready) == (True, True)


async def test_jobs_and_engines_are_made_where_the_queue_sends_them() -> None:
    kube = FakeKube()
    step = Step(name="formula-3fa9c1d2-i000-map-a0", kind="map", iteration=0, seed=1, shards=4)
    assigned = {"steps": Assigned(2, {"pool": "cpu"}), "engine-0-main": Assigned(1, {"pool": "gpu"})}
    queue = QueueSeen(made=True, admitted=True, assigned=assigned)
    await follow(kube, "", queue, jobs=(JobWish(step, 0),), engines={"main": EngineWish(1)})
    (job,), (engine,) = kube.of("Job").values(), kube.of("Deployment").values()
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "cpu"}
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 4)
    assert engine["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}


def test_a_place_or_a_claim_wakes_its_run_where_there_is_something_to_watch() -> None:
    woken: list[tuple[str, str]] = []
    wakes = (woken.append, lambda playbook: None, lambda namespace: None)

    def watched(*children: tuple[str, str]) -> list[Any]:
        handlers = registry(*wakes, children=children)._watching._handlers
        return [one.fn for one in handlers if one.fn.__name__ == "child_changed"]

    assert not watched()
    for changed in watched(WORKLOADS, CLAIMS):
        changed(namespace="team-a", labels=names.run_labels("ant", OWNER.uid, "queue"))
    assert woken == [("team-a", "ant")] * 2
    for api, plural in (WORKLOADS, CLAIMS):
        assert settings().watching.label_selectors[(*api.split("/"), plural)]
