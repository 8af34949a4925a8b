"""What a run loses on the way changes nothing: its node, its finished pods, a whole Job, with the operator at 0."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import NODE, Cluster, eventually
from kills import OPERATOR, SLOTS, released
from runs import Runs
from stalls import Stalls
from test_crowded import served_elsewhere
from test_life import blob, definitions, locally  # noqa: F401 - definitions installs the CRDs

pytestmark = pytest.mark.timeout(1200, func_only=True)
TAINT = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
MAX_STUCK_SECONDS = 180.0


def answered(cluster: Cluster, namespace: str) -> Counter[str]:
    """How often the server answered each request, by the request's digest."""
    log = cluster.kubectl("exec", "deployment/llm", "--", "cat", "/tmp/requests.jsonl", namespace=namespace)
    rows = [json.loads(line) for line in log.splitlines()]
    return Counter(row["request"] for row in rows if row["status"] == 200)


@pytest.mark.parametrize(
    "lost", [pytest.param("the node", marks=pytest.mark.alone), "finished pods", "a Job"]
)
def test_what_is_lost_in_mid_reduce_with_the_operator_at_0_changes_no_byte(
    cluster: Cluster, namespace: str, tmp_path: Path, lost: str
) -> None:
    if lost == "the node" and not cluster.own:
        pytest.skip("it stops the node's kubelet, and KUBECONFIG names another cluster")
    elsewhere = f"{namespace}-llm"
    url = served_elsewhere(cluster, elsewhere, "--log=/tmp/requests.jsonl", "--time-scale=1")
    runs, stalls = Runs(cluster, namespace), Stalls(cluster, namespace)

    def from_outside(run: dict[str, Any]) -> None:
        spec = run["spec"]
        endpoint = {"endpoint": {"url": url, "model": "openai/gpt-oss-120b"}}
        spec["models"] = {"task": dict(endpoint), "proposer": {**endpoint, "sampling": {"temperature": 0.7}}}
        del spec["engines"]
        spec["batching"] = {"mode": "Fixed", "size": 60, "reason": "two iterations"}
        spec["workers"] = {"parallelism": 2, "concurrency": SLOTS, "hedgeBudget": 0}

    try:
        with released(cluster, namespace), stalls.watched():
            runs.apply(from_outside)
            pod = eventually("a reduce is at work", lambda: _reducing(runs), seconds=200)
            with _operator_at_0(runs):
                print(f"broke, with the operator at 0: {_lose(lost, runs, pod)}")
            status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
        log = answered(cluster, elsewhere)
        twice = sum(times - 1 for times in log.values())
        print(f"the server answered {len(log)} requests, {twice} of them twice ({SLOTS} may be in flight)")
        print(f"longest without a pod at work: {stalls.longest:.0f} s, {stalls.of}; {status['message']}")
        assert twice <= SLOTS
        assert stalls.longest < MAX_STUCK_SECONDS
        locally(runs, tmp_path, from_outside)
        assert blob(tmp_path, runs.playbook()).exists(), "the laptop learned another playbook"
    finally:
        cluster.kubectl("delete", "namespace", elsewhere, "--wait=false")


def _reducing(runs: Runs) -> dict[str, Any] | None:
    """The pod of a reduce whose map is done."""
    step = "batch.kubernetes.io/job-name", "combee.dev/step=reduce"
    jobs = runs.cluster.get("jobs", "-l", "combee.dev/step=map", namespace=runs.namespace)["items"]
    pods = runs.cluster.get("pods", "-l", ",".join(step), namespace=runs.namespace)["items"]
    mapped = {
        job["metadata"]["labels"]["combee.dev/iteration"]
        for job in jobs
        if job.get("status", {}).get("succeeded") == job["spec"]["completions"]
    }
    at_work = (
        pod
        for pod in pods
        if pod["status"]["phase"] == "Running" and pod["metadata"]["labels"]["combee.dev/iteration"] in mapped
    )
    return next(at_work, None)


@contextmanager
def _operator_at_0(runs: Runs) -> Iterator[None]:
    def scale(replicas: int) -> None:
        chosen = ("scale", "deployment/combee-operator", f"--replicas={replicas}")
        runs.cluster.kubectl(*chosen, namespace=runs.namespace)

    def pods() -> list[Any]:
        found: list[Any] = runs.cluster.get("pods", "-l", OPERATOR, namespace=runs.namespace)["items"]
        return found

    scale(0)
    try:
        eventually("no operator is left", lambda: not pods(), seconds=180)
        yield
    finally:
        scale(1)


def _lose(lost: str, runs: Runs, pod: dict[str, Any]) -> str:
    name, job = pod["metadata"]["name"], pod["metadata"]["labels"]["job-name"]
    kubectl, namespace = runs.cluster.kubectl, runs.namespace
    if lost == "the node":
        return f"{_lose_node(runs, pod)}, in mid-reduce of {name}"
    if lost == "a Job":
        kubectl("delete", "job", job, "--wait=false", namespace=namespace)
        return f"Job {job}"
    eventually("the reduce is done", lambda: _phase(runs, name) == "Succeeded", seconds=120)
    finished = ("pods", "-l", "combee.dev/step", "--field-selector=status.phase=Succeeded")
    deleted = kubectl("delete", *finished, "--wait=false", "-o", "name", namespace=namespace)
    return f"{len(deleted.split())} finished pods, {name} among them"


def _phase(runs: Runs, pod: str) -> str:
    return str(runs.cluster.get("pod", pod, namespace=runs.namespace)["status"]["phase"])


def _lose_node(runs: Runs, pod: dict[str, Any]) -> str:
    """Stop its kubelet, say by hand that it is out of service, and bring it back when the pod is given up."""
    cluster, node = runs.cluster, pod["spec"]["nodeName"]
    step = ("pods", "-l", f"batch.kubernetes.io/controller-uid={_controller(pod)}")

    def given_up() -> bool:
        left = cluster.get(*step, namespace=runs.namespace)["items"]
        return pod["metadata"]["uid"] not in {one["metadata"]["uid"] for one in left}

    try:
        cluster.part("stop", "kubelet")
        cluster.kubectl("taint", "nodes", node, TAINT, "--overwrite")
        eventually("the pod is given up", given_up, seconds=150, every=1)
    finally:
        cluster.try_kubectl("taint", "nodes", node, f"{TAINT}-")
        cluster.part("start", "kubelet")

    def ready() -> bool:
        conditions = cluster.get("node", node)["status"]["conditions"]
        return {c["type"]: c["status"] for c in conditions}["Ready"] == "True"

    eventually("the node is ready again", ready, seconds=180)
    # A kubelet that starts takes the pretended GPUs for gone.
    subprocess.run([NODE / "node.sh", "bare"], env=cluster.environment, check=True, capture_output=True)
    return f"node {node}"


def _controller(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"])
