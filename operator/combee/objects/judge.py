"""The Job that judges a canary: mirrored pairs, or requests that it replays first; or that asks Prometheus. Pure.

Made once and never repaired; one that fails is followed by another, later. It alone holds the evaluator's key, or the
token for Prometheus, and it holds no key of the gateway's clients. Its account may make ConfigMaps and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from combee import names
from combee.api.common import NameRef, SecretKeyRef
from combee.api.gateway import Gateway
from combee.api.playbook import Canary
from combee.api.playbook_status import CanaryTest
from combee.errors import BugError
from combee.objects.jobs import CONTAINER, GRACE_SECONDS
from combee.objects.playbooks import playbook_reference
from combee.objects.pods import SCRATCH, container, plain, pod_spec, scratch
from combee.objects.types import Object, Owner, Settings
from combee.objects.volumes import DATA_FOLDER, STORE_FOLDER, Mounts
from combee.plan.playbook.judging import SLOT_SECONDS, JudgeTask, Span

PLAYBOOKS_FOLDER = "/etc/combee/playbooks"
MADE_OF = f"{names.API_GROUP}/made-of"
"""annotation: digest of what the Job was told, what is judged already aside."""
PAIRS_BEFORE = f"{names.API_GROUP}/pairs-before"
"""annotation: how many pairs were judged when it was made."""
DEADLINE_SECONDS = 900
"""its own limit is shorter: this one is for pods that cannot start."""
KEPT_SECONDS = 1500
"""how long a finished one stays: the next one is made by when the last ones were."""


@dataclass(frozen=True, slots=True)
class JudgeWish:
    """A test that must be judged."""

    owner: Owner
    canary: Canary
    gateway: Gateway
    test: CanaryTest
    digest: str
    """of the version under test."""
    contents: Mapping[str, str]
    """digest -> ConfigMap of that version's content."""
    done: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    pairs: int = 0
    """judged so far."""
    since: int = 0
    """when the test began, in seconds since 1970."""
    begins: int = 0
    """with Prometheus: when window 0 begins, in seconds since 1970."""
    first: int = 0
    """with Prometheus: the first window that was not asked for yet."""

    @property
    def replays(self) -> bool:
        """Whether requests are asked again first."""
        return self.test.mode == "Replay"

    def task(self) -> JudgeTask:
        """What the pod is told."""
        about: dict[str, Any] = {
            "playbook": self.owner.name,
            "namespace": self.owner.namespace,
            "uid": self.owner.uid,
            "test": self.test.id,
            "tested": self.digest,
            "against": self.test.against,
        }
        if self.canary.prometheus is not None:
            return JudgeTask(
                **about,
                mode="Prometheus",
                prometheus=self.canary.prometheus,
                begins=self.begins,
                first=self.first,
            )
        if self.canary.evaluator is None:
            raise BugError("a canary without evaluator passed admission", where=self.owner.name)
        return JudgeTask(
            **about,
            mode="Replay" if self.replays else "Shadow",
            evaluator=self.canary.evaluator,
            store=self.gateway.capture.store.uri or STORE_FOLDER,
            retention=self.gateway.capture.retention_seconds,
            since=self.since,
            upstream=self.gateway.upstream if self.replays else None,
            requests=self.canary.replay.requests if self.replays else None,
            done=dict(self.done),
        )

    def made_of(self) -> str:
        """Digest of what the pod is told, what is judged already aside, and of where its Secrets are."""
        told = self.task().model_copy(update={"done": {}, "first": 0, "since": 0})
        text = f"{told.model_dump_json()}{self.gateway.capture.store.model_dump_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def secrets_of(canary: Canary, gateway: Gateway) -> dict[str, SecretKeyRef | NameRef]:
    """use -> Secret, or one key of it, that the pod is given."""
    if canary.prometheus is not None:
        token = canary.prometheus.token_secret_ref
        return {"prometheus": token} if token is not None else {}
    evaluator, upstream, requests = canary.evaluator, gateway.upstream, canary.replay.requests
    refs: dict[str, SecretKeyRef | NameRef | None] = {
        "evaluator": evaluator.api_key_secret_ref if evaluator is not None else None,
        "store": gateway.capture.store.secret_ref,
    }
    if canary.mode == "Replay":
        refs["upstream"] = upstream.api_key_secret_ref if upstream is not None else None
        refs["requests"] = requests.secret_ref if requests is not None else None
    return {use: ref for use, ref in refs.items() if ref is not None}


def judge_job(wish: JudgeWish, now: float, settings: Settings) -> Object:
    """The Job for the stretch of time that ``now`` (seconds since 1970) is in; there is one at most."""
    digest = hashlib.sha256(f"{wish.owner.uid}\n{wish.test.id}".encode()).hexdigest()
    labels = names.canary_labels(wish.owner.name, wish.test.id)
    task = wish.task()
    mounted = _mounts(wish, settings)
    judge = container(
        CONTAINER,
        image=settings.worker_image,
        command=["combee-worker", "judge"],
        env=[
            plain("COMBEE_JUDGE", task.model_dump_json(by_alias=True, exclude_none=True)),
            plain("COMBEE_LOG_LEVEL", settings.log_level),
            plain("HOME", SCRATCH),
        ],
        mounts=mounted.mounts,
        resources=dict(settings.worker_resources),
        settings=settings,
    )
    spec = pod_spec(
        judge,
        volumes=mounted.volumes,
        account=settings.publish_account,
        token=True,
        restart="Never",
        grace_seconds=GRACE_SECONDS,
        settings=settings,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.judge_name(wish.owner.name, digest, int(now // SLOT_SECONDS)),
            "namespace": wish.owner.namespace,
            "labels": labels,
            "annotations": {MADE_OF: wish.made_of(), PAIRS_BEFORE: str(wish.pairs)},
            "ownerReferences": [playbook_reference(wish.owner)],
        },
        "spec": {
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _mounts(wish: JudgeWish, settings: Settings) -> Mounts:
    """Only what the mode needs: a pod that judges mirrored pairs sees no playbook and no upstream's key."""
    made = Mounts()
    volume, mount = scratch(settings.worker_scratch)
    made.add(volume, mount["mountPath"], read_only=False)
    store = wish.gateway.capture.store
    if store.pvc is not None and wish.canary.prometheus is None:
        made.claim(store.pvc.claim_name, "store", STORE_FOLDER, read_only=False)
    for use, ref in secrets_of(wish.canary, wish.gateway).items():
        made.secret(ref.name, use, (ref.key,) if isinstance(ref, SecretKeyRef) else ())
    if not wish.replays:
        return made
    for side, digest in (("tested", wish.digest), ("against", wish.test.against)):
        if digest:
            folder = f"{PLAYBOOKS_FOLDER}/{side}"
            held = wish.contents[digest]
            made.config_map(held, names.PLAYBOOK_KEY, f"playbook-{side}", folder, maybe=names.METHOD_KEY)
    requests = wish.canary.replay.requests
    if requests is not None and requests.config_map is not None:
        made.config_map(
            requests.config_map.name, requests.config_map.key, "requests", f"{DATA_FOLDER}/requests"
        )
    if requests is not None and requests.pvc is not None:
        made.claim(requests.pvc.claim_name, "requests", f"{DATA_FOLDER}/requests")
    return made
