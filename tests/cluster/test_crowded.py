"""Runs that compete: for pods under a quota, and for GPUs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import ENDED, Runs, operating, quickstart
from test_life import definitions  # noqa: F401 - the fixture that installs the CRDs

pytestmark = pytest.mark.timeout(900)
QUOTA_PODS = 4
STALL_SECONDS = 90.0


def two_runs(change: Any) -> list[dict[str, Any]]:
    """The quickstart twice, on one store: their memo is shared, so their seeds differ."""
    objects = [o for o in quickstart() if o["kind"] != "PromptLearningRun"]
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    for number, name in enumerate(("first", "second")):
        copy = json.loads(json.dumps(run))
        copy["metadata"]["name"] = name
        copy["spec"]["playbookRef"]["name"] = name
        copy["spec"]["seed"] = number
        change(copy["spec"])
        objects.append(copy)
    return objects


def test_two_runs_share_a_quota_of_four_pods(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Each would take four map pods, reduce, finish and an engine; one engine serves both from outside
    the quota, and a map pod is evicted in every iteration."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "pods"},
        "spec": {"hard": {"pods": str(QUOTA_PODS)}},
    }
    sim = served_elsewhere(cluster, f"{namespace}-llm")
    try:

        def from_outside(spec: dict[str, Any]) -> None:
            endpoint = {"endpoint": {"url": sim, "model": "openai/gpt-oss-120b"}}
            spec["models"] = {
                "task": dict(endpoint),
                "proposer": {**endpoint, "sampling": {"temperature": 0.7}},
            }
            del spec["engines"]
            spec["batching"] = {"mode": "Fixed", "size": 60, "reason": "two iterations"}
            spec["workers"] = {"parallelism": 4, "concurrency": 32}

        cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=quota)
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=two_runs(from_outside))
        runs = Runs(cluster, namespace)
        with operating(cluster, namespace, tmp_path / "operator.log"):
            stalled = _until_both_end(runs, cluster, namespace)
        print(f"longest time without progress {stalled:.0f} s")
        assert stalled < STALL_SECONDS
        failed = [
            event
            for event in cluster.get("events", namespace=namespace)["items"]
            if event["reason"] == "FailedCreate"
        ]
        storms = sum(int(event.get("count") or 1) for event in failed)
        print(f"{storms} FailedCreate")
        assert storms < 200
    finally:
        cluster.kubectl("delete", "namespace", f"{namespace}-llm", "--wait=false")


def _until_both_end(runs: Runs, cluster: Cluster, namespace: str) -> float:
    """Until both are Learned, evicting a map pod of each iteration once; the longest stall, in seconds."""
    evicted: set[str] = set()
    last, since, longest = "", time.monotonic(), 0.0
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        statuses = {name: runs.status(name) for name in ("first", "second")}
        if all(status.get("phase") in ENDED for status in statuses.values()):
            assert {status["phase"] for status in statuses.values()} <= {"Learned", "NothingBetter"}, statuses
            return longest
        pods = cluster.get("pods", namespace=namespace)["items"]
        mark = json.dumps([sorted(p["metadata"]["name"] + p["status"]["phase"] for p in pods)]) + str(
            [(s.get("phase"), s.get("iteration")) for s in statuses.values()]
        )
        if mark != last:
            last, since = mark, time.monotonic()
        longest = max(longest, time.monotonic() - since)
        for pod in pods:
            labels = pod["metadata"]["labels"]
            step = f"{labels.get('combee.dev/run')}-{labels.get('combee.dev/iteration')}"
            mapping = labels.get("combee.dev/step") == "map" and pod["status"]["phase"] == "Running"
            if mapping and step not in evicted:
                evicted.add(step)
                print(f"evicted {pod['metadata']['name']}")
                _evict(cluster, namespace, pod["metadata"]["name"])
        time.sleep(1)
    pytest.fail(f"not over in time: {runs.cluster.kubectl('get', 'plr,pods,jobs', namespace=namespace)}")


def _evict(cluster: Cluster, namespace: str, pod: str) -> None:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    cluster.try_kubectl("create", "--raw", path, "-f", "-", stdin=body)


def served_elsewhere(cluster: Cluster, namespace: str, *flags: str) -> str:
    """A simulated model in a namespace of its own; its base URL."""
    labels = {"app": "llm"}
    container = {
        "name": "llm",
        "image": cluster.image("sim"),
        "command": ["vllm", "serve", "openai/gpt-oss-120b", "--port=8000", "--host=0.0.0.0"],
        "args": list(flags or ("--time-scale=0.1",)),
        "readinessProbe": {"httpGet": {"path": "/v1/models", "port": 8000}, "periodSeconds": 1},
        "env": [{"name": "HOME", "value": "/tmp"}],
    }
    cluster.kubectl("create", "namespace", namespace)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "llm"},
        "spec": {"clusterIP": "None", "selector": labels, "ports": [{"port": 8000}]},
    }
    cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=[deployment, service])
    cluster.kubectl("rollout", "status", "deployment/llm", "--timeout=120s", namespace=namespace)
    return f"http://llm.{namespace}.svc:8000/v1"


def test_eight_gpus_for_three_runs(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Two runs whose engines take two replicas of two GPUs each; the third waits and says for what."""
    runs = Runs(cluster, namespace)
    objects = [o for o in quickstart() if o["kind"] != "PromptLearningRun"]
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    run["spec"]["engines"][0]["vllm"] |= {"gpusPerReplica": 2, "replicas": 2}
    run["spec"]["engines"][0]["vllm"]["args"] = ["--time-scale=1"]
    run["spec"]["engines"][0]["template"]["spec"]["resources"] = {
        "requests": {"cpu": "20m", "memory": "128Mi"}
    }
    for name in ("one", "two", "three"):
        copy = json.loads(json.dumps(run))
        copy["metadata"]["name"] = copy["spec"]["playbookRef"]["name"] = name
        objects.append(copy)

    def serving(name: str) -> bool:
        conditions = {c["type"]: c for c in runs.status(name).get("conditions", ())}
        return conditions.get("EnginesReady", {}).get("reason") == "Serving"

    def held() -> int:
        pods = cluster.get("pods", "-l", "app.kubernetes.io/component=engine", namespace=namespace)["items"]
        return sum(
            int(c["resources"]["limits"]["nvidia.com/gpu"])
            for pod in pods
            if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
            for c in pod["spec"]["containers"]
        )

    with operating(cluster, namespace, tmp_path / "operator.log"):
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=objects[:-1])
        eventually("two engines serve", lambda: serving("one") and serving("two"), seconds=180)
        assert held() == 8
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=objects[-1:])

        def waits() -> str:
            conditions = {c["type"]: c for c in runs.status("three").get("conditions", ())}
            said = conditions.get("EnginesReady", {}).get("message", "")
            return said if "nvidia.com/gpu" in said else ""

        print("three waits:", eventually("it says that it waits for GPUs", waits, seconds=90))
        started = time.monotonic()
        for name in ("one", "three"):
            cluster.kubectl(
                "patch", "plr", name, "--type=merge", "-p", '{"spec":{"suspend":true}}', namespace=namespace
            )
        eventually("four GPUs are free", lambda: held() == 4, seconds=60)
        print(f"suspend freed 4 GPUs in {time.monotonic() - started:.1f} s")
        assert runs.ended("two", seconds=400)["phase"] in ("Learned", "NothingBetter")
