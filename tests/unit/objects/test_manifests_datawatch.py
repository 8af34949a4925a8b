"""The pod that looks at a Playbook's data sees those data and nothing else."""

from __future__ import annotations

import json

from manifests_makers import OWNER, SETTINGS
from pod_security import violations

from combee.api.parts import DataSource
from combee.objects.datawatch import datawatch_job

CLAIM = DataSource.model_validate({"pvc": {"claimName": "rows", "path": "formula/train.jsonl"}})
BUCKET = DataSource.model_validate({"uri": "s3://d/heldout.jsonl", "secretRef": {"name": "s3"}})
ROWS = DataSource.model_validate({"configMap": {"name": "rows", "key": "test.jsonl"}})


def test_the_pod_is_restricted_has_no_token_and_mounts_the_data_alone() -> None:
    job = datawatch_job(
        OWNER, {"train-1": CLAIM, "heldOut-2": BUCKET, "test-3": ROWS}, 3600, 7 * 3600 + 9.5, SETTINGS
    )
    assert job is not None
    template = job["spec"]["template"]
    assert list(violations(template)) == []
    pod = template["spec"]
    assert pod["automountServiceAccountToken"] is False and pod["serviceAccountName"] == "combee-worker"
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert set(mounts) == {"/tmp", "/data/train-1", "/etc/combee/secrets/heldOut-2"}
    assert all(mount.get("readOnly") for path, mount in mounts.items() if path != "/tmp")
    task = next(e["value"] for e in pod["containers"][0]["env"] if e["name"] == "COMBEE_WATCH")
    assert json.loads(task) == {
        "train-1": "/data/train-1/formula/train.jsonl",
        "heldOut-2": "s3://d/heldout.jsonl",
    }
    (reference,) = job["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("Playbook", OWNER.uid)
    assert job["spec"]["ttlSecondsAfterFinished"] > 3600, "when it was made says when the next one is"
    assert job["metadata"]["name"].endswith("-7") and len(job["metadata"]["name"]) <= 63


def test_config_maps_alone_take_no_pod() -> None:
    assert datawatch_job(OWNER, {"train-1": ROWS}, 3600, 7.0, SETTINGS) is None
