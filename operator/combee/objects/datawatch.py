"""The Job that looks whether the data of a Playbook's template changed; it mounts only those data. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from combee import names
from combee.api.parts import DataSource
from combee.objects.chores import chore_job, chore_mounts, chore_pod
from combee.objects.playbooks import playbook_reference
from combee.objects.types import Object, Settings
from combee.objects.volumes import DATA_FOLDER, Mounts
from combee.records import Owner

COMPONENT = "datawatch"
DEADLINE_SECONDS = 1200
KEPT_SECONDS = 600
"""How long a finished Job stays after the next one is due."""


def labels_of(playbook: str) -> dict[str, str]:
    """Return the labels of a Playbook's Jobs that look at its data."""
    return {
        names.LABEL_NAME: "combee",
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: COMPONENT,
        names.LABEL_PLAYBOOK: names.playbook_label(playbook),
    }


def watched(places: Mapping[str, DataSource]) -> dict[str, DataSource]:
    """Return the places that a pod must look at: the operator reads no store and mounts no claim."""
    return {key: source for key, source in places.items() if source.config_map is None}


def datawatch_job(
    owner: Owner, places: Mapping[str, DataSource], poll_seconds: int, now: float, settings: Settings
) -> Object | None:
    """Return the Job of the poll that ``now`` (seconds since 1970) is in; None without places for a pod.
    It stays until the next one is made, since its age says when that is."""
    if not (looked := watched(places)):
        return None
    digest = hashlib.sha256(f"{owner.uid} {sorted(looked)}".encode()).hexdigest()
    metadata = {
        "name": names.datawatch_name(owner.name, digest, int(now // poll_seconds)),
        "namespace": owner.namespace,
        "labels": labels_of(owner.name),
        "ownerReferences": [playbook_reference(owner)],
    }
    return chore_job(
        metadata,
        _pod(looked, settings),
        activeDeadlineSeconds=DEADLINE_SECONDS,
        ttlSecondsAfterFinished=poll_seconds + KEPT_SECONDS,
    )


def _pod(looked: Mapping[str, DataSource], settings: Settings) -> Object:
    addresses = {
        key: f"{DATA_FOLDER}/{key}/{source.pvc.path}" if source.pvc is not None else source.uri
        for key, source in looked.items()
    }
    task = ("COMBEE_WATCH", json.dumps(addresses, sort_keys=True))
    return chore_pod("watch-data", task, _mounts(looked, settings), settings, account=settings.worker_account)


def _mounts(looked: Mapping[str, DataSource], settings: Settings) -> Mounts:
    mounted = chore_mounts(settings)
    for key, source in looked.items():
        if source.pvc is not None:
            mounted.claim(source.pvc.claim_name, f"data-{key.lower()}", f"{DATA_FOLDER}/{key}")
        if source.secret_ref is not None:
            mounted.secret(source.secret_ref.name, key)
    return mounted
