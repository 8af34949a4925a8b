"""The Job that ends kept traffic which no gateway looks after, and what is known of it. Pure.

There is one for each store, without owner: it outlives Playbooks and their gateway. The last one stays when it is done,
for its annotation is the operator's memory of whose traffic is in the store and until when. It names the store's Secret;
who may write Jobs may mount any Secret of the namespace anyway.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from combee import names
from combee.names import STORE_FOLDER
from combee.objects.jobs import CONTAINER, GRACE_SECONDS
from combee.objects.pods import SCRATCH, container, plain, pod_spec, scratch
from combee.objects.types import Object, Settings
from combee.objects.volumes import Mounts
from combee.plan.sweep import SLOT_SECONDS, Memory

COMPONENT = "sweep"
SELECTOR = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},{names.LABEL_COMPONENT}={COMPONENT}"
KEEPS = f"{names.API_GROUP}/keeps"
"""annotation: what is kept in the Job's store."""
DEADLINE_SECONDS = 1800


def sweep_job(memory: Memory, namespace: str, now: float, settings: Settings) -> Object:
    """The Job that sweeps a store in the stretch of time that ``now`` (seconds since 1970) is in. Where gateways look
    after everything it is suspended: it only remembers."""
    store, labels = memory.store, _labels()
    mounted = Mounts()
    volume, mount = scratch(settings.worker_scratch)
    mounted.add(volume, mount["mountPath"], read_only=False)
    if store.pvc is not None:
        mounted.claim(store.pvc.claim_name, "store", STORE_FOLDER, read_only=False)
    if store.secret_ref is not None:
        mounted.secret(store.secret_ref.name, "store")
    sweeper = container(
        CONTAINER,
        image=settings.worker_image,
        command=["combee-worker", "sweep"],
        env=[
            plain("COMBEE_SWEEP", _told(memory)),
            plain("COMBEE_LOG_LEVEL", settings.log_level),
            plain("HOME", SCRATCH),
        ],
        mounts=mounted.mounts,
        resources=dict(settings.worker_resources),
        settings=settings,
    )
    spec = pod_spec(
        sweeper,
        volumes=mounted.volumes,
        account=settings.worker_account,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"combee-sweep-{memory.key}-{int(now // SLOT_SECONDS)}",
            "namespace": namespace,
            "labels": labels,
            "annotations": {KEEPS: memory.to_json()},
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "suspend": memory.tended,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _told(memory: Memory) -> str:
    """What the pod is told: the store's address, for how long each Playbook's traffic is kept, and whose is to end."""
    told: dict[str, str | dict[str, float] | Sequence[str]] = {
        "store": memory.store.uri or STORE_FOLDER,
        "retention": {one.playbook: one.retention_seconds for one in memory.kept},
        "ending": [one.playbook for one in memory.kept if one.until],
    }
    return json.dumps(told, sort_keys=True)


def _labels() -> dict[str, str]:
    return {
        names.LABEL_NAME: "combee",
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_COMPONENT: COMPONENT,
    }
