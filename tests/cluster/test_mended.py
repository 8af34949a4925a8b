"""A file of a run's store is damaged between two iterations: the step that wrote it makes it again, and the
run learns what a laptop learns from the same plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually, run_python
from laptop import blob, kept, locally
from runs import Runs, operating, short

pytestmark = pytest.mark.timeout(900, func_only=True)
CLAIM = {"name": "store", "persistentVolumeClaim": {"claimName": "quickstart-store"}}
DAMAGE = """
import glob, json, os
(receipt,) = glob.glob("/store/runs/*/steps/*-i000-finish-a0/00000.manifest.json")
digest = json.load(open(receipt))["outputs"]["artifact"]
path = f"blobs/{digest[:2]}/{digest}"
os.unlink(f"/store/{path}")
open(f"/store/{path}", "w").write("{}")
print(path, end="")
"""


def test_a_blob_that_is_damaged_between_iterations_is_made_again(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs, log = Runs(cluster, namespace), tmp_path / "operator.log"
    runs.apply(short)
    with operating(cluster, namespace, log):
        eventually("the first iteration's pods are there", lambda: _is_placed(runs), seconds=300)
    # Nothing new begins without an operator, and what is placed goes on.
    eventually("it is done", lambda: _finish(runs).get("succeeded"))
    mount = {"volumeMounts": [{"name": "store", "mountPath": "/store"}]}
    path = run_python(cluster, namespace, DAMAGE, container=mount, volumes=[CLAIM])
    with operating(cluster, namespace, log):
        status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    assert status["state"]["mended"] == 1
    events = cluster.get("events", namespace=namespace)["items"]
    (event,) = [one for one in events if one["reason"] == "FileDamaged"]
    assert path in event["message"], event
    locally(runs, tmp_path, short)
    held = cluster.get("configmap", status["published"], namespace=namespace)["data"]
    assert blob(tmp_path, held["prompt.md"]).exists(), "the laptop learned another prompt"
    assert kept(tmp_path, status["bestDigest"]).exists(), "the laptop has another ledger"
    print(f"{event['message']}; {status['message']}")


def _is_placed(runs: Runs) -> bool:
    """Whether every step of the first iteration has its pods, or had them."""
    jobs = runs.cluster.get("jobs", "-l", "combee.dev/iteration=0", namespace=runs.namespace)["items"]
    begun = [job for job in jobs if {"active", "succeeded"} & job.get("status", {}).keys()]
    steps = {job["metadata"]["labels"]["combee.dev/step"] for job in begun}
    return {"map", "reduce", "finish"} <= steps


def _finish(runs: Runs) -> dict[str, Any]:
    """The status of the first iteration's last Job."""
    labels = "combee.dev/iteration=0,combee.dev/step=finish"
    jobs = runs.cluster.get("jobs", "-l", labels, namespace=runs.namespace)["items"]
    return next((job.get("status", {}) for job in jobs), {})
