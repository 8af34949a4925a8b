"""A run's whole life on a real cluster, with the simulated model as its engine."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually, everything, furnished, nothing_left
from laptop import blob, locally
from runs import FINISHED, Operator, Runs, operating, quickstart, short

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def runs(cluster: Cluster, namespace: str) -> Runs:
    return Runs(cluster, namespace)


def planned(run: dict[str, Any]) -> None:
    """Batches as they are planned from what was measured; two or three of them."""
    run["spec"]["batching"] = {"mode": "Dynamic", "sizes": [40, 60]}


def test_suspend_frees_everything_and_resume_goes_on(runs: Runs, operator: Operator) -> None:
    runs.apply(short)
    eventually("it learns", lambda: runs.status().get("phase") == "Learning", seconds=300)
    patch = '{"spec":{"suspend":%s}}'
    runs.cluster.kubectl(
        "patch", "plr", "quickstart", "--type=merge", "-p", patch % "true", namespace=runs.namespace
    )

    def running() -> list[str]:
        pods = runs.cluster.get("pods", namespace=runs.namespace)["items"]
        return [p["metadata"]["name"] for p in pods if p["status"]["phase"] in ("Pending", "Running")]

    eventually("no pod is left", lambda: not running(), seconds=180)
    eventually("it says so", lambda: runs.status()["phase"] == "Suspended")
    before = runs.status()
    runs.cluster.kubectl(
        "patch", "plr", "quickstart", "--type=merge", "-p", patch % "false", namespace=runs.namespace
    )
    after = runs.ended()
    assert after["phase"] == "Learned", after["message"]
    assert after["iteration"] >= before["iteration"]


@pytest.mark.parametrize("up", [False, True], ids=["operator down", "operator up"])
def test_a_run_deleted_at_work_leaves_nothing(
    runs: Runs, cluster: Cluster, namespace: str, tmp_path: Path, up: bool
) -> None:
    parts = [one for one in quickstart() if one["kind"] != "PromptLearningRun"]
    with operating(cluster, namespace, tmp_path / "operator.log") as operator:
        cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=parts)
        furnished(cluster, namespace)
        lease = ("lease", "combee-operator")
        eventually("the operator has its Lease", lambda: cluster.find(*lease, namespace=namespace))
        before = everything(cluster, namespace)

        def made() -> set[str]:
            return everything(cluster, namespace) - before

        runs.apply()
        kinds = {"job.batch", "deployment.apps", "service", "pod", "configmap"}
        eventually("its engine and a step are at work", lambda: kinds <= _kinds(made()), seconds=300)
        print(f"made: {', '.join(sorted(made()))}")
        if not up:
            operator.kill()
        runs.cluster.kubectl("delete", "plr", "quickstart", "--timeout=180s", namespace=namespace)
        nothing_left(made, seconds=180)
        if up:
            time.sleep(5)
            assert not made(), "the operator made something for a run that is gone"
            assert operator.process.poll() is None


def _kinds(names: set[str]) -> set[str]:
    return {name.split("/")[1] for name in names}


def test_though_its_operator_is_killed_again_and_again_it_learns_what_a_laptop_learns_from_the_same_plans(
    runs: Runs, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs.apply(planned)
    log = tmp_path / "operator.log"
    for phase in ("Preparing", "Learning", "Finishing"):
        with operating(cluster, namespace, log):
            eventually(
                f"it is {phase}",
                lambda phase=phase: runs.status().get("phase") in (phase, "Finishing", *FINISHED),
                seconds=300,
            )
    with operating(cluster, namespace, log) as operator:
        status = runs.ended()
        # Its batches follow the clock, and with them how much it learns.
        assert status["phase"] in ("Learned", "Unsure"), status["message"]
        shown = cluster.kubectl("get", "plr", namespace=namespace)
        assert status["phase"] in shown and status["shown"]["gain"] in shown
        eventually(
            "engines are taken down", lambda: not cluster.get("deployments", namespace=namespace)["items"]
        )
        assert operator.process.poll() is None
    playbook = runs.playbook()
    locally(runs, tmp_path, planned)
    assert blob(tmp_path, playbook).exists(), "the laptop learned another playbook"
    print(f"{status['message']}; playbook {hashlib.sha256(playbook.encode()).hexdigest()[:12]} on both")
