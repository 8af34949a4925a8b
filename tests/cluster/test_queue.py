"""A run in a queue: its Jobs begin suspended with Kueue's label, and this test admits them as Kueue would."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import ENDED, Runs, at_once, operating

pytestmark = pytest.mark.timeout(900)
LABEL = "kueue.x-k8s.io/queue-name=team-a"


def queued(run: dict[str, Any]) -> None:
    at_once(run)
    run["spec"]["queue"] = {"name": "team-a"}


def test_a_run_waits_for_its_queue_and_goes_on_as_it_is_admitted(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs = Runs(cluster, namespace)

    def held() -> list[str]:
        jobs = cluster.get("jobs", "-l", LABEL, namespace=namespace)["items"]
        return [job["metadata"]["name"] for job in jobs if job["spec"].get("suspend")]

    def condition(type: str) -> dict[str, Any]:
        return next((c for c in runs.status().get("conditions", ()) if c["type"] == type), {})

    with operating(cluster, namespace, tmp_path / "operator.log") as operator:
        runs.apply(queued)
        eventually("its first Job is held back", held)
        waits = eventually(
            "it says so", lambda: (c := condition("QuotaReserved")).get("status") == "False" and c
        )
        assert (
            waits["reason"] == "WaitingForQuota" and "queue team-a has not admitted Job" in waits["message"]
        )
        # Nothing holds a GPU or a place while the run waits.
        assert not cluster.get("pods", "-l", "combee.dev/run", namespace=namespace)["items"]
        assert not cluster.get("deployments", namespace=namespace)["items"]
        # Told to stop it ends what it is at, gives the Lease up and leaves; another goes on from there.
        assert operator.stop() == 0, operator.log.read_text()[-2000:]
        lease = cluster.get("lease", "combee-operator", namespace=namespace)
        assert not lease["spec"].get("holderIdentity"), lease
    admitted: set[str] = set()
    with operating(cluster, namespace, tmp_path / "next.log"):
        end = time.monotonic() + 600
        while (phase := runs.status().get("phase")) not in ENDED and time.monotonic() < end:
            for name in held():
                patch = '{"spec":{"suspend":false}}'
                cluster.kubectl("patch", "job", name, "--type=merge", "-p", patch, namespace=namespace)
                admitted.add(name)
            time.sleep(0.3)
    assert phase == "Learned", runs.status()
    kinds = {name.split("-")[-2] for name in admitted}
    assert kinds == {"profile", "map", "reduce", "finish", "evaluate", "publish"}, admitted
