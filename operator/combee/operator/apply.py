"""Make a ClusterPlan true. Every write is asked of the fence first, and harmless when it is made twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from combee import names
from combee.api.run import PromptLearningRun
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.accounts import account_objects
from combee.objects.engines import check_model_cache, engine_objects, prefetch_job
from combee.objects.isolation import isolation
from combee.objects.jobs import step_job
from combee.objects.plans import plan_config, run_config
from combee.objects.rollouts import rollout_job, rollout_service
from combee.objects.types import Settings
from combee.observe.runs import owned
from combee.plan.cluster.decide import ClusterPlan, JobWish
from combee.plan.cluster.diagnose import still_at_work
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.rollouts import RolloutsWish
from combee.plan.cluster.seen import Seen
from combee.plan.types import IterationPlan
from combee.records import Owner
from combee.times import rfc3339

KEEP_FINISHED_SECONDS = 900
"""How long a finished Job and its pods stay, for people who want to see their logs."""


class BeingDeletedError(ClusterError):
    """An earlier object of the name is on its way out: ask again in a moment."""

    code = "BeingDeleted"


@dataclass(slots=True)
class Executor:
    """Writes children of runs."""

    kube: Kube
    fence: Callable[[], None]
    """raises unless we may write."""
    make_accounts: bool = False
    """whether the accounts of step pods are ours to make; else an administrator made them."""
    made: Callable[[str], None] = lambda kind: None
    """told the kind of each object that was made."""
    _shown: set[str] = field(default_factory=set)
    """uids of runs whose ConfigMap is known to be there."""
    _settled: set[str] = field(default_factory=set)
    """namespaces whose accounts are known to be there."""

    async def freeze(self, plan: IterationPlan, owner: Owner) -> IterationPlan:
        """Write the plan, or read back and obey the one that is there."""
        body = plan_config(plan, owner)
        kept = await self._ensure(body, owner)
        return IterationPlan.from_json(kept["data"]["plan.json"].encode(), where=body["metadata"]["name"])

    async def follow(
        self, plan: ClusterPlan, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> None:
        """Delete, scale, make and let expire what the plan says. ClusterError when one fails: the rest
        is for the next tick."""
        for name in plan.delete:
            self.fence()
            await self.kube.delete("Job", owner.namespace, name)
        if self.make_accounts and owner.namespace not in self._settled and (plan.jobs or plan.engines):
            for body in account_objects(owner.namespace, settings):
                self.fence()
                await self.kube.create(body)
            self._settled.add(owner.namespace)
        for name, wish in plan.engines.items():
            await self._engine(name, wish, run, owner, settings, seen)
        for job in plan.jobs:
            if job.name not in seen.jobs:
                await self._start(job, run, owner, settings, seen)
        await self._rollouts(plan.rollouts, run, owner, settings, seen)
        for name in plan.expire:
            self.fence()
            await self.kube.patch(
                "Job", owner.namespace, name, {"spec": {"ttlSecondsAfterFinished": KEEP_FINISHED_SECONDS}}
            )

    async def _start(
        self, wish: JobWish, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> None:
        if owner.uid not in self._shown:
            await self._ensure(run_config(run, owner), owner)
            self._shown.add(owner.uid)
        await self._refuse_beside_another(wish, owner, seen)
        await self._ensure(
            step_job(run, owner, wish.step, attempt=wish.attempt, settings=settings),
            owner,
        )

    async def _refuse_beside_another(self, wish: JobWish, owner: Owner, seen: Seen) -> None:
        """Raises BeingDeletedError while a pod of an earlier Job of the step may be at work."""
        chosen = {
            names.LABEL_RUN_UID: owner.uid,
            names.LABEL_STEP: wish.step.kind,
            names.LABEL_ITERATION: str(wish.step.iteration),
        }
        labels = ",".join(f"{name}={value}" for name, value in chosen.items())
        pods = await self.kube.list("Pod", owner.namespace, labels=labels)
        now = rfc3339(seen.now)
        if left := still_at_work(pods, now):
            raise BeingDeletedError(
                "a pod of an earlier Job is still at work", where=f"Pod {left}", status=409
            )

    async def _rollouts(
        self, wish: RolloutsWish, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> None:
        """Jobs of the user's image, and the Service through which their pods find what is to be rolled out."""
        for name in wish.delete:
            self.fence()
            await self.kube.delete("Job", owner.namespace, name)
        if wish.remove:
            self.fence()
            await self.kube.delete("Service", owner.namespace, names.rollouts_name(owner.name, owner.uid))
        there = {job.attempt for job in seen.rollouts.values()}
        missing = [attempt for attempt in wish.attempts if attempt not in there]
        if not missing:
            return
        for policy in isolation(owner.namespace):
            # One of the name stays as it is: whoever may write policies here may allow more, too.
            self.fence()
            await self.kube.create(policy)
        service = await self._ensure(rollout_service(owner), owner)
        for attempt in missing:
            job = rollout_job(run, owner, attempt, str(service["spec"]["clusterIP"]), settings)
            await self._ensure(job, owner)

    async def _engine(
        self,
        name: str,
        wish: EngineWish,
        run: PromptLearningRun,
        owner: Owner,
        settings: Settings,
        seen: Seen,
    ) -> None:
        there = seen.engines.get(name)
        index = next(k for k, engine in enumerate(run.spec.engines) if engine.name == name)
        called = names.engine_name(owner.name, owner.uid, index, name)
        if wish.remove:
            self.fence()
            await self.kube.delete("Deployment", owner.namespace, called)
            await self.kube.delete("Service", owner.namespace, called)
        elif there is None and wish.replicas:
            if await self._weights_are_there(run, owner, index, settings):
                for body in engine_objects(run, owner, index, settings):
                    await self._ensure(body, owner)
        elif there is not None and there.replicas != wish.replicas:
            self.fence()
            await self.kube.patch(
                "Deployment", owner.namespace, called, {"spec": {"replicas": wish.replicas}}, part="scale"
            )

    async def _weights_are_there(
        self, run: PromptLearningRun, owner: Owner, index: int, settings: Settings
    ) -> bool:
        """Whether the servers may start; with a model cache a Job fetches the weights into it first."""
        engine = run.spec.engines[index]
        if engine.vllm.model_cache is not None and engine.vllm.replicas > 1:
            name = engine.vllm.model_cache.claim_name
            claim = await self.kube.get("PersistentVolumeClaim", owner.namespace, name)
            if claim is not None:
                check_model_cache(engine, claim["spec"].get("accessModes", ()), index)
        body = prefetch_job(run, owner, index, settings)
        if body is None:
            return True
        job = await self._ensure(body, owner)
        conditions = job.get("status", {}).get("conditions", ())
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    async def _ensure(self, body: Object, owner: Owner) -> Object:
        """The object, made or found. Adopted only when it was made for this very run."""
        self.fence()
        made = await self.kube.create(body)
        if made is not None:
            self.made(body["kind"])
            return made
        kind, name = body["kind"], body["metadata"]["name"]
        found: dict[str, Any] | None = await self.kube.get(kind, owner.namespace, name)
        if found is None or "deletionTimestamp" in found["metadata"]:
            raise BeingDeletedError("an earlier one is being deleted", where=f"{kind} {name}", status=409)
        if not owned(found, owner):
            raise ClusterError(
                "an object of this name is there that was not made for this run",
                where=f"{kind} {owner.namespace}/{name}",
                fix="Delete or rename it",
                status=409,
            )
        return found
