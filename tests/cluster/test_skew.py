"""Operators of two versions on one run, an API server that fails, and a cluster that comes back older."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import REPOSITORY, Cluster, eventually
from earlier import earlier, tree_before
from failing_api import FailingApi
from laptop import blob, locally
from releases import apply_crds
from runs import FINISHED, Runs, at_once, operating, short

pytestmark = [pytest.mark.alone, pytest.mark.timeout(1200)]
OLDER_PARTS = ("etcd", "apiserver", "controllers", "scheduler", "kubelet", "proxy", "coredns")
"""what is stopped and started again when a snapshot is restored, in the order to start."""


def test_a_run_goes_from_the_version_before_to_this_one_and_back(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs, log, before = Runs(cluster, namespace), tmp_path / "operators.log", tree_before(tmp_path)

    def slow(run: dict[str, Any]) -> None:
        short(run)
        run["spec"]["engines"][0]["vllm"]["args"] = ["--time-scale=0.5"]
        run["spec"]["workers"] = {"parallelism": 2, "concurrency": 16}

    def at_work(step: str, iteration: int) -> bool:
        chosen = f"combee.dev/step={step},combee.dev/iteration={iteration}"
        jobs = cluster.get("jobs", "-l", chosen, namespace=namespace)["items"]
        return any(job.get("status", {}).get("ready") for job in jobs)

    try:
        with earlier(cluster, namespace, before, log):
            runs.apply(slow)
            eventually("the map of iteration 0 works", lambda: at_work("map", 0), seconds=300)
        apply_crds(cluster)
        with operating(cluster, namespace, log):
            eventually("that of iteration 1 works", lambda: at_work("map", 1), seconds=300)
        with earlier(cluster, namespace, before, log):
            status = runs.ended()
        assert status["phase"] in FINISHED, status["message"]
    finally:
        apply_crds(cluster)
    locally(runs, tmp_path, slow)
    assert blob(tmp_path, runs.playbook()).exists(), "the laptop learned another playbook"


def test_a_refused_run_is_looked_at_by_the_version_before_once_its_phase_is_one_that_it_knows(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The patch is that of docs/install.md."""
    before = tree_before(tmp_path)
    runs, log = Runs(cluster, namespace), tmp_path / "before.log"
    pending = '{"status":{"phase":"Pending"}}'
    assert f"--subresource=status --type=merge -p '{pending}'" in (REPOSITORY / "docs/install.md").read_text()

    def with_a_secret(run: dict[str, Any]) -> None:
        at_once(run)
        template = {"spec": {"imagePullSecrets": [{"name": "registry"}]}}
        run["spec"]["workers"] = {**run["spec"].get("workers", {}), "template": template}

    try:
        with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_SECRET_POLICY="false"):
            runs.apply(with_a_secret)
            eventually("it is refused", lambda: runs.status().get("phase") == "Refused")
        with earlier(cluster, namespace, before, log):
            eventually("it cannot be read", lambda: "a tick failed" in log.read_text())
            assert runs.status()["phase"] == "Refused"
            patch = ("--subresource=status", "--type=merge", "-p", pending)
            cluster.kubectl("patch", "plr", "quickstart", *patch, namespace=namespace)
            eventually("it starts", lambda: runs.status().get("startTime"))
    finally:
        apply_crds(cluster)


def test_a_run_learns_though_every_tenth_request_is_refused_and_every_watch_breaks_off(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    api = FailingApi(Path(cluster.environment["KUBECONFIG"]), refused=0.1, watch_seconds=5.0, seed=18)
    runs = Runs(cluster, namespace)
    with (
        api.serving(tmp_path) as config,
        operating(cluster, namespace, tmp_path / "operator.log", KUBECONFIG=str(config)),
    ):
        runs.apply(at_once)
        status = runs.ended()
    print(f"{api.counts}; seed {api.seed}")
    assert status["phase"] in FINISHED, status["message"]
    assert api.counts["refused"] > 5 and api.counts["broken"] > 5, api.counts


def test_a_run_is_heard_of_after_the_cluster_came_back_from_a_snapshot(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """What the operator's watches go on from is then higher than any version that is given out."""
    if not cluster.own:
        pytest.skip("it restores the node's etcd, and KUBECONFIG names another cluster")
    runs, data = Runs(cluster, namespace), Path(cluster.environment["KUBECONFIG"]).parent / "etcd"

    def answers() -> bool:
        return not cluster.try_kubectl("get", "--raw", "/readyz").returncode

    def held(name: str) -> bool:
        return bool(runs.status(name).get("observedGeneration"))

    def make(name: str) -> None:
        def called(run: dict[str, Any]) -> None:
            at_once(run)
            run["metadata"]["name"] = name
            run["spec"]["suspend"] = True

        runs.apply(called)

    with operating(cluster, namespace, tmp_path / "operator.log", COMBEE_RESYNC_SECONDS="10") as operator:
        make("first")
        eventually("the first run is looked at", lambda: held("first"))
        cluster.part("stop", "etcd")
        shutil.copytree(data, tmp_path / "snapshot")
        cluster.part("start", "etcd")
        eventually("the API server answers", answers)
        maps = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"filler-{number}"}}
            for number in range(300)
        ]
        cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=maps)
        make("lost")
        eventually("the run that will be lost is looked at", lambda: held("lost"))
        for part in reversed(OLDER_PARTS):
            cluster.part("stop", part)
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "snapshot", data)
        for part in OLDER_PARTS:
            cluster.part("start", part)
        eventually("the API server answers again", answers)
        assert cluster.find("promptlearningrun", "lost", namespace=namespace) is None
        make("after")
        eventually("the run that was made after it is looked at", lambda: held("after"), seconds=120)
        assert operator.process.poll() is None, operator.log.read_text()[-2000:]
