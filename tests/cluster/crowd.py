"""Two runs that compete: how far they came, whose pods were evicted, who held what, and what was refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cluster_tools import Cluster
from runs import ENDED, FINISHED, Runs

Object = dict[str, Any]


def done(objects: Iterable[Object]) -> set[Hashable]:
    """What Jobs and runs have done: indexes that succeeded, of whichever attempt at a step, and phases and
    iterations that runs came to."""
    found: set[Hashable] = set()
    for one in objects:
        name, status = one["metadata"]["name"], one.get("status", {})
        if one["kind"] == "Job":
            step = name.rpartition("-a")[0]
            found |= {(step, index) for index in range(status.get("succeeded") or 0)}
        elif one["kind"] == "PromptLearningRun":
            found.add((name, status.get("phase"), status.get("iteration")))
    return found


@dataclass
class Progress:
    """The longest time in which nothing was done that had not been done before. So pods that come and go are
    no progress, nor is a phase that comes again, and a finished Job that is deleted takes none away."""

    longest: float = 0.0
    """seconds."""
    _done: set[Hashable] = field(default_factory=set)
    _since: float | None = None

    def look(self, now: float, objects: Iterable[Object]) -> None:
        """``now``: seconds of any clock."""
        since = now if self._since is None else self._since
        self.longest = max(self.longest, now - since)
        more = done(objects) - self._done
        self._done |= more
        self._since = now if more else since


@dataclass
class Crowd:
    """The runs of a namespace, of which a map pod is evicted in every iteration."""

    runs: Runs
    progress: Progress = field(default_factory=Progress)
    evicted: set[tuple[str, int]] = field(default_factory=set)
    """(run, iteration) of each pod whose eviction was granted."""
    halves: bool = False
    """whether every run had just one of its two engines placed at one moment."""
    let_go: set[str] = field(default_factory=set)
    """runs that said that they let go of their engines."""

    def until_all_end(self, *, seconds: float = 780) -> list[Object]:
        """The runs, all of them learned."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            objects = self.runs.cluster.get("plr,jobs,pods", namespace=self.runs.namespace)["items"]
            runs = [one for one in objects if one["kind"] == "PromptLearningRun"]
            self.progress.look(time.monotonic(), objects)
            self._watch(runs, objects)
            if all(one.get("status", {}).get("phase") in ENDED for one in runs):
                phases = {one["status"]["phase"] for one in runs}
                assert phases <= {*FINISHED}, [one["status"]["message"] for one in runs]
                return runs
            for pod in objects:
                self._evict(pod)
            time.sleep(0.2)
        pytest.fail(
            f"not over in time: "
            f"{self.runs.cluster.kubectl('get', 'plr,pods,jobs', namespace=self.runs.namespace)}"
        )

    def _watch(self, runs: list[Object], objects: list[Object]) -> None:
        names = {run["metadata"]["name"] for run in runs}
        self.let_go |= {
            run["metadata"]["name"]
            for run in runs
            if "are let go for a while" in run.get("status", {}).get("message", "")
        }
        held = Counter(
            pod["metadata"]["labels"]["combee.dev/run"]
            for pod in objects
            if pod["kind"] == "Pod" and _label(pod, "engine") and pod["spec"].get("nodeName")
        )
        self.halves |= held == dict.fromkeys(names, 1)

    def _evict(self, pod: Object) -> None:
        if pod["kind"] != "Pod" or _label(pod, "step") != "map" or pod["status"]["phase"] != "Running":
            return
        step = (_label(pod, "run"), int(_label(pod, "iteration")))
        if step in self.evicted or "deletionTimestamp" in pod["metadata"]:
            return
        name = pod["metadata"]["name"]
        said = evict(self.runs.cluster, self.runs.namespace, name)
        print(f"evicted {name}" if not said else f"{name} was not evicted: {said}")
        if not said:
            self.evicted.add(step)


def iterations(runs: Iterable[Object]) -> set[tuple[str, int]]:
    """(run, iteration) of all that runs say they did."""
    found = {(run["metadata"]["name"], row["iteration"]) for run in runs for row in run["status"]["history"]}
    assert len(found) == sum(run["status"]["iteration"] for run in runs), "a history holds the last 20"
    return found


def evict(cluster: Cluster, namespace: str, pod: str) -> str:
    """Why the API server did not evict a pod; empty when it did."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    done = cluster.try_kubectl("create", "--raw", path, "-f", "-", stdin=body)
    return done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else ""


def told(cluster: Cluster, namespace: str) -> Counter[str]:
    """Object -> events of its controller that say that a pod was refused."""
    refused = Counter[str]()
    for event in cluster.get("events", namespace=namespace)["items"]:
        about = event["involvedObject"]
        if about["kind"] in ("Job", "ReplicaSet") and event["reason"] == "FailedCreate":
            refused[about["name"]] += int(event.get("count") or 1)
    return refused


def _label(of: Object, name: str) -> str:
    return str(of["metadata"].get("labels", {}).get(f"combee.dev/{name}", ""))
