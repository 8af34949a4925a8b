"""Runs that compete: for pods under a quota, and for GPUs."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cluster_tools import Cluster, eventually, restricted_pod
from crowd import Crowd, Progress, iterations, told
from runs import FINISHED, Runs, at_once, operating, quickstart

pytestmark = pytest.mark.timeout(900)
QUOTA_PODS = 4


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
    sim = served_elsewhere(cluster, f"{namespace}-llm", "--time-scale=0.5")
    try:

        def from_outside(spec: dict[str, Any]) -> None:
            endpoint = {"endpoint": {"url": sim, "model": "openai/gpt-oss-120b"}}
            spec["models"] = {
                "task": dict(endpoint),
                "proposer": {**endpoint, "sampling": {"temperature": 0.7}},
            }
            del spec["engines"]
            spec["batching"] = {"mode": "Fixed", "size": 120, "reason": "one iteration"}
            spec["workers"] = {"parallelism": 4, "concurrency": 32}

        cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=quota)
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=two_runs(from_outside))
        runs = Runs(cluster, namespace)
        allowed = {"COMBEE_ALLOWED_HOSTS": urlsplit(sim).hostname or ""}
        with operating(cluster, namespace, tmp_path / "operator.log", **allowed):
            crowd, started = Crowd(runs), time.monotonic()
            ended = crowd.until_all_end()
        seconds = time.monotonic() - started
        assert crowd.evicted == iterations(ended)
        print(f"longest time without progress {crowd.progress.longest:.0f} s")
        # The Job controller asks for one pod when it knows of no room, and waits 1, 2, 4 ... 60 s when that
        # is refused; once more when a pod of the Job was made, runs, ends or goes. A storm asks on and on.
        if cluster.own:
            refused = refused_pods(cluster, namespace)
            print(f"{refused} pods refused in {seconds:.0f} s")
            assert 0 < refused < seconds / 2
        two_jobs_a_step(cluster, namespace)
    finally:
        cluster.kubectl("delete", "namespace", f"{namespace}-llm", "--wait=false")


def refused_pods(cluster: Cluster, namespace: str) -> int:
    """How many pods of a namespace the API server of the test node refused to make, whoever asked."""
    log = Path(cluster.part("log", "audit").strip())
    asked = [
        json.loads(line) for line in log.read_text().splitlines() if f'"namespace":"{namespace}"' in line
    ]
    return sum(
        (one["verb"], one["objectRef"]["resource"], one["responseStatus"]["code"]) == ("create", "pods", 403)
        for one in asked
        if "subresource" not in one["objectRef"]
    )


def two_jobs_a_step(cluster: Cluster, namespace: str) -> Counter[str]:
    """Object -> pods that were refused to it, as far as events tell. The operator takes a Job that finds no
    room away once, and makes it in its turn."""
    refused = told(cluster, namespace)
    print(f"{refused.total()} FailedCreate: {dict(refused)}")
    assert max(Counter(job.rpartition("-a")[0] for job in refused).values(), default=0) <= 2, refused
    return refused


def test_pods_that_come_and_go_are_no_progress() -> None:
    def job(name: str, succeeded: int) -> dict[str, Any]:
        return {"kind": "Job", "metadata": {"name": name}, "status": {"succeeded": succeeded}}

    def run(phase: str) -> dict[str, Any]:
        return {"kind": "PromptLearningRun", "metadata": {"name": "first"}, "status": {"phase": phase}}

    def pod(name: str) -> dict[str, Any]:
        return {"kind": "Pod", "metadata": {"name": name}, "status": {"phase": "Running"}}

    progress = Progress()
    looks = [
        (0.0, [run("Preparing"), job("i0-map-a0", 1)]),
        (30.0, [run("Preparing"), job("i0-map-a0", 2), pod("x")]),
        (40.0, [run("Pending"), pod("y")]),
        # From here on nothing is new: the Job is deleted, made anew and done again, the phase was there
        # before.
        (60.0, [run("Preparing"), pod("z")]),
        (80.0, [run("Pending"), job("i0-map-a1", 2)]),
        (95.0, [run("Preparing"), job("i0-map-a1", 3)]),
        (100.0, [run("Preparing"), job("i0-map-a1", 3)]),
    ]
    for now, objects in looks:
        progress.look(now, objects)
    assert progress.longest == 55.0


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
    # It stays on a node that is tainted: who asks it may be evicted, not the server.
    pod = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
    cluster.kubectl("create", "namespace", namespace)
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "llm"},
        "spec": {"clusterIP": "None", "selector": labels, "ports": [{"port": 8000}]},
    }
    cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=[deployment, service])
    cluster.kubectl("rollout", "status", "deployment/llm", "--timeout=240s", namespace=namespace)
    return f"http://llm.{namespace}.svc:8000/v1"


def test_eight_gpus_for_three_runs(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    """Two runs whose engines take two replicas of two GPUs each; the third waits and says for what."""
    runs = Runs(cluster, namespace)
    objects = [o for o in quickstart() if o["kind"] != "PromptLearningRun"]
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    run["spec"]["engines"][0]["vllm"] |= {"gpusPerReplica": 2, "replicas": 2}
    at_once(run)
    run["spec"]["engines"][0]["template"]["spec"]["resources"] = {
        "requests": {"cpu": "20m", "memory": "128Mi"}
    }
    # Neither of the first two may be over before the third was seen waiting; only the second is waited for.
    for name, scale in (("one", 8), ("two", 2), ("three", 1)):
        copy = json.loads(json.dumps(run))
        copy["spec"]["engines"][0]["vllm"]["args"] = [f"--time-scale={scale}"]
        copy["metadata"]["name"] = copy["spec"]["playbookRef"]["name"] = name
        objects.append(copy)

    def serving(name: str) -> bool:
        conditions = {c["type"]: c for c in runs.status(name).get("conditions", ())}
        return conditions.get("EnginesReady", {}).get("reason") == "Serving"

    def held() -> int:
        """GPUs of pods that are there, those on their way out among them: the scheduler counts them, too."""
        pods = cluster.get("pods", "-l", "app.kubernetes.io/component=engine", namespace=namespace)["items"]
        return sum(
            int(c["resources"]["limits"]["nvidia.com/gpu"])
            for pod in pods
            if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed")
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

        print("three waits:", eventually("it says that it waits for GPUs", waits, seconds=180))
        started = time.monotonic()
        for name in ("one", "three"):
            cluster.kubectl(
                "patch", "plr", name, "--type=merge", "-p", '{"spec":{"suspend":true}}', namespace=namespace
            )
        eventually("four GPUs are free", lambda: held() == 4, seconds=180)
        print(f"suspend freed 4 GPUs in {time.monotonic() - started:.1f} s")
        assert runs.ended("two", seconds=400)["phase"] in FINISHED


def test_two_runs_of_two_engines_do_not_hold_one_of_two_gpus_each_for_ever(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Two GPUs are free and each run needs both; both begin at once, and each is given one."""
    with first_of_all(cluster, namespace) as priority:

        def two_engines(spec: dict[str, Any]) -> None:
            engine = spec["engines"][0]
            engine["vllm"] |= {"gpusPerReplica": 1, "replicas": 1, "args": ["--time-scale=0.3"]}
            pod = engine["template"]["spec"]
            pod["resources"] = {"requests": {"cpu": "20m", "memory": "128Mi"}}
            pod["priorityClassName"] = priority
            other = {**json.loads(json.dumps(engine)), "name": "proposer"}
            other["template"]["spec"]["nodeSelector"] = {namespace: "both"}
            spec["engines"] = [engine, other]
            spec["models"]["proposer"]["engineRef"] = {"name": "proposer"}
            at_once({"spec": spec})

        for name, gpus in (("others", 6), ("until-all-wait", 2)):
            cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=holder(cluster, name, gpus))
        cluster.kubectl(
            "wait", "--for=condition=Ready", "pods", "--all", "--timeout=180s", namespace=namespace
        )
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=two_runs(two_engines))
        with operating(cluster, namespace, tmp_path / "operator.log"):
            eventually(
                "all four engines wait for a GPU", lambda: unplaced(cluster, namespace) == 4, seconds=120
            )
            cluster.kubectl("delete", "pod", "until-all-wait", namespace=namespace)
            # The scheduler looks at pods again in an order of its own: the second engine of each run finds no
            # node before the first one of each has its GPU.
            eventually("each run holds a GPU", lambda: unplaced(cluster, namespace) == 2, seconds=120)
            crowd = Crowd(Runs(cluster, namespace))
            with labelled(cluster, namespace):
                crowd.until_all_end()
    assert crowd.halves, "no moment was seen at which each of the runs held one GPU"
    assert crowd.let_go
    print(f"longest time without progress {crowd.progress.longest:.0f} s; {crowd.let_go} let go")
    assert not two_jobs_a_step(cluster, namespace)


@contextmanager
def first_of_all(cluster: Cluster, namespace: str) -> Iterator[str]:
    """The name of a priority class whose pods are placed before others, and that takes nobody's place."""
    meta = {"name": f"{namespace}-first"}
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 1000}
    cluster.kubectl("create", "-f", "-", stdin={**body, "preemptionPolicy": "Never"})
    try:
        yield meta["name"]
    finally:
        cluster.kubectl("delete", "priorityclass", meta["name"])


@contextmanager
def labelled(cluster: Cluster, label: str) -> Iterator[None]:
    """The nodes bear a label of the value ``both``."""
    cluster.kubectl("label", "node", "--all", f"{label}=both")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", "--all", f"{label}-")


def holder(cluster: Cluster, name: str, gpus: int) -> dict[str, Any]:
    """A pod that holds GPUs and does nothing."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return restricted_pod(
        name, cluster.image("worker"), ["sleep", "3600"], container={"resources": resources}
    )


def unplaced(cluster: Cluster, namespace: str) -> int:
    """Engine pods that found no node."""
    pods = cluster.get("pods", "-l", "app.kubernetes.io/component=engine", namespace=namespace)["items"]
    return sum(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for pod in pods
        for condition in pod["status"].get("conditions", ())
    )
