"""An engine with a modelCache: a Job fills the claim with weights, and the servers start offline from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import Runs, operating

pytestmark = pytest.mark.timeout(900)
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "models"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
}
ASKED = {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}


def cached(run: dict[str, Any]) -> None:
    run["spec"]["engines"][0]["vllm"]["modelCache"] = {"claimName": "models"}


def test_a_job_fetches_the_weights_and_the_engine_starts_from_the_claim(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs = Runs(cluster, namespace)

    def engines() -> dict[str, Any]:
        return next((c for c in runs.status().get("conditions", ()) if c["type"] == "EnginesReady"), {})

    with operating(
        cluster, namespace, tmp_path / "operator.log", COMBEE_PREFETCH_RESOURCES=json.dumps(ASKED)
    ):
        runs.apply(cached)
        said = eventually(
            "it says what is missing",
            lambda: (
                'persistentvolumeclaim "models" not found' in (now := engines()).get("message", "") and now
            ),
            seconds=180,
        )
        assert (said["status"], said["reason"]) == ("False", "Starting"), said
        assert "its weights are being fetched by Job" in said["message"]
        assert "Create the claim that the run names" in said["message"]
        assert not cluster.get("deployments", namespace=namespace)["items"]
        cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=CLAIM)
        eventually("the engine serves", lambda: engines().get("status") == "True", seconds=300)
    (job,) = cluster.get("jobs", "-l", "app.kubernetes.io/component=prefetch", namespace=namespace)["items"]
    assert job["status"]["succeeded"] == 1
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == ASKED
    logs = cluster.kubectl("logs", f"job/{job['metadata']['name']}", namespace=namespace)
    assert "fetched openai/gpt-oss-120b to /models/hub/" in logs
    served = cluster.get("pods", "-l", "app.kubernetes.io/component=engine", namespace=namespace)["items"]
    # An engine of this image that may not ask the hub ends where the weights are not in its cache.
    (container,) = served[0]["spec"]["containers"]
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "models"]
    assert mount["readOnly"] is True
