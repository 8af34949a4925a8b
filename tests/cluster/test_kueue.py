"""Runs in a real Kueue, which `make kueue` installs: each queues as a whole, and gives back what it had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from earlier import earlier, tree_before
from kills import SLOTS, answer_log
from laptop import blob, learn
from releases import apply_crds
from runs import ENDED, FINISHED, Operator, Runs, at_once, operating

from combee.objects.queues import QUEUE_LABEL

pytestmark = [pytest.mark.kueue, pytest.mark.alone, pytest.mark.timeout(1200)]
KUEUE = "kueue.x-k8s.io/v1beta2"
QUOTA = {"cpu": "200m", "memory": "512Mi"}
"""Room for one step pod and one engine: one run."""
NODES = {"kubernetes.io/os": "linux"}
"""The nodes of the flavor, which pods that state no node get from it."""


@dataclass
class Queues:
    """A ClusterQueue of its own with the LocalQueue team-a, in which the more urgent preempt."""

    cluster: Cluster
    namespace: str

    def apply(self, quota: dict[str, str], local: str = "team-a", **more: Any) -> None:
        resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
        flavor = {"name": self.namespace, "resources": resources}
        spec = {
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": list(quota), "flavors": [flavor]}],
            **more,
        }
        made = [
            self._made("ResourceFlavor", self.namespace, spec={"nodeLabels": NODES}),
            self._made("ClusterQueue", self.namespace, spec=spec),
            self._made("LocalQueue", local, spec={"clusterQueue": self.namespace}),
            self._made("WorkloadPriorityClass", "learning-low", value=10),
            self._made("WorkloadPriorityClass", "learning-high", value=1000),
        ]
        self.cluster.kubectl("apply", "-f", "-", namespace=self.namespace, stdin=made)

    @staticmethod
    def _made(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, **more}

    def workload(self, run: str) -> dict[str, Any]:
        chosen = ("workloads.kueue.x-k8s.io", "-l", f"combee.dev/run={run}")
        (found,) = self.cluster.get(*chosen, namespace=self.namespace)["items"] or [{}]
        return dict(found)

    def evictions(self, run: str, reason: str) -> int:
        """How often Kueue took a run's place away."""
        stats = self.workload(run).get("status", {}).get("schedulingStats", {})
        return sum(one["count"] for one in stats.get("evictions", ()) if one["reason"] == reason)

    def quota(self, run: str = "quickstart") -> tuple[str, str, str]:
        """What the run says of its queue."""
        stated = Runs(self.cluster, self.namespace).status(run).get("conditions", ())
        told = (c for c in stated if c["type"] == "QuotaReserved")
        return next(((c["status"], c["reason"], c["message"]) for c in told), ("", "", ""))

    def waits(self, run: str = "quickstart") -> bool:
        return self.quota(run)[:2] == ("False", "WaitingForQuota")

    def admitted(self, run: str = "quickstart") -> bool:
        return self.quota(run)[:2] == ("True", "Reserved")

    def pods(self, run: str = "quickstart") -> list[dict[str, Any]]:
        """Those that are or may come to be at work."""
        found = self.cluster.get("pods", "-l", f"combee.dev/run={run}", namespace=self.namespace)["items"]
        over = ("Succeeded", "Failed")
        return [
            p for p in found if "deletionTimestamp" not in p["metadata"] and p["status"]["phase"] not in over
        ]

    def at_work(self, step: str) -> list[dict[str, Any]]:
        chosen = f"combee.dev/run=quickstart,combee.dev/step={step}"
        jobs = self.cluster.get("jobs", "-l", chosen, namespace=self.namespace)["items"]
        return [job for job in jobs if job.get("status", {}).get("ready")]


@pytest.fixture
def queues(cluster: Cluster, namespace: str) -> Queues:
    return Queues(cluster, namespace)


def low(*flags: str) -> Callable[[dict[str, Any]], None]:
    """Change the quickstart: slow enough to be taken back at work, and no call is asked twice by choice."""

    def change(run: dict[str, Any]) -> None:
        at_once(run)
        spec = run["spec"]
        spec["queue"] = {"name": "team-a", "priorityClass": "learning-low"}
        spec["engines"][0]["vllm"]["args"] = ["--time-scale=1", *flags]
        spec["workers"] = {"parallelism": 1, "concurrency": SLOTS, "hedgeBudget": 0}

    return change


def urgent(run: dict[str, Any]) -> None:
    at_once(run)
    run["metadata"]["name"] = "urgent"
    run["spec"] |= {"queue": {"name": "team-a", "priorityClass": "learning-high"}, "seed": 8}


def test_a_run_is_queued_admitted_preempted_by_a_more_urgent_one_and_ends_with_the_same_playbook(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues, tmp_path: Path
) -> None:
    runs, log = Runs(cluster, namespace), answer_log(cluster, "quickstart")
    slow = low(log.flag)
    with log.kept():
        queues.apply(QUOTA | {"cpu": "150m"})
        runs.apply(slow)
        eventually("it waits, and Kueue says why", lambda: queues.waits() and "cpu" in queues.quota()[2])
        print(queues.quota()[2])
        place = queues.workload("quickstart")["spec"]
        assert (place["queueName"], place["priority"]) == ("team-a", 10)
        assert [one["name"] for one in place["podSets"]] == ["engine-0-main", "steps"]
        assert not cluster.get("pods,jobs,deployments", "-l", "combee.dev/run", namespace=namespace)["items"]

        queues.apply(QUOTA)
        eventually("it is admitted", queues.admitted)
        eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
        assert all(pod["spec"]["nodeSelector"] == NODES for pod in queues.pods())
        before = len(log.answers())
        eventually("its map has had an answer", lambda: len(log.answers()) > before)

        runs.apply(urgent)
        eventually("the urgent run takes its place", lambda: queues.evictions("quickstart", "Preempted"))
        eventually("the run says so", queues.waits)
        assert runs.ended("urgent")["phase"] in FINISHED
        assert runs.status()["phase"] not in ENDED
        assert not queues.pods("quickstart")

        status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
    assert not queues.workload("quickstart"), "its place goes with its end"
    answers = log.answers().values()
    twice = sum(len(given) - 1 for given in answers)
    print(f"{len(answers)} calls, {twice} answered twice, {SLOTS} in flight at most")
    assert twice <= SLOTS
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()


def test_a_queue_that_is_drained_has_all_pods_of_a_run_at_once_and_the_run_goes_on_after(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues, tmp_path: Path
) -> None:
    runs, slow = Runs(cluster, namespace), low()
    queues.apply(QUOTA)
    runs.apply(slow)
    eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
    assert {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in queues.pods()} >= {"engine"}

    queues.apply(QUOTA, stopPolicy="HoldAndDrain")
    eventually("no pod of it is left", lambda: not queues.pods(), seconds=30)
    eventually("it says so", queues.waits)
    print(queues.quota()[2])

    def reserved() -> Any:
        return queues.workload("quickstart").get("status", {}).get("admission")

    eventually("its place is given back", lambda: not reserved())
    assert runs.status()["phase"] not in ENDED

    queues.apply(QUOTA, stopPolicy="None")
    status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()


def test_five_runs_in_a_queue_without_room_for_two_all_end(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues
) -> None:
    """A hundredth of each amount: 11 cpu, of which a Job asks for 2 and an engine for 5."""
    runs, names = Runs(cluster, namespace), [f"run-{number}" for number in range(5)]

    def named(name: str) -> Callable[[dict[str, Any]], None]:
        def change(run: dict[str, Any]) -> None:
            at_once(run)
            run["metadata"]["name"] = name
            spec = run["spec"]
            spec["queue"] = {"name": "team-a"}
            spec["seed"] = 7 + int(name[-1])
            spec["engines"][0]["template"]["spec"]["resources"]["requests"]["cpu"] = "50m"
            spec["workers"]["template"] = {"spec": {"resources": {"requests": {"cpu": "20m"}}}}

        return change

    queues.apply({"cpu": "110m", "memory": "8Gi"})
    for name in names:
        runs.apply(named(name))
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, sum(map(queues.admitted, names)) - sum(map(ended, names)))
        return all(map(ended, names))

    def ended(name: str) -> bool:
        return runs.status(name).get("phase") in ENDED

    eventually("all five are over", over, seconds=900, every=2)
    phases = {name: runs.status(name)["phase"] for name in names}
    print(f"{phases}; {most} admitted at once at most")
    assert set(phases.values()) <= set(FINISHED) and most == 1
    assert not cluster.get("workloads.kueue.x-k8s.io", namespace=namespace)["items"]


def test_a_run_in_work_of_the_version_before_goes_back_into_its_queue_whole_and_ends(
    cluster: Cluster, namespace: str, queues: Queues, tmp_path: Path
) -> None:
    """That version's Jobs are in the queue by themselves, and its engines in none."""
    runs, slow, log, before = Runs(cluster, namespace), low(), tmp_path / "log", tree_before(tmp_path)
    queues.apply(QUOTA)
    try:
        with earlier(cluster, namespace, before, log):
            runs.apply(slow)
            eventually("its map is at work", lambda: queues.at_work("map"), seconds=300)
        apply_crds(cluster)
        with operating(cluster, namespace, log):
            eventually("it has a place as a whole", lambda: queues.workload("quickstart"))
            assert runs.ended()["phase"] == "Learned"
    finally:
        apply_crds(cluster)
    jobs = cluster.get("jobs", "-l", "combee.dev/run=quickstart", namespace=namespace)["items"]
    labelled = [job["metadata"]["name"] for job in jobs if QUEUE_LABEL in job["metadata"]["labels"]]
    assert labelled and len(labelled) < len(jobs), "the version before made some of them"
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()


def test_a_default_queue_that_holds_back_what_the_run_did_not_put_into_it_is_named(
    cluster: Cluster, namespace: str, operator: Operator, queues: Queues
) -> None:
    runs = Runs(cluster, namespace)
    queues.apply(QUOTA | {"cpu": "50m"}, local="default")
    runs.apply(at_once)
    eventually("it waits", queues.waits)
    message = queues.quota()[2]
    print(message)
    assert "held back by a queue that the cluster put it into" in message, message
