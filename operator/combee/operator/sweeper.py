"""See to it that kept traffic ends: also when its gateway is turned off, its store changed, or its Playbook deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from combee.api.gateway import Gateway
from combee.api.run import Store
from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.accounts import account_objects
from combee.objects.sweep import SELECTOR, SLOT_SECONDS, Kept, Memory, remembered, sweep_job
from combee.objects.types import Settings
from combee.times import seconds_of


@dataclass(frozen=True, slots=True)
class Sweeper:
    """``keep`` may be called at any time, as often as one likes."""

    kube: Kube
    fence: Callable[[], None]
    """raises unless we may write."""
    settings: Settings
    make_accounts: bool
    """whether accounts are made where they are needed; otherwise the chart has made them."""
    secret_policy: bool
    """whether the admission policy that guards Secrets is installed."""

    async def keep(self, namespace: str, playbooks: Iterable[Object], now: float) -> bool:
        """Whether anything is kept in a namespace, or was so lately. One list where nothing is to be done."""
        live, unread = self._live(playbooks)
        jobs: dict[str, list[Object]] = {}
        memories: dict[str, Memory] = {}
        for job in sorted(await self.kube.list("Job", namespace, labels=SELECTOR), key=_created):
            if (memory := Memory.of(job)) is not None and "deletionTimestamp" not in job["metadata"]:
                jobs.setdefault(memory.key, []).append(job)
                memories[memory.key] = memory
        found = False
        for key in memories.keys() | live.keys():
            mine = jobs.get(key, [])
            swept = max((_created(job) for job in mine if _is(job, "Complete")), default=0.0)
            before, store = (memories[key].kept, memories[key].store) if mine else ((), live[key].store)
            of_now = live[key].kept if key in live else ()
            memory = Memory(store, remembered(before, of_now, unread, now, swept))
            found |= await self._follow(namespace, memory, mine, now)
        return found

    def _live(self, playbooks: Iterable[Object]) -> tuple[dict[str, Memory], set[str]]:
        """By store, what more may come of; and the Playbooks that this release cannot read."""
        kept: dict[str, Memory] = {}
        unread: set[str] = set()
        for raw in playbooks:
            try:
                found = keeping(raw)
            except ValidationError:
                unread.add(raw["metadata"]["name"])
                continue
            if found is None or (found[0].secret_ref is not None and not self.secret_policy):
                continue
            memory = Memory(found[0], (found[1],))
            there = kept.get(memory.key)
            kept[memory.key] = Memory(found[0], (*there.kept, found[1])) if there else memory
        return kept, unread

    async def _follow(self, namespace: str, memory: Memory, jobs: list[Object], now: float) -> bool:
        """Make the store's next Job where it is time for it, or put down what is new; whether anything is kept."""
        if not memory.kept or (
            all(one.until for one in memory.kept) and not await self._there(namespace, memory)
        ):
            await self._delete(namespace, jobs)
            return False
        last = jobs[-1] if jobs else None
        if last is None or (not memory.tended and _over(last) and _slot(now) > _slot(_created(last))):
            for body in account_objects(namespace, self.settings) if self.make_accounts else ():
                self.fence()
                await self.kube.create(body)
            self.fence()
            if await self.kube.create(sweep_job(memory, namespace, now, self.settings)) is not None:
                await self._delete(namespace, jobs)
            return True
        await self._delete(namespace, jobs[:-1])
        if Memory.of(last) != memory:
            notes = sweep_job(memory, namespace, now, self.settings)["metadata"]["annotations"]
            self.fence()
            await self.kube.patch(
                "Job", namespace, last["metadata"]["name"], {"metadata": {"annotations": notes}}
            )
        return True

    async def _there(self, namespace: str, memory: Memory) -> bool:
        """Whether the store's claim is there: what was in one that was deleted has ended with it."""
        claim = memory.store.pvc
        if claim is None:
            return True
        found = await self.kube.get("PersistentVolumeClaim", namespace, claim.claim_name)
        return found is not None and "deletionTimestamp" not in found["metadata"]

    async def _delete(self, namespace: str, jobs: Iterable[Object]) -> None:
        for job in jobs:
            self.fence()
            await self.kube.delete("Job", namespace, job["metadata"]["name"], uid=job["metadata"]["uid"])


def keeping(playbook: Object) -> tuple[Store, Kept] | None:
    """Where traffic of a Playbook is kept, and for how long; None where none is. ValidationError when this version
    cannot read what it asks for."""
    meta, spec = playbook["metadata"], playbook.get("spec") or {}
    if "deletionTimestamp" in meta:
        return None
    gateway = Gateway.model_validate((spec.get("delivery") or {}).get("gateway") or {})
    mode = (spec.get("canary") or {}).get("mode")
    tended = gateway.enabled and (gateway.capture.enabled or mode == "Shadow")
    if not tended and mode != "Replay":
        return None
    capture = gateway.capture
    return capture.store, Kept(meta["name"], capture.retention_seconds, tended=tended)


def _created(job: Object) -> float:
    return seconds_of(job["metadata"]["creationTimestamp"])


def _slot(seconds: float) -> int:
    return int(seconds // SLOT_SECONDS)


def _is(job: Object, condition: str) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _over(job: Object) -> bool:
    """Whether it does nothing any more, or never did."""
    return bool(job["spec"].get("suspend")) or _is(job, "Complete") or _is(job, "Failed")
