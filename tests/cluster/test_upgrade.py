"""`helm upgrade` while a run is at work: the run keeps the images that it began with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from laptop import blob, locally
from releases import CHART, NAME, Release
from runs import Runs

pytestmark = pytest.mark.timeout(1200, func_only=True)
NEXT = "localhost/combee-worker:next"
"""not there: a pod that were made from it would never start."""
OFF = {"install": False}


def longer(run: dict[str, Any]) -> None:
    """A run whose map takes long enough for an upgrade."""
    run["spec"]["engines"][0]["vllm"]["args"] = ["--time-scale=0.5"]
    run["spec"]["workers"] = {"parallelism": 2, "concurrency": 16}
    run["spec"]["batching"] = {"mode": "Fixed", "size": 60, "reason": "a map that is met at work"}


def test_a_run_goes_on_with_the_images_that_it_began_with(
    cluster: Cluster, namespace: str, team: str, tmp_path: Path
) -> None:
    release, runs = Release(cluster, namespace), Runs(cluster, team)
    values: dict[str, Any] = {
        "namespaces": [team],
        "crds": OFF,
        "admissionPolicy": OFF,
        "userRoles": {"create": False},
        "engineImages": ["localhost/combee-sim"],
        "engineArguments": ["--time-scale"],
    }

    def live_map() -> list[dict[str, Any]]:
        jobs = cluster.get("jobs", "-l", "combee.dev/step=map", namespace=team)["items"]
        return [job for job in jobs if job.get("status", {}).get("ready")]

    def images(run: str) -> dict[str, str]:
        jobs = cluster.get("jobs", "-l", f"combee.dev/run={run},combee.dev/step", namespace=team)["items"]
        return {
            job["metadata"]["name"]: job["spec"]["template"]["spec"]["containers"][0]["image"] for job in jobs
        }

    try:
        release.install(values)
        before = _operator(cluster, namespace)
        runs.apply(longer)
        eventually("its map is at work", live_map, seconds=300, every=0.5)
        known = set(images("quickstart"))
        values["image"] = {"worker": NEXT}
        release.helm("upgrade", NAME, str(CHART), "--wait", "--timeout", "240s", values=values)
        assert _operator(cluster, namespace) != before
        assert runs.status()["phase"] == "Learning", "the upgrade was not in its midst"
        status = runs.ended()
        assert status["phase"] == "Learned", status["message"]
        used = images("quickstart")
        assert set(used.values()) == {cluster.image("worker")}
        assert set(used) - known, "no step was started after the upgrade"
        assert status["pinned"]["image"] == cluster.image("worker")
        # The next run is the new version's.
        runs.apply(lambda run: run["metadata"].update(name="afterwards"))
        assert eventually("it has a Job", lambda: set(images("afterwards").values())) == {NEXT}
    finally:
        release.uninstall()
    locally(runs, tmp_path, longer)
    assert blob(tmp_path, runs.playbook()).exists(), "the laptop learned another playbook"


def _operator(cluster: Cluster, namespace: str) -> str:
    pods = cluster.get("pods", "-l", "app.kubernetes.io/name=combee-operator", namespace=namespace)["items"]
    return ",".join(pod["metadata"]["uid"] for pod in pods)
