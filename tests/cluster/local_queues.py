"""A queue of Kueue of a test's own, and what runs in it say and have."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_tools import Cluster, eventually
from runs import ENDED, Runs

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
        return said_of_queue(Runs(self.cluster, self.namespace).status(run))

    def waits(self, run: str = "quickstart") -> bool:
        return self.quota(run)[:2] == ("False", "WaitingForQuota")

    def admitted(self, run: str = "quickstart") -> bool:
        return self.quota(run)[:2] == ("True", "Reserved")

    def at_once(self) -> int:
        """How many runs that are not over say in one look that they are admitted. One that is over says so
        until the tick after its Workload went, and Kueue admits the next one by then."""
        found = self.cluster.get("plr", namespace=self.namespace)["items"]
        going = [s for s in (one.get("status", {}) for one in found) if s.get("phase") not in ENDED]
        return sum(said_of_queue(status)[:2] == ("True", "Reserved") for status in going)

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

    def admission(self, run: str = "quickstart") -> Any:
        """What is reserved for the run."""
        return self.workload(run).get("status", {}).get("admission")

    def activate(self, run: str, active: bool) -> None:
        name, body = self.workload(run)["metadata"]["name"], json.dumps({"spec": {"active": active}})
        kind = "workloads.kueue.x-k8s.io"
        self.cluster.kubectl("patch", kind, name, "--type=merge", "-p", body, namespace=self.namespace)

    def empty(self) -> bool:
        return not self.cluster.get("workloads.kueue.x-k8s.io", namespace=self.namespace)["items"]


def said_of_queue(status: dict[str, Any]) -> tuple[str, str, str]:
    """What a run's status says of its queue."""
    told = (c for c in status.get("conditions", ()) if c["type"] == "QuotaReserved")
    return next(((c["status"], c["reason"], c["message"]) for c in told), ("", "", ""))


@contextmanager
def watched(cluster: Cluster, namespace: str, kind: str, log: Path) -> Iterator[None]:
    """Write what happens to the objects of a kind meanwhile, for ``deleted``."""
    command = ("kubectl", "-n", namespace, "get", kind, "-w", "--output-watch-events", "-o", "json")
    with log.open("w") as output:
        watch = subprocess.Popen(command, env=cluster.environment, stdout=output)
    try:
        yield
    finally:
        watch.terminate()
        watch.wait()


def deleted(log: Path) -> list[tuple[str, str, int]]:
    """The run and component of each object that went, and when, in the revisions of the cluster's store."""
    text, gone, decoder = log.read_text(), [], json.JSONDecoder()
    while text := text.lstrip():
        try:
            event, end = decoder.raw_decode(text)
        except ValueError:
            break  # the last one is half written
        text, meta = text[end:], event["object"]["metadata"]
        if event["type"] == "DELETED" and "combee.dev/run" in meta.get("labels", {}):
            labels = meta["labels"]
            component = labels["app.kubernetes.io/component"]
            gone.append((labels["combee.dev/run"], component, int(meta["resourceVersion"])))
    return gone


@contextmanager
def waiting_for_pods(cluster: Cluster, seconds: int) -> Iterator[None]:
    """Have Kueue take back what is admitted and not ready after so long; it starts again before and after."""
    where, name, key = "kueue-system", "kueue-manager-config", "controller_manager_config.yaml"
    before = cluster.get("configmap", name, namespace=where)["data"][key]
    wait = {"timeout": f"{seconds}s", "requeuingStrategy": {"backoffBaseSeconds": 5}}

    def configure(text: str) -> None:
        body = json.dumps({"data": {key: text}})
        cluster.kubectl("patch", "configmap", name, "--type=merge", "-p", body, namespace=where)
        manager = "deployment/kueue-controller-manager"
        cluster.kubectl("rollout", "restart", manager, namespace=where)
        cluster.kubectl("rollout", "status", manager, "--timeout=180s", namespace=where)
        probe = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "probe"}}
        asks = ("create", "--dry-run=server", "-f", "-")
        eventually("its webhooks answer", lambda: not cluster.try_kubectl(*asks, stdin=probe).returncode)

    configure(f"{before}\nwaitForPodsReady: {json.dumps(wait)}\n")
    try:
        yield
    finally:
        configure(before)
