"""Rollouts out of warm pools of agent-sandbox, which `make agent-sandbox` installs: the same bytes as by
Jobs, and nothing is left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import Runs, operating
from test_containers import ALLOWED, Gardener, locally, model, objects  # noqa: F401 - the fixture among them

pytestmark = [pytest.mark.agent_sandbox, pytest.mark.timeout(900, func_only=True)]
WARM = {**ALLOWED, "COMBEE_AGENT_SANDBOX": "true"}
ROLLOUT = "app.kubernetes.io/component=rollout"
GROUP = "extensions.agents.x-k8s.io"
OURS = ",".join(f"{kind}.{GROUP}" for kind in ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates"))
LAUNCH, WAITS = "agents.x-k8s.io/launch-type", "agents.x-k8s.io/warm-pool-sandbox"
CONTROLLER = ("-n", "agent-sandbox-system", "deployment/agent-sandbox-controller")


def test_a_killed_map_pod_changes_no_byte_and_leaves_no_sandbox(
    cluster: Cluster,
    namespace: str,
    model: Gardener,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    runs = Runs(cluster, namespace)
    made = objects(cluster, model.url, {})
    with operating(cluster, namespace, tmp_path / "operator.log", **WARM):
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=made)
        eventually("rollouts of the map are at work", lambda: _at_work(cluster, namespace), seconds=300)
        (pool,) = cluster.get(f"sandboxwarmpools.{GROUP}", namespace=namespace)["items"]
        assert pool["spec"]["replicas"] == 2, "half of the four at once"
        assert not cluster.get("jobs", "-l", ROLLOUT, namespace=namespace)["items"]
        killed, *_ = _pods(cluster, namespace, "combee.dev/step=map")
        cluster.kubectl("delete", "pod", killed, "--force", "--grace-period=0", namespace=namespace)
        eventually("one came out of the pool", lambda: _launched(cluster, namespace, "warm"), seconds=300)
        status = runs.ended("greenhouse", seconds=600)
        assert status["phase"] == "Learned", status["message"]
        eventually("nothing is left", lambda: not _left(cluster, namespace), seconds=180)
    playbook = runs.playbook("greenhouse")
    locally(runs, tmp_path, model, made[-1])
    digest = hashlib.sha256(playbook.encode()).hexdigest()
    assert (tmp_path / "out" / "store" / "blobs" / digest[:2] / digest).exists(), (
        "the laptop learned another playbook"
    )


def test_a_pool_without_room_says_so_and_the_run_goes_on_when_there_is_some(
    cluster: Cluster,
    namespace: str,
    model: Gardener,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    runs = Runs(cluster, namespace)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "3"}},
    }
    with operating(cluster, namespace, tmp_path / "operator.log", **WARM):
        made = objects(cluster, model.url, {})
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=[quota, *made])
        message: str = eventually("it says so", lambda: _unplaced(runs, "WaitingForQuota"), seconds=300)
        print(message)
        assert "SandboxClaim greenhouse-" in message and "It goes on when there is room" in message
        cluster.kubectl("delete", "resourcequota", "few", namespace=namespace)
        status = runs.ended("greenhouse", seconds=600)
        assert status["phase"] == "Learned", status["message"]


def test_without_a_controller_the_run_says_what_to_do(
    cluster: Cluster,
    namespace: str,
    model: Gardener,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    runs = Runs(cluster, namespace)
    with _no_controller(cluster), operating(cluster, namespace, tmp_path / "operator.log", **WARM):
        made = objects(cluster, model.url, {})
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=made)
        message: str = eventually("it says so", lambda: _unplaced(runs, "Unschedulable"), seconds=300)
        print(message)
        assert "agent-sandbox does not answer. See whether its controller runs" in message
    with operating(cluster, namespace, tmp_path / "operator.log", **ALLOWED):
        eventually("Jobs take over", lambda: _jobs(cluster, namespace), seconds=120)
        assert runs.ended("greenhouse", seconds=600)["phase"] == "Learned"


@contextmanager
def _no_controller(cluster: Cluster) -> Iterator[None]:
    cluster.kubectl("scale", *CONTROLLER, "--replicas=0")
    try:
        yield
    finally:
        cluster.kubectl("scale", *CONTROLLER, "--replicas=1")
        cluster.kubectl("rollout", "status", *CONTROLLER, "--timeout=120s")


def _unplaced(runs: Runs, reason: str) -> str:
    conditions = runs.status("greenhouse").get("conditions", ())
    placed = next((one for one in conditions if one["type"] == "PodsPlaced"), None)
    return placed["message"] if placed and placed["reason"] == reason else ""


def _jobs(cluster: Cluster, namespace: str) -> list[Any]:
    found: list[Any] = cluster.get("jobs", "-l", ROLLOUT, namespace=namespace)["items"]
    return found


def _at_work(cluster: Cluster, namespace: str) -> list[str]:
    """Names of the pods of the map, while pods that are somebody's run beside them."""
    if not _pods(cluster, namespace, f"{ROLLOUT},!{WAITS}"):
        return []
    return _pods(cluster, namespace, "combee.dev/step=map")


def _pods(cluster: Cluster, namespace: str, selector: str) -> list[str]:
    found = cluster.get("pods", "-l", selector, namespace=namespace)["items"]
    return [pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running"]


def _launched(cluster: Cluster, namespace: str, how: str) -> list[Any]:
    selector = f"{LAUNCH}={how},!{WAITS}"
    found: list[Any] = cluster.get("sandboxes.agents.x-k8s.io", "-l", selector, namespace=namespace)["items"]
    return found


def _left(cluster: Cluster, namespace: str) -> list[Any]:
    """What there is of rollouts, and of sandboxes."""
    ours: list[Any] = cluster.get(f"pods,jobs,services,{OURS}", "-l", ROLLOUT, namespace=namespace)["items"]
    return ours + cluster.get("sandboxes.agents.x-k8s.io", namespace=namespace)["items"]
