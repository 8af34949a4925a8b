"""What the operator reads of a Job whose pod has ended, before and after the Job says so."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from combee import names
from combee.errors import ClusterError
from combee.objects.types import Settings
from combee.observe.complaints import Complaints
from combee.observe.runs import Observer, result_in, summary_of
from combee.operator.tick import for_pods
from combee.plan.cluster.memory import Memory
from combee.plan.types import StepSummary
from combee.records import Owner
from sample_plan import PLAN

FINISH = "formula-3fa9c1d2-i000-finish-a0"
SAID = StepSummary(FINISH, "finish", outputs={"artifact": "d"})
CRASHED = StepSummary(FINISH, "finish", error="Transient", message="the store is away")


def pod(summary: StepSummary | None = None, code: int = 0) -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}}
    if summary is not None:
        state = {"terminated": {"exitCode": code, "message": summary.encode().decode()}}
    return {"status": {"containerStatuses": [{"name": "worker", "state": state}]}}


def job(kind: str = "finish", **status: Any) -> dict[str, Any]:
    labels = {names.LABEL_STEP: kind, names.LABEL_ITERATION: "0", names.LABEL_ATTEMPT: "0"}
    meta = {
        "name": FINISH.replace("finish", kind),
        "namespace": "ns",
        "uid": "j1",
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": meta, "spec": {"completions": 1}, "status": status}


class Cluster:
    """Lists the given objects, and counts."""

    def __init__(self, one: dict[str, Any], *pods: dict[str, Any]) -> None:
        self.objects = {"Job": [one], "Pod": list(pods)}
        self.listed: list[str] = []

    async def list(self, kind: str, namespace: str, **_: Any) -> list[dict[str, Any]]:
        self.listed.append(kind)
        return self.objects[kind]

    async def get(self, *_: Any) -> None:
        return None


async def see(cluster: Cluster, memory: Memory = Memory()) -> Any:  # noqa: B008
    run = SimpleNamespace(spec=SimpleNamespace(engines=(), roles_in_use=dict, queue=None))
    observer = Observer(cluster, Complaints(cluster))  # type: ignore[arg-type]
    seen = await observer.see(run, Owner("formula", "ns", "u"), memory, None, suspend=False, now=1767225601.0)  # type: ignore[arg-type]
    return next(iter(seen.jobs.values()))


async def test_the_end_of_a_pod_is_read_before_its_job_is_complete() -> None:
    one = await see(Cluster(job(active=1, ready=0), pod(SAID)))
    assert (one.ended, one.complete, one.live, one.summary) == (True, False, False, SAID)


async def test_a_job_whose_pod_is_counted_and_that_is_not_called_complete_has_nothing_left_to_do() -> None:
    """If it counted as at work, it would be deleted once its result is in the status, with its pod's log."""
    one = await see(Cluster(job(ready=0, succeeded=1), pod(SAID)))
    assert (one.ended, one.live, one.summary) == (True, False, SAID)


async def test_a_pod_that_begins_says_nothing() -> None:
    one = await see(Cluster(job(active=1, ready=0), pod()))
    assert (one.ended, one.live, one.summary) == (False, True, None)


async def test_no_pod_is_listed_while_it_works() -> None:
    cluster = Cluster(job(active=1, ready=1), pod())
    one = await see(cluster)
    assert (one.live, cluster.listed) == (True, ["Job"])


async def test_what_a_failed_pod_left_is_no_result() -> None:
    one = await see(Cluster(job(active=1, ready=0), pod(CRASHED, code=1)))
    assert (one.ended, one.live) == (False, True)
    complete = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}
    one = await see(Cluster(job(**complete), pod(CRASHED, code=1), pod(SAID)))
    assert (one.complete, one.ended, one.summary) == (True, False, SAID)


@pytest.mark.parametrize(("sidecars", "kept"), [(0, 2048), (5, 2048), (6, 1755), (11, 1024)])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
async def test_what_a_pod_could_leave_beside_its_sidecars_is_told(
    sidecars: int, kept: int, whole: bool
) -> None:
    ended = pod(SAID)
    worker = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    worker["message"] = worker["message"] if whole else worker["message"][:60]
    ended["spec"] = {"initContainers": [{}] * min(1, sidecars), "containers": [{}] * max(1, sidecars)}
    over = job(succeeded=1, conditions=[{"type": "Complete", "status": "True"}])
    seen = await see(Cluster(over, ended))
    assert (seen.summary, seen.complete, seen.message_bytes) == (SAID if whole else None, True, kept)


@pytest.mark.parametrize(("code", "result"), [(0, SAID), (1, None)])
def test_only_a_pod_that_ended_well_has_a_result(code: int, result: StepSummary | None) -> None:
    assert result_in(pod(SAID, code)) == result
    assert summary_of(pod(SAID, code)) == SAID


async def test_the_pods_of_a_map_are_counted_by_their_job() -> None:
    cluster = Cluster(job("map", active=1, ready=0), pod(SAID))
    one = await see(cluster)
    assert (one.ended, one.live, cluster.listed) == (False, True, ["Job"])


async def test_of_pods_that_do_a_step_together_any_has_the_result() -> None:
    silent = {"status": {"containerStatuses": [{"name": "worker", "state": {"terminated": {"exitCode": 0}}}]}}
    late = StepSummary(FINISH.replace("finish", "reduce"), "reduce", error="Yielded")
    left = replace(late, error="", outputs={"updates": "d"})
    several = job("reduce", active=1, ready=0, succeeded=2)
    several["spec"]["completions"] = 3
    one = await see(Cluster(several, silent, pod(late), pod(left)))
    assert (one.completions, one.ended, one.summary) == (3, True, left)


@pytest.mark.parametrize(("image", "pods"), [("worker:2", 3), ("worker:1", 1), (None, 1)])
def test_pods_of_another_release_are_given_no_reduce_that_they_cannot_divide(
    image: str | None, pods: int
) -> None:
    images = {} if image is None else {"worker": image}
    plan = replace(PLAN, reduce_shards=3)
    given = for_pods(plan, Memory(images=images), Settings("worker:2"))
    assert given == replace(plan, reduce_shards=pods)


async def test_a_job_that_the_cluster_put_into_a_queue_is_held_back_there() -> None:
    held = job("map")
    held["spec"]["suspend"] = True
    one = await see(Cluster(held))
    assert (one.held, one.queue) == (True, "")
    held["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "default"
    one = await see(Cluster(held))
    assert (one.held, one.queue) == (True, "default")


def rollouts(**status: Any) -> dict[str, Any]:
    labels = {names.LABEL_COMPONENT: names.ROLLOUT, names.LABEL_ATTEMPT: "2"}
    meta = {
        "name": "formula-3fa9c1d2-rollouts-a2",
        "namespace": "ns",
        "uid": "j2",
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": meta, "spec": {"completions": 256}, "status": status}


async def looked_at(cluster: Cluster) -> Any:
    run = SimpleNamespace(spec=SimpleNamespace(engines=(), roles_in_use=dict, queue=None))
    observer = Observer(cluster, Complaints(cluster))  # type: ignore[arg-type]
    return await observer.see(
        run, Owner("formula", "ns", "u"), Memory(), None, suspend=False, now=1767225700.0
    )  # type: ignore[arg-type]


async def test_a_job_of_rollouts_is_no_step_and_fetches_no_weights() -> None:
    seen = await looked_at(Cluster(rollouts(active=4, succeeded=20)))
    (one,) = seen.rollouts.values()
    assert (one.attempt, one.used_up, one.proven, one.over, one.trouble) == (2, False, True, False, None)
    assert (seen.jobs, seen.fetching) == ({}, {})


@pytest.mark.parametrize(
    ("status", "used_up", "proven", "over"),
    [
        ({"active": 4, "succeeded": 250, "failed": 2}, True, True, False),
        ({"succeeded": 256, "conditions": [{"type": "Complete", "status": "True"}]}, True, True, True),
        ({"failed": 3, "conditions": [{"type": "Failed", "status": "True"}]}, False, False, True),
    ],
)
async def test_pods_that_were_begun_are_used_up(
    status: dict[str, Any], used_up: bool, proven: bool, over: bool
) -> None:
    (one,) = (await looked_at(Cluster(rollouts(**status)))).rollouts.values()
    assert (one.used_up, one.proven, one.over) == (used_up, proven, over)


async def test_why_a_users_image_does_not_come_up_is_told_and_one_that_waits_for_work_is_no_trouble() -> None:
    init = {"name": "combee", "state": {"running": {}}}
    waiting = {"name": "task", "state": {"waiting": {"reason": "PodInitializing"}}}
    gone = {
        "name": "task",
        "image": "i",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}},
    }
    for status, reason in ((waiting, None), (gone, "ImagePullFailed")):
        pod = {
            "metadata": {"name": "p"},
            "status": {"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": [status]},
        }
        (one,) = (await looked_at(Cluster(rollouts(active=1), pod))).rollouts.values()
        assert (one.trouble.reason if one.trouble else None) == reason


def claim(*conditions: dict[str, str], sandbox: str = "") -> dict[str, Any]:
    meta = {
        "name": "formula-3fa9c1d2-rollouts-c7",
        "namespace": "ns",
        "uid": "c7",
        "labels": {names.LABEL_ATTEMPT: "7"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": meta, "status": {"conditions": list(conditions), "sandbox": {"name": sandbox}}}


def ready(status: str, message: str = "") -> dict[str, str]:
    return {"type": "Ready", "status": status, "message": message}


CLAIMS = {
    "no answer": (claim(), 100, "Unschedulable", "agent-sandbox does not answer. See whether its controller"),
    "no answer yet": (claim(), 20, None, ""),
    "no pod": (
        claim(ready("False", "no such account")),
        100,
        "Unschedulable",
        "no such account. See `kubectl",
    ),
    "a quota": (
        claim(ready("False", "exceeded quota: few")),
        100,
        "WaitingForQuota",
        "exceeded quota: few: a quota of the namespace is used up",
    ),
    "ready": (claim(ready("True")), 100, None, ""),
    "over": (claim(ready("False"), {"type": "Finished", "status": "True"}), 100, None, ""),
    "its pod starts": (claim(ready("False", "Pod is pending"), sandbox="p"), 100, None, ""),
}


@pytest.mark.parametrize(("raw", "seconds", "reason", "words"), CLAIMS.values(), ids=CLAIMS)
async def test_why_a_claim_has_no_pod_is_told_with_what_to_do(
    raw: dict[str, Any], seconds: float, reason: str | None, words: str
) -> None:
    pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "status": {"phase": "Pending"}}
    cluster = Cluster(job(), *([pod] if raw["status"]["sandbox"]["name"] else []))
    seen = await _claims_seen(cluster, raw, seconds)
    (one,) = seen.rollouts.values()
    assert (one.attempt, one.kind, one.used_up) == (7, "SandboxClaim", True)
    assert (one.proven, one.over) == (
        raw["status"]["conditions"][:1] == [ready("True")],
        "Finished" in str(raw),
    )
    assert (seen.warm_pools, seen.pool, seen.pool_ready) == (True, True, 2)
    assert (one.trouble.reason if one.trouble else None) == reason
    assert words in (one.trouble.message if one.trouble else "")


async def _claims_seen(cluster: Cluster, raw: dict[str, Any], seconds: float) -> Any:
    pool = {"metadata": {"name": "formula-3fa9c1d2-rollouts"}, "status": {"readyReplicas": 2}}
    cluster.objects |= {"Job": [], "Event": [], "SandboxClaim": [raw], "SandboxWarmPool": [pool]}
    task = SimpleNamespace(container=object())
    run = SimpleNamespace(spec=SimpleNamespace(engines=(), roles_in_use=dict, queue=None, task=task))
    observer = Observer(cluster, Complaints(cluster), warm_pools=True)  # type: ignore[arg-type]
    return await observer.see(
        run,  # type: ignore[arg-type]
        Owner("formula", "ns", "u"),
        Memory(),
        None,  # type: ignore[arg-type]
        suspend=False,
        now=1767225600.0 + seconds,
    )


class Removed(Cluster):
    """Answers what it serves no more with a status."""

    status = 404

    async def list(self, kind: str, namespace: str, **more: Any) -> list[dict[str, Any]]:
        if kind in ("SandboxClaim", "SandboxWarmPool"):
            raise ClusterError("the server could not find it", where=kind, status=self.status)
        return await super().list(kind, namespace, **more)


@pytest.mark.parametrize("status", [403, 404])
async def test_where_agent_sandbox_was_removed_there_are_no_warm_pools(status: int) -> None:
    cluster = Removed(job())
    cluster.status = status
    seen = await _claims_seen(cluster, claim(), 100)
    assert (seen.warm_pools, seen.pool, dict(seen.rollouts)) == (False, False, {})


async def test_an_api_server_that_fails_is_no_removed_agent_sandbox() -> None:
    cluster = Removed(job())
    cluster.status = 500
    with pytest.raises(ClusterError):
        await _claims_seen(cluster, claim(), 100)


@pytest.mark.parametrize(("meta", "over"), [({}, False), ({"deletionTimestamp": "2026-01-01"}, True)])
async def test_a_claim_whose_pod_is_being_deleted_is_over(meta: dict[str, str], over: bool) -> None:
    """The pod of a lost node stays so, and nothing says that it ended."""
    lost = {"metadata": {"name": "p", "namespace": "ns", "uid": "p", **meta}, "status": {"phase": "Running"}}
    seen = await _claims_seen(Cluster(job(), lost), claim(ready("False"), sandbox="p"), 100)
    (one,) = seen.rollouts.values()
    assert (one.over, one.trouble) == (over, None)


async def test_what_a_startup_probe_said_is_read_of_an_engine_that_is_late() -> None:
    """Its pod runs, and nothing in its status says what it is at."""
    labels = {names.LABEL_ENGINE: "main"}
    meta = {
        "name": "e0-main",
        "namespace": "ns",
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = {"replicas": 1, "selector": {"matchLabels": labels}}
    server = {
        "metadata": {"name": "e0-main-x", "namespace": "ns", "uid": "p1"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "vllm", "state": {"running": {}}}]},
    }
    told = {
        "reason": "Unhealthy",
        "message": "Startup probe failed: /v1/models does not answer",
        "involvedObject": {"uid": "p1", "name": "e0-main-x", "kind": "Pod"},
    }
    cluster = Cluster(job(), server)
    cluster.objects |= {"Deployment": [{"metadata": meta, "spec": spec}], "Event": [told]}
    run = SimpleNamespace(spec=SimpleNamespace(engines=(SimpleNamespace(vllm="m", shared=None),)))
    observer = Observer(cluster, Complaints(cluster))  # type: ignore[arg-type]
    for now, said in ((1767225601.0, ""), (1767225700.0, "/v1/models does not answer")):
        engines = await observer._engines(run, Owner("formula", "ns", "u"), "", None, now)  # type: ignore[arg-type]
        assert (engines["main"].trouble, engines["main"].probed) == (None, said)
