"""A task in a container whose run is disturbed while rollouts are at work: it learns what a laptop learns,
and leaves nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from gardener import Gardener
from runs import Runs, operating
from test_containers import ALLOWED, locally, model, objects  # noqa: F401 - the fixture among them

from combee.objects.accounts import isolation

pytestmark = pytest.mark.timeout(900, func_only=True)


def test_a_restart_a_killed_map_pod_and_a_suspension_change_no_byte(
    cluster: Cluster,
    namespace: str,
    model: Gardener,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    runs, log = Runs(cluster, namespace), tmp_path / "operator.log"
    made = objects(cluster, model.url, {})

    def running(step: str) -> list[str]:
        """Names of the pods of a step, while pods of rollouts run beside them."""
        if not _pods(cluster, namespace, "app.kubernetes.io/component=rollout"):
            return []
        return _pods(cluster, namespace, f"combee.dev/step={step}")

    with operating(cluster, namespace, log, **ALLOWED):
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=made)
        eventually("rollouts of the map are at work", lambda: running("map"), seconds=300)
    killed, *_ = _pods(cluster, namespace, "combee.dev/step=map")
    cluster.kubectl("delete", "pod", killed, "--force", "--grace-period=0", namespace=namespace)
    print(f"the operator was killed, and {killed}")
    with operating(cluster, namespace, log, **ALLOWED):
        eventually("rollouts are at work again", lambda: running("map") or running("finish"), seconds=300)
        _suspend(cluster, namespace, yes=True)
        eventually("no pod is at work", lambda: not _pods(cluster, namespace), seconds=120)
        eventually("it says so", lambda: runs.status("greenhouse")["phase"] == "Suspended")
        _suspend(cluster, namespace, yes=False)
        status = runs.ended("greenhouse", seconds=600)
        assert status["phase"] == "Learned", status["message"]
        policies = cluster.get("networkpolicies", namespace=namespace)["items"]
        specs = {one["metadata"]["name"]: one["spec"] for one in policies}
        assert specs == {one["metadata"]["name"]: one["spec"] for one in isolation(namespace)}
        eventually("nothing of a rollout is left", lambda: not _rollouts(cluster, namespace), seconds=180)
    assert len(model.keys) == 1  # the run's own, and none that a rollout was given
    playbook = runs.playbook("greenhouse")
    assert " soil needs " in playbook
    locally(runs, tmp_path, model, made[-1])
    digest = hashlib.sha256(playbook.encode()).hexdigest()
    assert (tmp_path / "out" / "store" / "blobs" / digest[:2] / digest).exists(), (
        "the laptop learned another playbook"
    )


def _rollouts(cluster: Cluster, namespace: str) -> list[Any]:
    found: list[Any] = cluster.get(
        "pods,jobs,services", "-l", "app.kubernetes.io/component=rollout", namespace=namespace
    )["items"]
    return found


def _pods(cluster: Cluster, namespace: str, selector: str = "") -> list[str]:
    """Names of those at work."""
    asked = ["-l", selector] if selector else []
    return [
        pod["metadata"]["name"]
        for pod in cluster.get("pods", *asked, namespace=namespace)["items"]
        if pod["status"].get("phase") == "Running"
    ]


def _suspend(cluster: Cluster, namespace: str, *, yes: bool) -> None:
    patch = json.dumps({"spec": {"suspend": yes}})
    cluster.kubectl("patch", "plr", "greenhouse", "--type=merge", "-p", patch, namespace=namespace)
