"""When kept traffic ends: which stores still hold traffic, and what their Jobs do next. Pure.

The operator has no memory of its own. One Job for each store carries it in an annotation: whose traffic is in
the store and until when, also after a gateway was turned off, its store was changed or its Playbook was
deleted.

    Playbooks, sweep Jobs, claims -> observe -> SweepSeen -> decide_sweep(seen, now) -> SweepPlan -> apply
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace

from combee.algo.grouping import grouped
from combee.api.stores import Store
from combee.jsonread import MALFORMED, finite, read_json

SLOT_SECONDS = 3600
"""The time between two sweeps of a store."""
MARGIN_SECONDS = 900
"""The time left for the last writes once nothing more is to be kept."""
GIVE_UP_SECONDS = 86_400
"""A store that cannot be reached for this long after everything in it is over is left as it is."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a Playbook's traffic in one store."""

    playbook: str
    retention_seconds: float
    until: float = 0.0
    """when nothing of it is left any more, in seconds since 1970; 0 while more may come."""
    tended: bool = False
    """whether a gateway looks after it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A store, and what is kept in it."""

    store: Store
    kept: tuple[Kept, ...]

    @property
    def key(self) -> str:
        """A short digest that tells stores apart."""
        return hashlib.sha256(self.store.model_dump_json().encode()).hexdigest()[:8]

    @property
    def tended(self) -> bool:
        return all(traffic.tended for traffic in self.kept)

    def to_json(self) -> str:
        """Return the annotation's text; equal memories have equal texts."""
        kept = [list(astuple(traffic)) for traffic in self.kept]
        store = self.store.model_dump(mode="json", by_alias=True, exclude_none=True)
        return json.dumps({"store": store, "kept": kept}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Memory | None:
        """Return what an annotation says, or None where it cannot be read."""
        try:
            raw = read_json(text)
            kept = tuple(Kept(str(a), finite(b), finite(c), bool(d)) for a, b, c, d in raw["kept"])
            return cls(Store.model_validate(raw["store"]), kept)
        except MALFORMED:
            return None


def remembered(
    before: Iterable[Kept], live: Iterable[Kept], unread: Collection[str], now: float, swept: float
) -> tuple[Kept, ...]:
    """Return what is kept in a store now, sorted by Playbook.

    ``before``: what was remembered. ``live``: the traffic of which more may come. ``unread``: Playbooks that
    cannot be read, so that nothing of theirs is forgotten. ``swept``: when the last successful sweep began.
    """
    current = {traffic.playbook: traffic for traffic in live}
    for traffic in before:
        if traffic.playbook in current:
            continue
        until = traffic.until or round(now + traffic.retention_seconds + MARGIN_SECONDS)
        if traffic.playbook in unread:
            current[traffic.playbook] = traffic
        elif swept < until and now < until + GIVE_UP_SECONDS:
            current[traffic.playbook] = replace(traffic, until=until, tended=False)
    return tuple(current[name] for name in sorted(current))


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A Job that sweeps a store, or only remembers what is in it."""

    name: str
    uid: str
    created: float
    """when it was created, in seconds since 1970."""
    memory: Memory
    complete: bool = False
    over: bool = False
    """whether it is complete, failed or suspended, and so does nothing any more."""


@dataclass(frozen=True, slots=True)
class SweepSeen:
    """What a namespace keeps of traffic, at one moment."""

    jobs: tuple[SweepJob, ...] = ()
    """the oldest first."""
    live: Mapping[str, Memory] = field(default_factory=dict)
    """the stores into which more may come, as today's Playbooks ask for it, by ``Memory.key``."""
    unread: frozenset[str] = frozenset()
    """Playbooks that this release cannot read."""
    lost_claims: frozenset[str] = frozenset()
    """claims that are gone, and with them what they held."""


@dataclass(frozen=True, slots=True)
class SweepStart:
    """A store's next Job, and the Jobs that are deleted once it is made."""

    memory: Memory
    replaces: tuple[SweepJob, ...] = ()


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What is done about a namespace's kept traffic, in this order."""

    start: tuple[SweepStart, ...] = ()
    delete: tuple[SweepJob, ...] = ()
    note: tuple[tuple[SweepJob, Memory], ...] = ()
    """Jobs whose annotation is to change, with what it is to say."""
    keeps: bool = False
    """whether anything is kept, or was until lately, so that the namespace is looked at again."""


def decide_sweep(seen: SweepSeen, now: float) -> SweepPlan:
    """Return what each store's Job does next. ``now``: seconds since 1970.

    A store is swept once in a SLOT_SECONDS while something in it is to end and no gateway looks after it.
    """
    jobs = grouped(seen.jobs, lambda job: job.memory.key)
    plans = [_store_plan(seen, jobs.get(key, []), key, now) for key in jobs.keys() | seen.live.keys()]
    return SweepPlan(
        start=tuple(start for plan in plans for start in plan.start),
        delete=tuple(job for plan in plans for job in plan.delete),
        note=tuple(note for plan in plans for note in plan.note),
        keeps=any(plan.keeps for plan in plans),
    )


def _store_plan(seen: SweepSeen, jobs: list[SweepJob], key: str, now: float) -> SweepPlan:
    """Return the plan of one store, of which there are ``jobs``."""
    memory = _memory_now(seen, jobs, key, now)
    ending = all(kept.until for kept in memory.kept)
    claim = memory.store.pvc.claim_name if memory.store.pvc is not None else None
    if not memory.kept or (ending and claim in seen.lost_claims):
        return SweepPlan(delete=tuple(jobs))
    if not jobs:
        return SweepPlan(start=(SweepStart(memory),), keeps=True)
    last = jobs[-1]
    if not memory.tended and last.over and _slot(now) > _slot(last.created):
        return SweepPlan(start=(SweepStart(memory, replaces=tuple(jobs)),), keeps=True)
    note = () if last.memory == memory else ((last, memory),)
    return SweepPlan(delete=tuple(jobs[:-1]), note=note, keeps=True)


def _memory_now(seen: SweepSeen, jobs: list[SweepJob], key: str, now: float) -> Memory:
    """Return what is kept in one store: what its last Job remembers, and what today's Playbooks say."""
    swept = max((job.created for job in jobs if job.complete), default=0.0)
    before = jobs[-1].memory if jobs else Memory(seen.live[key].store, ())
    live = seen.live.get(key, Memory(before.store, ()))
    return Memory(before.store, remembered(before.kept, live.kept, seen.unread, now, swept))


def _slot(seconds: float) -> int:
    return int(seconds // SLOT_SECONDS)
