"""A run in a queue where there is no Kueue: it waits, says so, and holds nothing meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import Runs, at_once, operating

pytestmark = pytest.mark.timeout(300)


def queued(run: dict[str, Any]) -> None:
    at_once(run)
    run["spec"]["queue"] = {"name": "team-a"}


def test_a_run_whose_queue_is_not_there_waits_and_says_so(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    if not cluster.try_kubectl("get", "crd", "workloads.kueue.x-k8s.io").returncode:
        pytest.skip("this cluster has a Kueue: test_kueue is about it")
    runs = Runs(cluster, namespace)

    def condition(type: str) -> dict[str, Any]:
        return next((c for c in runs.status().get("conditions", ()) if c["type"] == type), {})

    with operating(cluster, namespace, tmp_path / "operator.log") as operator:
        runs.apply(queued)
        waits = eventually(
            "it says so", lambda: (c := condition("QuotaReserved")).get("status") == "False" and c
        )
        assert waits["reason"] == "WaitingForQuota"
        assert waits["message"].startswith("queue team-a cannot be asked: Kueue is not installed"), waits
        assert runs.status()["phase"] == "Pending"
        made = cluster.get("pods,jobs,deployments", "-l", "combee.dev/run", namespace=namespace)["items"]
        assert not made
        # Told to stop it ends what it is at, gives the Lease up and leaves.
        assert operator.stop() == 0, operator.log.read_text()[-2000:]
        lease = cluster.get("lease", "combee-operator", namespace=namespace)
        assert not lease["spec"].get("holderIdentity"), lease
