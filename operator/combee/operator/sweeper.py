"""Delete kept traffic after its retention: observe, decide, apply."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.accounts import account_objects
from combee.objects.sweep import sweep_job
from combee.objects.types import Settings
from combee.observe.sweep import see_kept
from combee.plan.sweep import SweepJob, SweepPlan, decide_sweep


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Makes the Jobs that sweep; ``keep`` may be called at any time and as often as needed."""

    kube: Kube
    settings: Settings

    async def keep(self, namespace: str, playbooks: Iterable[Object], now: float) -> bool:
        """Sweep a namespace, and return whether traffic is kept there or was until lately. This takes one
        list where there is nothing to do."""
        seen = await see_kept(self.kube, namespace, playbooks, secret_policy=self.settings.secret_policy)
        plan = decide_sweep(seen, now)
        await self._apply(plan, namespace, now)
        return plan.keeps

    async def _apply(self, plan: SweepPlan, namespace: str, now: float) -> None:
        """Carry out the plan. Where a Job of the name exists already, the Jobs it replaces are not deleted
        yet."""
        if plan.start:
            for body in account_objects(namespace, self.settings):
                await self.kube.create(body)
        for start in plan.start:
            if await self.kube.create(sweep_job(start.memory, namespace, now, self.settings)) is not None:
                await self._delete(namespace, start.replaces)
        await self._delete(namespace, plan.delete)
        for job, memory in plan.note:
            notes = sweep_job(memory, namespace, now, self.settings)["metadata"]["annotations"]
            await self.kube.patch("Job", namespace, job.name, {"metadata": {"annotations": notes}})

    async def _delete(self, namespace: str, jobs: Iterable[SweepJob]) -> None:
        for job in jobs:
            await self.kube.delete("Job", namespace, job.name, uid=job.uid)
