"""The Job that ends kept traffic which no gateway looks after, and what is known of it. Pure.

There is one for each store, without owner: it outlives Playbooks and their gateway. The last one stays when it is done,
for its annotation is the operator's memory of whose traffic is in the store and until when. It names the store's Secret;
who may write Jobs may mount any Secret of the namespace anyway.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from combee import names
from combee.api.run import Store
from combee.objects.jobs import CONTAINER, GRACE_SECONDS
from combee.objects.pods import SCRATCH, container, plain, pod_spec, scratch
from combee.objects.types import Object, Settings
from combee.objects.volumes import STORE_FOLDER, Mounts

COMPONENT = "sweep"
SELECTOR = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},{names.LABEL_COMPONENT}={COMPONENT}"
KEEPS = f"{names.API_GROUP}/keeps"
"""annotation: what is kept in the Job's store."""
SLOT_SECONDS = 3600
"""between two sweeps of a store."""
MARGIN_SECONDS = 900
"""for what is written last, once nothing more is to be kept."""
GIVE_UP_SECONDS = 86_400
"""after everything is over: a store that cannot be reached until then is left as it is."""
DEADLINE_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a Playbook's traffic in one store."""

    playbook: str
    retention_seconds: float
    until: float = 0.0
    """nothing more comes, and from then on nothing is left, in seconds since 1970; 0: more may come."""
    tended: bool = False
    """whether a gateway looks after it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A store, and what is kept in it."""

    store: Store
    kept: tuple[Kept, ...]

    @property
    def key(self) -> str:
        """What tells stores apart."""
        return hashlib.sha256(self.store.model_dump_json().encode()).hexdigest()[:8]

    @property
    def tended(self) -> bool:
        """Whether gateways look after all of it."""
        return all(one.tended for one in self.kept)

    def to_json(self) -> str:
        """As the annotation has it; equal ones are equal."""
        kept = [[one.playbook, one.retention_seconds, one.until, one.tended] for one in self.kept]
        store = self.store.model_dump(mode="json", by_alias=True, exclude_none=True)
        return json.dumps({"store": store, "kept": kept}, sort_keys=True)

    @classmethod
    def of(cls, job: Object) -> Memory | None:
        """What a Job says; None where it cannot be read."""
        notes = job["metadata"].get("annotations") or {}
        try:
            raw = json.loads(notes.get(KEEPS, ""))
            kept = tuple(Kept(str(a), float(b), float(c), bool(d)) for a, b, c, d in raw["kept"])
            return cls(Store.model_validate(raw["store"]), kept)
        except (ValidationError, ValueError, TypeError, KeyError):
            return None


def remembered(
    before: Iterable[Kept], live: Iterable[Kept], unread: Collection[str], now: float, swept: float
) -> tuple[Kept, ...]:
    """What is kept in a store now, by Playbook.

    ``before``: as it was remembered. ``live``: of which more may come. ``unread``: Playbooks that cannot be read, of
    which nothing is forgotten. ``swept``: when the last sweep began that came to a good end.
    """
    found = {one.playbook: one for one in live}
    for one in before:
        if one.playbook in found:
            continue
        if one.playbook in unread:
            found[one.playbook] = one
            continue
        until = one.until or round(now + one.retention_seconds + MARGIN_SECONDS)
        if swept < until and now < until + GIVE_UP_SECONDS:
            found[one.playbook] = replace(one, until=until, tended=False)
    return tuple(found[name] for name in sorted(found))


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
