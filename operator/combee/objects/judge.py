"""The Job that judges a canary: mirrored pairs, or requests repeated first; or that asks Prometheus. Pure.

It is made once and never repaired; one that fails is followed by another, later. Only it holds the
evaluator's key, or the token for Prometheus, and it holds no key of the gateway's clients. Its account may
make ConfigMaps and nothing else."""

from __future__ import annotations

import hashlib

from combee import names
from combee.api.common import SecretKeyRef
from combee.names import STORE_FOLDER
from combee.objects.chores import chore_job, chore_mounts, chore_pod
from combee.objects.playbooks import playbook_reference
from combee.objects.types import Object, Settings
from combee.objects.volumes import DATA_FOLDER, Mounts
from combee.plan.playbook.judges import SLOT_SECONDS, JudgeWish, secrets_of

PLAYBOOKS_FOLDER = "/etc/combee/playbooks"
MADE_OF = f"{names.API_GROUP}/made-of"
"""The annotation with the digest of what the Job was told, except what is judged already."""
PAIRS_BEFORE = f"{names.API_GROUP}/pairs-before"
"""The annotation that says how many pairs were judged when it was made."""
_JOB_UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
DEADLINE_SECONDS = 900
"""The program's own limit is shorter: this one is for pods that cannot start."""
KEPT_SECONDS = 86_400
"""How long a finished Job stays where no operator deletes it (``plan.playbook.judges``)."""


def judge_job(wish: JudgeWish, now: float, settings: Settings) -> Object:
    """Return the only Job for the stretch of time that ``now`` (seconds since 1970) is in."""
    digest = hashlib.sha256(f"{wish.owner.uid}\n{wish.comparison.id}".encode()).hexdigest()
    labels = names.canary_labels(wish.owner.name, wish.comparison.id)
    task = wish.task().model_dump_json(by_alias=True, exclude_none=True)
    pod = chore_pod(
        "judge",
        ("COMBEE_JUDGE", task),
        _mounts(wish, settings),
        settings,
        account=settings.publish_account,
        token=True,
        env=[{"name": "COMBEE_JOB_UID", "valueFrom": {"fieldRef": {"fieldPath": _JOB_UID}}}],
    )
    metadata = {
        "name": names.judge_name(wish.owner.name, digest, int(now // SLOT_SECONDS)),
        "namespace": wish.owner.namespace,
        "labels": labels,
        "annotations": {MADE_OF: wish.made_of(), PAIRS_BEFORE: str(wish.pairs)},
        "ownerReferences": [playbook_reference(wish.owner)],
    }
    return chore_job(
        metadata, pod, activeDeadlineSeconds=DEADLINE_SECONDS, ttlSecondsAfterFinished=KEPT_SECONDS
    )


def _mounts(wish: JudgeWish, settings: Settings) -> Mounts:
    """Mount only what the mode needs: a pod for mirrored pairs sees no playbook and no upstream's key."""
    made = chore_mounts(settings)
    store = wish.gateway.capture.store
    if store.pvc is not None and wish.canary.prometheus is None:
        made.claim(store.pvc.claim_name, "store", STORE_FOLDER, read_only=False)
    for use, ref in secrets_of(wish.canary, wish.gateway).items():
        made.secret(ref.name, use, (ref.key,) if isinstance(ref, SecretKeyRef) else ())
    if not wish.repeats:
        return made
    for side, digest in (("tested", wish.digest), ("against", wish.comparison.against)):
        if digest:
            folder = f"{PLAYBOOKS_FOLDER}/{side}"
            held = wish.contents[digest].config_map
            text, *others = names.SERVED_KEYS
            made.config_map(held, text, f"playbook-{side}", folder, maybe=others)
    requests = wish.canary.replay.requests
    if requests is not None and requests.config_map is not None:
        made.config_map(
            requests.config_map.name, requests.config_map.key, "requests", f"{DATA_FOLDER}/requests"
        )
    if requests is not None and requests.pvc is not None:
        made.claim(requests.pvc.claim_name, "requests", f"{DATA_FOLDER}/requests")
    return made
