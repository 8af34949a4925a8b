"""The Job that deletes kept traffic which no gateway looks after, and what is known of it. Pure.

There is one for each store, without owner: it outlives Playbooks and their gateway. The last one stays when
it is done, since its annotation is the operator's memory of whose traffic is in the store and until when. It
names the store's Secret; whoever may write Jobs may mount any Secret of the namespace anyway."""

from __future__ import annotations

import json
from collections.abc import Sequence

from combee import names
from combee.names import STORE_FOLDER
from combee.objects.chores import chore_job, chore_mounts, chore_pod
from combee.objects.meta import labels_of
from combee.objects.types import Object, Settings
from combee.plan.sweep import SLOT_SECONDS, Memory

COMPONENT = "sweep"
SELECTOR = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},{names.LABEL_COMPONENT}={COMPONENT}"
KEEPS = f"{names.API_GROUP}/keeps"
"""The annotation that says what is kept in the Job's store."""
DEADLINE_SECONDS = 1800


def sweep_job(memory: Memory, namespace: str, now: float, settings: Settings) -> Object:
    """Return the Job that sweeps a store in the stretch of time that ``now`` (seconds since 1970) is in.
    Where gateways look after everything, it is suspended and only remembers."""
    store = memory.store
    mounted = chore_mounts(settings)
    if store.pvc is not None:
        mounted.claim(store.pvc.claim_name, "store", STORE_FOLDER, read_only=False)
    if store.secret_ref is not None:
        mounted.secret(store.secret_ref.name, "store")
    pod = chore_pod(
        "sweep", ("COMBEE_SWEEP", _sweep_task(memory)), mounted, settings, account=settings.worker_account
    )
    metadata = {
        "name": f"combee-sweep-{memory.key}-{int(now // SLOT_SECONDS)}",
        "namespace": namespace,
        "labels": labels_of(COMPONENT),
        "annotations": {KEEPS: memory.to_json()},
    }
    return chore_job(metadata, pod, suspend=memory.tended, activeDeadlineSeconds=DEADLINE_SECONDS)


def _sweep_task(memory: Memory) -> str:
    """Return what the pod is told: the store's address, each Playbook's retention, and whose traffic ends."""
    sweep_task: dict[str, str | dict[str, float] | Sequence[str]] = {
        "store": memory.store.uri or STORE_FOLDER,
        "retention": {one.playbook: one.retention_seconds for one in memory.kept},
        "ending": [one.playbook for one in memory.kept if one.until],
    }
    return json.dumps(sweep_task, sort_keys=True)
