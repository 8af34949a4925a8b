"""The Job that looks whether the data of a Playbook's template changed: it mounts those data and nothing else. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from combee import names
from combee.api.parts import DataSource
from combee.objects.jobs import CONTAINER, GRACE_SECONDS
from combee.objects.playbooks import playbook_reference
from combee.objects.pods import SCRATCH, container, plain, pod_spec, scratch
from combee.objects.types import Object, Settings
from combee.objects.volumes import DATA_FOLDER, Mounts
from combee.records import Owner

COMPONENT = "datawatch"
DEADLINE_SECONDS = 1200
KEPT_SECONDS = 600
"""after the next one is due."""


def labels_of(playbook: str) -> dict[str, str]:
    """The labels of a Playbook's Jobs that look at its data."""
    return {
        names.LABEL_NAME: "combee",
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: COMPONENT,
        names.LABEL_PLAYBOOK: names.playbook_label(playbook),
    }


def watched(places: Mapping[str, DataSource]) -> dict[str, DataSource]:
    """Those places that a pod must look at: the operator reads no store and mounts no claim."""
    return {key: source for key, source in places.items() if source.config_map is None}


def datawatch_job(
    owner: Owner, places: Mapping[str, DataSource], poll_seconds: int, now: float, settings: Settings
) -> Object | None:
    """The Job of the poll that ``now`` (seconds since 1970) is in; None where a pod has nothing to look at. It stays
    until the next one is made: how old it is says when that is."""
    if not (looked := watched(places)):
        return None
    labels, spec = labels_of(owner.name), _pod(looked, settings)
    digest = hashlib.sha256(f"{owner.uid} {sorted(looked)}".encode()).hexdigest()
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.datawatch_name(owner.name, digest, int(now // poll_seconds)),
            "namespace": owner.namespace,
            "labels": labels,
            "ownerReferences": [playbook_reference(owner)],
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": poll_seconds + KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _pod(looked: Mapping[str, DataSource], settings: Settings) -> Object:
    mounted = _mounts(looked, settings)
    task = {
        key: f"{DATA_FOLDER}/{key}/{source.pvc.path}" if source.pvc is not None else source.uri
        for key, source in looked.items()
    }
    worker = container(
        CONTAINER,
        image=settings.worker_image,
        command=["combee-worker", "watch-data"],
        env=[
            plain("COMBEE_WATCH", json.dumps(task, sort_keys=True)),
            plain("COMBEE_LOG_LEVEL", settings.log_level),
            plain("HOME", SCRATCH),
        ],
        mounts=mounted.mounts,
        resources=dict(settings.worker_resources),
        settings=settings,
    )
    return pod_spec(
        worker,
        volumes=mounted.volumes,
        account=settings.worker_account,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )


def _mounts(looked: Mapping[str, DataSource], settings: Settings) -> Mounts:
    mounted = Mounts()
    volume, mount = scratch(settings.worker_scratch)
    mounted.add(volume, mount["mountPath"], read_only=False)
    for key, source in looked.items():
        if source.pvc is not None:
            mounted.claim(source.pvc.claim_name, f"data-{key.lower()}", f"{DATA_FOLDER}/{key}")
        if source.secret_ref is not None:
            mounted.secret(source.secret_ref.name, key)
    return mounted
