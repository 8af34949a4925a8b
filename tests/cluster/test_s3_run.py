"""A run whose data and store are in S3 learns what one whose data and store are on claims learns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import REPOSITORY, Cluster, eventually, run_python
from runs import Runs, at_once, operating, quickstart

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import environment

from warm import run_program

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("minio")]
BUCKET = "combee"
KEYS = {
    "AWS_ACCESS_KEY_ID": "combee-test",
    "AWS_SECRET_ACCESS_KEY": "combee-test-secret",
    "AWS_ENDPOINT_URL": "http://minio.minio.svc:9000",
}
CLIENT = """
import json, os
import botocore.session
s3 = botocore.session.get_session().create_client("s3", region_name="us-east-1")
"""
WITH_KEYS = {"envFrom": [{"secretRef": {"name": "s3"}}]}


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "rows"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
}
"""where a platform team keeps its data."""


def upload(cluster: Cluster, namespace: str) -> None:
    """The quickstart's rows, put by a pod into the bucket and, a folder down, onto a claim."""
    program = (
        CLIENT
        + f"""
for name in os.listdir("/rows"):
    if name.endswith(".jsonl"):
        rows = open("/rows/" + name, "rb").read()
        s3.put_object(Bucket="{BUCKET}", Key="{namespace}/" + name, Body=rows)
        os.makedirs("/claim/formula", exist_ok=True)
        open("/claim/formula/" + name, "wb").write(rows)
"""
    )
    cluster.kubectl("create", "-f", "-", namespace=namespace, stdin=CLAIM)
    mounts = [{"name": "rows", "mountPath": "/rows"}, {"name": "claim", "mountPath": "/claim"}]
    mount = {"volumeMounts": mounts}
    volumes = [
        {"name": "rows", "configMap": {"name": "quickstart-rows"}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "rows"}},
    ]
    run_python(cluster, namespace, program, container={**WITH_KEYS, **mount}, volumes=volumes)


def kept(cluster: Cluster, namespace: str) -> list[str]:
    """Keys of the bucket below the store of the namespace's runs."""
    program = (
        CLIENT
        + f"""
pages = s3.get_paginator("list_objects_v2").paginate(Bucket="{BUCKET}", Prefix="{namespace}/runs/")
print(json.dumps([one["Key"] for page in pages for one in page.get("Contents", ())]))
"""
    )
    keys: list[str] = json.loads(run_python(cluster, namespace, program, container=WITH_KEYS))
    return keys


def in_s3(run: dict[str, Any], prefix: str) -> None:
    """The run with its data and its store in the bucket, to which two pods write at once."""
    secret = {"secretRef": {"name": "s3"}}
    spec = run["spec"]
    run["metadata"]["name"] = "in-s3"
    spec["task"]["data"] = {
        "train": {"uri": f"s3://{BUCKET}/{prefix}/train.jsonl", **secret},
        "heldOut": {"uri": f"s3://{BUCKET}/{prefix}/heldout.jsonl", **secret},
    }
    spec["store"] = {"uri": f"s3://{BUCKET}/{prefix}/runs", **secret}
    spec["workers"]["parallelism"] = 2


def on_claim(run: dict[str, Any]) -> None:
    """The run with its data on a claim beside that of its store."""
    run["spec"]["task"]["data"] = {
        split: {"pvc": {"claimName": "rows", "path": f"formula/{split.lower()}.jsonl"}}
        for split in ("train", "heldOut")
    }
    at_once(run)


def test_data_and_store_in_s3_give_the_same_playbook_as_a_claim(
    cluster: Cluster, namespace: str, kubectl: Callable[..., str], tmp_path: Path
) -> None:
    runs = Runs(cluster, namespace)
    literals = [f"--from-literal={key}={value}" for key, value in KEYS.items()]
    kubectl("create", "secret", "generic", "s3", *literals)
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    at_once(run)
    in_s3(run, namespace)
    with operating(cluster, namespace, tmp_path / "operator.log"):
        kubectl("apply", "-f", "-", stdin=[o for o in quickstart() if o["kind"] != "PromptLearningRun"])
        upload(cluster, namespace)
        runs.apply(on_claim)
        kubectl("create", "-f", "-", stdin=run)
        claimed, in_bucket = runs.ended(), runs.ended("in-s3")
        assert claimed["phase"] == in_bucket["phase"] == "Learned", in_bucket["message"]
        assert in_bucket["pinned"]["dataDigests"] == claimed["pinned"]["dataDigests"]
        assert in_bucket["bestDigest"] == claimed["bestDigest"]
        assert runs.playbook("in-s3") == runs.playbook()
        print(f"{in_bucket['bestDigest'][:12]} on a claim and in S3")
        _fetched(cluster, namespace, runs, tmp_path)
        keys = kept(cluster, namespace)
        assert [key for key in keys if key.endswith("manifest.json")] and len(keys) > 100, keys
        # What was answered is in the bucket: the same run again asks nothing.
        kubectl("delete", "plr", "in-s3", "--timeout=180s")
        eventually(
            "its objects are gone",
            lambda: not cluster.get("jobs", "-l", "combee.dev/run=in-s3", namespace=namespace)["items"],
        )
        kubectl("create", "-f", "-", stdin=run)
        again = runs.ended("in-s3")
    assert again["bestDigest"] == in_bucket["bestDigest"]
    assert {role: used["calls"] for role, used in again["usage"].items()} == {"task": 0, "proposer": 0}
    ready = next(c for c in again["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "AlreadyLearned", ready


def _fetched(cluster: Cluster, namespace: str, runs: Runs, folder: Path) -> None:
    """`kubectl combee report` reads the bucket with the run's own Secret."""
    command = ["combee", "report", "in-s3", "-n", namespace, "-o", str(folder / "out")]
    done = run_program(command, {**environment(), **cluster.environment}, seconds=400)
    assert done.returncode == 0, done.stderr
    result, status = json.loads((folder / "out" / "result.json").read_text()), runs.status("in-s3")
    assert result["outcome"] == "Learned" and result["heldOut"]["gate"]["best"] == status["gate"]["best"]
