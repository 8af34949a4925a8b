"""A run in a real Kueue, which `make kueue` installs: queued, admitted, preempted, resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from kills import SLOTS, answer_log
from laptop import blob, learn
from runs import ENDED, Operator, Runs, at_once

pytestmark = [pytest.mark.kueue, pytest.mark.alone, pytest.mark.timeout(900)]
KUEUE = "kueue.x-k8s.io/v1beta2"
TOO_LITTLE = "maximum capacity (50m)"
OF_QUEUES = "kueue.x-k8s.io/queue-name=team-a"


QUOTA = {"cpu": "200m", "memory": "512Mi"}
"""Room for one step pod and one engine."""


def cluster_queue(name: str, **quota: str) -> dict[str, Any]:
    """A ClusterQueue with one flavor of its own name, in which the more urgent preempt."""
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    spec = {
        "namespaceSelector": {},
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {"coveredResources": list(quota), "flavors": [{"name": name, "resources": resources}]}
        ],
    }
    return {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def queues(name: str) -> list[dict[str, Any]]:
    """The LocalQueue team-a of a ClusterQueue that has no room yet, and two priorities."""
    priorities = (("learning-low", 10), ("learning-high", 1000))
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}},
        cluster_queue(name, **QUOTA | {"cpu": "50m"}),
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": "team-a"},
            "spec": {"clusterQueue": name},
        },
        *(
            {
                "apiVersion": KUEUE,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": priority},
                "value": value,
            }
            for priority, value in priorities
        ),
    ]


def low(engine_flag: str) -> Callable[[dict[str, Any]], None]:
    """Change the quickstart: slow enough to be preempted at work, and no call is asked twice by choice."""

    def change(run: dict[str, Any]) -> None:
        at_once(run)
        spec = run["spec"]
        spec["queue"] = {"name": "team-a", "priorityClass": "learning-low"}
        spec["engines"][0]["vllm"]["args"] = ["--time-scale=1", engine_flag]
        spec["workers"] = {"parallelism": 1, "concurrency": SLOTS, "hedgeBudget": 0}

    return change


def urgent(run: dict[str, Any]) -> None:
    at_once(run)
    run["metadata"]["name"] = "urgent"
    run["spec"] |= {"queue": {"name": "team-a", "priorityClass": "learning-high"}, "seed": 8}


def preemptions(workload: dict[str, Any]) -> int:
    """How often Kueue took a Job's place away for a more urgent one."""
    evictions = workload.get("status", {}).get("schedulingStats", {}).get("evictions", ())
    return sum(one["count"] for one in evictions if one["reason"] == "Preempted")


def test_a_run_is_queued_admitted_preempted_by_a_more_urgent_one_and_ends_with_the_same_playbook(
    cluster: Cluster, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    runs, log = Runs(cluster, namespace), answer_log(cluster, "quickstart")
    slow = low(log.flag)

    def quota(name: str = "quickstart") -> tuple[str, str, str]:
        stated = (c for c in runs.status(name).get("conditions", ()) if c["type"] == "QuotaReserved")
        return next(((c["status"], c["reason"], c["message"]) for c in stated), ("", "", ""))

    def waits() -> bool:
        return quota()[:2] == ("False", "WaitingForQuota")

    def jobs(name: str, step: str) -> list[dict[str, Any]]:
        chosen = f"{OF_QUEUES},combee.dev/run={name},combee.dev/step={step}"
        return list(cluster.get("jobs", "-l", chosen, namespace=namespace)["items"])

    def workloads() -> list[dict[str, Any]]:
        return list(cluster.get("workloads.kueue.x-k8s.io", namespace=namespace)["items"])

    def preempted() -> dict[str, int]:
        found = {one["metadata"]["ownerReferences"][0]["name"]: preemptions(one) for one in workloads()}
        return {job: times for job, times in found.items() if times}

    with log.kept():
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=queues(namespace))
        runs.apply(slow)
        eventually("its first Job waits, and Kueue says why", lambda: waits() and TOO_LITTLE in quota()[2])
        (first,) = workloads()
        assert (first["spec"]["queueName"], first["spec"]["priority"]) == ("team-a", 10)
        assert not cluster.get("pods", "-l", "combee.dev/run", namespace=namespace)["items"]
        assert not cluster.get("deployments", namespace=namespace)["items"]

        cluster.kubectl("apply", "-f", "-", stdin=cluster_queue(namespace, **QUOTA))
        eventually("it is admitted", lambda: quota()[:2] == ("True", "Reserved"))
        works = eventually(
            "its map is at work",
            lambda: next((job for job in jobs("quickstart", "map") if job["status"].get("ready")), None),
            seconds=300,
        )
        before = len(log.answers())
        eventually("its map has had an answer", lambda: len(log.answers()) > before)

        runs.apply(urgent)
        eventually("the urgent run takes its place", lambda: works["metadata"]["name"] in preempted())
        eventually("the run says so", waits)
        assert runs.ended("urgent")["phase"] == "Learned"
        assert runs.status()["phase"] not in ENDED

        status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
    (mapped,) = jobs("quickstart", "map")
    assert mapped["metadata"]["uid"] == works["metadata"]["uid"], "it was made anew"
    answers = log.answers().values()
    twice = sum(len(given) - 1 for given in answers)
    lost = preempted()
    print(f"{len(answers)} calls, {twice} answered twice, {SLOTS} in flight at most; preempted: {lost}")
    assert all(job.startswith("quickstart-") for job in lost), lost
    assert twice <= SLOTS * sum(lost.values())
    learn(runs.plans(tmp_path / "plans", "quickstart"), tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists()
