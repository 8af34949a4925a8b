"""Ticks of a run around its place in a queue: it goes after the last pod, and who refuses one is quoted."""

from __future__ import annotations

from typing import Any

import pytest
from playbook_cluster import FakeKube
from test_operate_apply import OWNER
from test_operate_places import NAME, QUEUED, SETTINGS, cluster, conditions
from test_operate_sharing import NOW

from combee import names
from combee.api.conditions import ConditionType, Reason
from combee.clients.kubernetes.kube import Object
from combee.errors import ClusterError
from combee.observe.complaints import Complaints
from combee.observe.nodes import Nodes
from combee.observe.runs import Observer
from combee.operator import tick as ticks
from combee.operator.apply import Executor
from combee.operator.sharing import ChangedError
from combee.operator.tell import Teller
from combee.operator.tick import NEVER, Ticker
from combee.operator.versions import Versions
from combee.plan.cluster.accept import Policy
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import Seen
from combee.plan.cluster.standing import condition
from combee.plan.state import RunState
from combee.plan.types import Outcome

OVER = RunState(phase="Complete", outcome=Outcome("NothingBetter", "nothing scored above the start"))


async def tick(kube: FakeKube) -> float | None:
    there: Any = kube
    ticker = Ticker(
        kube=there,
        observer=Observer(there, Complaints(there)),
        executor=Executor(there),
        teller=Teller(there, "test"),
        versions=Versions(there),
        nodes=Nodes(there, may_read=False),
        settings=SETTINGS,
        policy=Policy(allow_custom_tasks=False, secret_policy=True, discipline="Advisory"),
        clock=lambda: NOW,
    )
    return await ticker.tick((OWNER.namespace, OWNER.name))


def add_run(kube: FakeKube, memory: Memory, phase: str) -> None:
    told = condition(ConditionType.QUOTA_RESERVED, "True", Reason.RESERVED, "queue team-a admitted the run")
    status = {
        "phase": phase,
        "observedGeneration": 1,
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [told.model_dump(mode="json", by_alias=True)],
        "state": memory.to_status(),
    }
    raw = QUEUED.model_dump(mode="json", by_alias=True, exclude_unset=True)
    raw["spec"]["playbookRef"] = {"name": "formula"}
    meta = {"name": OWNER.name, "namespace": OWNER.namespace, "uid": OWNER.uid, "generation": 1}
    run = {**raw, "metadata": {**meta, "resourceVersion": "0"}, "status": status}
    kube.of(names.RUN_KIND)[OWNER.name] = run


def quota(kube: FakeKube) -> tuple[str, str, str]:
    told = kube.of(names.RUN_KIND)[OWNER.name]["status"]["conditions"]
    (one,) = (one for one in told if one["type"] == "QuotaReserved")
    return one["status"], one["reason"], one["message"]


async def test_a_run_that_is_over_keeps_its_place_until_its_last_pod_has_ended() -> None:
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    add_run(kube, Memory(run=OVER, started=NOW - 100, ended=NOW - 1), "NothingBetter")
    meta = {"name": "p", "labels": {names.LABEL_RUN_UID: OWNER.uid}}
    await kube.create({"kind": "Pod", "metadata": meta, "status": {"phase": "Running"}})
    assert await tick(kube) == 1.0
    assert quota(kube) == ("True", "Reserved", "the run leaves queue team-a when its last pod has ended")
    assert NAME in kube.of("Workload")

    kube.of("Pod").clear()
    assert await tick(kube) == 1.0
    assert not kube.of("Workload")
    assert await tick(kube) is None
    assert quota(kube) == ("True", "NoQueue", "the run is over and has left queue team-a")
    assert await tick(kube) == NEVER


async def test_a_run_that_is_over_stays_what_it_came_to_though_nobody_can_read_it_by_now() -> None:
    """It is looked at again while it has a place."""
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    add_run(kube, Memory(run=OVER, started=NOW - 100, ended=NOW - 1), "NothingBetter")
    run = kube.of(names.RUN_KIND)[OWNER.name]
    method = run["spec"].pop("method")
    assert await tick(kube) is None
    assert run["status"]["phase"] == "NothingBetter" and NAME in kube.of("Workload")
    run["spec"]["method"] = method
    await tick(kube)
    assert NAME not in kube.of("Workload")


async def test_a_run_that_is_over_and_holds_nothing_is_looked_at_once_though_nobody_can_read_it() -> None:
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    add_run(kube, Memory(run=OVER, started=NOW - 100, ended=NOW - 1), "NothingBetter")
    run = kube.of(names.RUN_KIND)[OWNER.name]
    del run["spec"]["method"]
    run["status"]["steps"] = [{"name": "formula-i001-map-a0", "kind": "map"}]
    kube.of("Workload").clear()
    assert await tick(kube) is None, "a step may be under way"
    run["status"]["steps"] = []
    assert await tick(kube) == NEVER
    assert run["status"]["phase"] == "NothingBetter" and quota(kube)[1] == "Reserved"


async def test_a_run_that_is_over_leaves_its_queue_though_it_would_be_refused_by_now() -> None:
    kube = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    add_run(kube, Memory(run=OVER, started=NOW - 100, ended=NOW - 1), "NothingBetter")
    run = kube.of(names.RUN_KIND)[OWNER.name]
    del run["spec"]["playbookRef"]
    assert await tick(kube) == 1.0
    assert NAME not in kube.of("Workload") and run["status"]["phase"] == "NothingBetter"


class Hiding(FakeKube):
    """An API server that lets nobody list Workloads for a while."""

    hides = True

    async def list(self, kind: str, namespace: str, **more: Any) -> list[Object]:
        if kind == "Workload" and self.hides:
            raise ClusterError("workloads may not be listed", where="GET workloads", status=403)
        return await super().list(kind, namespace, **more)


async def test_a_run_that_is_over_says_nothing_of_a_place_that_nobody_can_see_and_leaves_it_later() -> None:
    placed = await cluster(*conditions(QuotaReserved="True", Admitted="True"))
    kube = Hiding(placed.objects)
    add_run(kube, Memory(run=OVER, started=NOW - 100, ended=NOW - 1), "NothingBetter")
    for _ in range(2):
        assert await tick(kube) is None, "at the resync"
        seen = "nobody can see whether it has left queue team-a: workloads may not be listed"
        assert quota(kube) == ("True", "Reserved", f"the run is over, and {seen}")
    kube.hides = False
    assert await tick(kube) == 1.0
    assert NAME not in kube.of("Workload")


class Refusing(FakeKube):
    """An API server that takes no Workload."""

    status = 422

    async def create(self, body: Object) -> Object | None:
        if body["kind"] == "Workload" and self.status:
            raise ClusterError("spec.podSets: Too many: 9", where="POST workloads", status=self.status)
        return await super().create(body)


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_who_refuses_the_place_of_a_run_is_quoted_and_asked_again_later(status: int) -> None:
    kube = Refusing()
    kube.status = status
    await kube.create({"kind": "WorkloadPriorityClass", "metadata": {"name": "learning"}, "value": 40})
    add_run(kube, Memory(started=NOW - 100), "Pending")
    assert await tick(kube) is None, "at the resync"
    why = "the API server does not take the run's Workload (spec.podSets: Too many: 9)"
    advice = "Mend what it names, or delete the run and apply one that asks for less"
    says = f"queue team-a cannot be asked: {why}. {advice}"
    assert quota(kube) == ("False", "WaitingForQuota", says)
    kube.status = 0
    await tick(kube)
    assert NAME in kube.of("Workload")
    await tick(kube)
    assert quota(kube)[2] == "queue team-a has not admitted the run yet"


async def test_an_api_server_that_fails_is_no_refusal() -> None:
    kube = Refusing()
    kube.status = 500
    await kube.create({"kind": "WorkloadPriorityClass", "metadata": {"name": "learning"}, "value": 40})
    add_run(kube, Memory(started=NOW - 100), "Pending")
    with pytest.raises(ClusterError):
        await tick(kube)


@pytest.mark.parametrize(("image", "warm"), [(SETTINGS.worker_image, True), ("worker:earlier", False)])
async def test_a_run_whose_pods_are_of_another_release_has_no_warm_pool(
    image: str, warm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[Seen] = []

    async def see(*_: Any, **__: Any) -> Seen:
        return Seen(now=NOW, warm_pools=True)

    def decide(run: Any, memory: Memory, seen: Seen) -> None:
        decided.append(seen)
        raise ChangedError("enough", where="here")

    monkeypatch.setattr(Observer, "see", see)
    monkeypatch.setattr(ticks, "decide_cluster", decide)
    kube = FakeKube()
    add_run(kube, Memory(images={"worker": image, "vllm": "v"}), "Running")
    await tick(kube)
    assert [seen.warm_pools for seen in decided] == [warm]
