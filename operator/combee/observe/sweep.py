"""Read which traffic a namespace keeps: its Playbooks, the Jobs that remember it, and the claims they
name."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from combee.api.gateway import Gateway
from combee.api.stores import Store
from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.sweep import KEEPS, SELECTOR
from combee.observe.jobs import ended
from combee.plan.playbook.watch import mirrors
from combee.plan.sweep import Kept, Memory, SweepJob, SweepSeen
from combee.times import seconds_of


async def see_kept(
    kube: Kube, namespace: str, playbooks: Iterable[Object], *, secret_policy: bool
) -> SweepSeen:
    """Return the facts for ``decide_sweep``. This takes one list, and one read for each claim in which no
    Playbook keeps traffic now.

    Without ``secret_policy`` stores that need a Secret are left out: nothing has checked whether it may be
    mounted.
    """
    live, unread = _kept_now(playbooks, secret_policy=secret_policy)
    jobs = [_sweep_job(job) for job in await kube.list("Job", namespace, labels=SELECTOR)]
    readable = sorted((job for job in jobs if job is not None), key=lambda job: job.created)
    claims = {
        job.memory.store.pvc.claim_name
        for job in readable
        if job.memory.store.pvc is not None and job.memory.key not in live
    }
    missing_claims = [claim for claim in sorted(claims) if not await _is_there(kube, namespace, claim)]
    return SweepSeen(tuple(readable), live, frozenset(unread), frozenset(missing_claims))


def kept_of(playbook: Object) -> tuple[Store, Kept] | None:
    """Return where traffic of a Playbook is kept and for how long, or None where none is kept. Raises
    ValidationError when this release cannot read its gateway."""
    meta, spec = playbook["metadata"], playbook.get("spec") or {}
    if "deletionTimestamp" in meta:
        return None
    gateway = Gateway.model_validate((spec.get("delivery") or {}).get("gateway") or {})
    canary = spec.get("canary") or {}
    tended = gateway.enabled and (gateway.capture.enabled or mirrors(canary))
    if not tended and canary.get("mode") != "Replay":
        return None
    capture = gateway.capture
    return capture.store, Kept(meta["name"], capture.retention_seconds, tended=tended)


def _kept_now(playbooks: Iterable[Object], *, secret_policy: bool) -> tuple[dict[str, Memory], set[str]]:
    """Return by store the traffic that Playbooks keep now, and the Playbooks that this release cannot
    read."""
    by_store: dict[str, Memory] = {}
    unread: set[str] = set()
    for playbook in playbooks:
        try:
            keeping = kept_of(playbook)
        except ValidationError:
            unread.add(playbook["metadata"]["name"])
            continue
        if keeping is None or (keeping[0].secret_ref is not None and not secret_policy):
            continue
        store, kept = keeping
        memory = Memory(store, (kept,))
        earlier = by_store.get(memory.key)
        by_store[memory.key] = Memory(store, (*earlier.kept, kept)) if earlier else memory
    return by_store, unread


def _sweep_job(job: Object) -> SweepJob | None:
    """Return a Job in the form for the plan, or None for one that is being deleted or cannot be read."""
    meta = job["metadata"]
    memory = Memory.from_json((meta.get("annotations") or {}).get(KEEPS, ""))
    if memory is None or "deletionTimestamp" in meta:
        return None
    return SweepJob(
        name=meta["name"],
        uid=meta["uid"],
        created=seconds_of(meta["creationTimestamp"]),
        memory=memory,
        complete=ended(job, "Complete") is not None,
        over=bool(job["spec"].get("suspend")) or ended(job) is not None,
    )


async def _is_there(kube: Kube, namespace: str, claim: str) -> bool:
    raw = await kube.get("PersistentVolumeClaim", namespace, claim)
    return raw is not None and "deletionTimestamp" not in raw["metadata"]
