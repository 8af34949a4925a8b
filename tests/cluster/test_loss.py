"""A run loses its node, its finished pods or a whole Job while there is no operator: the result is the
same."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cluster_tools import NODE, Cluster, eventually
from kills import SLOTS
from laptop import blob, locally
from runs import Runs, at_once, operating, short
from stalls import Stalls
from test_crowded import served_elsewhere

pytestmark = pytest.mark.timeout(1200, func_only=True)
TAINT = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
MAX_STUCK_SECONDS = 180.0
Change = Callable[[dict[str, Any]], None]
Loss = Callable[[Runs, dict[str, Any]], str]
"""What takes something away from runs while a pod reduces; says what."""


def answered(cluster: Cluster, namespace: str) -> Counter[str]:
    """How often the server answered each request, by the request's digest."""
    log = cluster.kubectl("exec", "deployment/llm", "--", "cat", "/tmp/requests.jsonl", namespace=namespace)
    rows = [json.loads(line) for line in log.splitlines()]
    return Counter(row["request"] for row in rows if row["status"] == 200)


def test_a_job_and_finished_pods_lost_in_mid_reduce_with_no_operator_change_no_byte(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """One in each of two iterations."""
    learns_though_lost(cluster, namespace, tmp_path, short, [_lose_job, _lose_finished_pods])


@pytest.mark.alone
def test_the_node_lost_in_mid_reduce_with_no_operator_changes_no_byte(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    if not cluster.own:
        pytest.skip("it stops the node's kubelet, and KUBECONFIG names another cluster")
    learns_though_lost(cluster, namespace, tmp_path, at_once, [_lose_node])


def learns_though_lost(
    cluster: Cluster, namespace: str, folder: Path, size: Change, losses: Sequence[Loss]
) -> None:
    """A run that loses one thing in each iteration, while a reduce is at work and no operator."""
    elsewhere = f"{namespace}-llm"
    url = served_elsewhere(cluster, elsewhere, "--log=/tmp/requests.jsonl", "--time-scale=1")
    allowed = {"COMBEE_ALLOWED_HOSTS": urlsplit(url).hostname or ""}
    runs, stalls = Runs(cluster, namespace), Stalls(cluster, namespace)

    def from_outside(run: dict[str, Any]) -> None:
        spec = run["spec"]
        endpoint = {"endpoint": {"url": url, "model": "openai/gpt-oss-120b"}}
        spec["models"] = {"task": dict(endpoint), "proposer": {**endpoint, "sampling": {"temperature": 0.7}}}
        del spec["engines"]
        # Copies go to leaves of the reduce, which is at work for a while then.
        spec["aggregation"] = {"redundancy": {"mode": "Duplicate"}}
        spec["workers"] = {"parallelism": 2, "concurrency": SLOTS, "hedgeBudget": 0}
        size(run)

    try:
        with stalls.watched():
            runs.apply(from_outside)
            for iteration, lose in enumerate(losses):
                log_file = folder / f"operator-{iteration}.log"
                with operating(cluster, namespace, log_file, **allowed) as operator:
                    reduce = f"the reduce of iteration {iteration} is at work"
                    pod = eventually(reduce, lambda at=iteration: _reducing(runs, at), seconds=200)
                    assert operator.stop() == 0
                print(f"broke, with no operator: {lose(runs, pod)}")
            with operating(cluster, namespace, folder / "operator.log", **allowed):
                status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
        log = answered(cluster, elsewhere)
        twice = sum(times - 1 for times in log.values())
        print(f"the server answered {len(log)} requests, {twice} of them twice ({SLOTS} may be in flight)")
        print(f"longest without a pod at work: {stalls.longest:.0f} s, {stalls.of}; {status['message']}")
        assert twice <= SLOTS
        assert stalls.longest < MAX_STUCK_SECONDS
        locally(runs, folder, from_outside)
        assert blob(folder, runs.playbook()).exists(), "the laptop learned another playbook"
    finally:
        cluster.kubectl("delete", "namespace", elsewhere, "--wait=false")


def _reducing(runs: Runs, iteration: int) -> dict[str, Any] | None:
    """The pod of that iteration's reduce, once its map is done."""
    at = f"combee.dev/iteration={iteration},combee.dev/step="
    jobs = runs.cluster.get("jobs", "-l", f"{at}map", namespace=runs.namespace)["items"]
    if not any(job.get("status", {}).get("succeeded") == job["spec"]["completions"] for job in jobs):
        return None
    pods = runs.cluster.get("pods", "-l", f"{at}reduce", namespace=runs.namespace)["items"]
    return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)


def _lose_job(runs: Runs, pod: dict[str, Any]) -> str:
    job = pod["metadata"]["labels"]["job-name"]
    runs.cluster.kubectl("delete", "job", job, "--wait=false", namespace=runs.namespace)
    return f"Job {job}"


def _lose_finished_pods(runs: Runs, pod: dict[str, Any]) -> str:
    name = pod["metadata"]["name"]
    eventually("the reduce is done", lambda: _phase(runs, name) == "Succeeded", seconds=120)
    finished = ("pods", "-l", "combee.dev/step", "--field-selector=status.phase=Succeeded")
    deleted = runs.cluster.kubectl(
        "delete", *finished, "--wait=false", "-o", "name", namespace=runs.namespace
    )
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
        eventually("the pod is given up", given_up, seconds=150)
    finally:
        cluster.try_kubectl("taint", "nodes", node, f"{TAINT}-")
        cluster.part("start", "kubelet")

    def ready() -> bool:
        conditions = cluster.get("node", node)["status"]["conditions"]
        return {c["type"]: c["status"] for c in conditions}["Ready"] == "True"

    eventually("the node is ready again", ready, seconds=180)
    # A kubelet that starts takes the pretended GPUs for gone.
    subprocess.run([NODE / "node.sh", "bare"], env=cluster.environment, check=True, capture_output=True)
    return f"node {node}, in mid-reduce of {pod['metadata']['name']}"


def _controller(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"])
