"""Carry out a ClusterPlan. Every write may safely be repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from combee import names
from combee.api.run import PromptLearningRun
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.accounts import account_objects, isolation
from combee.objects.addresses import engine_name, shared_digest
from combee.objects.engines import (
    check_model_cache,
    engine_deployment,
    engine_objects,
    engine_service,
    prefetch_job,
)
from combee.objects.jobs import step_job
from combee.objects.meta import owned
from combee.objects.plans import plan_config, run_config
from combee.objects.queues import (
    ROLLOUTS,
    STEPS,
    given_back,
    placed,
    pods_ready,
    workload,
)
from combee.objects.rollouts import rollout_job, rollout_service
from combee.objects.types import Settings
from combee.objects.warm_pools import sandbox_claim, warm_pool
from combee.operator.sharing import ChangedError, SharedEngine, join, leave
from combee.plan.cluster.decide import ClusterPlan, JobWish, QueueWish
from combee.plan.cluster.diagnose import still_at_work
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.rollouts import RolloutsWish
from combee.plan.cluster.seen import Assigned, Seen
from combee.plan.types import Clocks, IterationPlan
from combee.records import Owner
from combee.times import rfc3339

KEEP_FINISHED_SECONDS = 900
"""How long a finished Job and its pods stay, for people who want to read their logs."""
_REFUSALS = (400, 403, 422)
"""What the API server answers about an object that it does not take: another try of the same is in vain."""


class RefusedPlaceError(ClusterError):
    """The API server does not take the run's Workload: a person must change something."""

    code = "RefusedPlace"


@dataclass(slots=True)
class Executor:
    """Writes the children of runs."""

    kube: Kube
    made: Callable[[str], None] = lambda kind: None
    """Called with the kind of each object that was made."""

    async def freeze(self, plan: IterationPlan, clocks: Clocks, owner: Owner) -> IterationPlan:
        """Write the plan, or read the one that was frozen before. Return the plan to follow."""
        body = plan_config(plan, clocks, owner)
        config_map = await self._ensure(body, owner)
        return IterationPlan.from_json(
            config_map["data"]["plan.json"].encode(), where=body["metadata"]["name"]
        )

    async def follow(
        self, plan: ClusterPlan, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> None:
        """Delete, scale, make and let expire what the plan names. Raises ClusterError when a write fails; the
        next tick does the rest."""
        for name in plan.delete:
            await self.kube.delete("Job", owner.namespace, name)
        down = [name for name, wish in plan.engines.items() if not wish.replicas]
        for name in down:
            # Whatever fails below, GPUs that nobody needs are given back.
            await self._engine(name, plan.engines[name], run, owner, settings, seen)
        if _pods_lack(plan, seen):
            await self._give_pods(plan, run, owner, settings)
        for name in sorted(plan.engines.keys() - set(down)):
            await self._engine(name, plan.engines[name], run, owner, settings, seen)
        for job in plan.jobs:
            if job.name not in seen.jobs:
                await self._start(job, run, owner, settings, seen, plan.memory.service_urls)
        await self._rollouts(plan.rollouts, run, owner, settings, seen)
        if plan.queue:
            await self._queue(plan.queue, run, owner, settings, seen)
        for name in plan.expire:
            await self.kube.patch(
                "Job", owner.namespace, name, {"spec": {"ttlSecondsAfterFinished": KEEP_FINISHED_SECONDS}}
            )

    async def _give_pods(
        self, plan: ClusterPlan, run: PromptLearningRun, owner: Owner, settings: Settings
    ) -> None:
        """Make what pods use and no step makes, where it is gone or was never there. A run may be in trouble
        for days: what is there is only read, and no object is posted in vain."""
        for body in account_objects(owner.namespace, settings):
            if await self._existing(body) is None:
                await self.kube.create(body)
        if plan.jobs:
            config_map = run_config(run, owner)
            existing = await self._existing(config_map)
            if existing is None:
                await self._ensure(config_map, owner)
            else:
                _check_owner(existing, owner)

    async def _start(
        self,
        wish: JobWish,
        run: PromptLearningRun,
        owner: Owner,
        settings: Settings,
        seen: Seen,
        services: Mapping[str, str],
    ) -> None:
        await self._refuse_beside_another(wish, owner, seen)
        job = step_job(run, owner, wish.step, attempt=wish.attempt, settings=settings, services=services)
        await self._ensure(placed(job, _assigned(seen, STEPS)), owner)

    async def _queue(
        self, wish: QueueWish, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> None:
        """Take a place in the run's queue, leave it, or write into it. What was read before somebody else
        wrote is written by the next tick."""
        name, now = names.workload_name(owner.name, owner.uid), rfc3339(seen.now)
        if wish in ("Leave", "GiveBack") and still_at_work(await self._pods(run, owner, settings), now):
            return
        if wish == "Leave":
            await self.kube.delete("Workload", owner.namespace, name)
        elif wish == "Join":
            for index in range(len(run.spec.engines)):
                # A run that is refused later would keep its place.
                await self._check_cache(run, owner, index)
            priority = seen.queue.priority if seen.queue is not None else 0
            try:
                await self._ensure(workload(run, owner, settings, priority), owner)
            except ClusterError as error:
                if error.status not in _REFUSALS:
                    raise
                raise RefusedPlaceError(
                    f"the API server does not take the run's Workload ({error.what})",
                    where=error.where,
                    fix="Mend what it names, or delete the run and apply one that asks for less",
                    status=error.status,
                ) from None
        elif (place := await self.kube.get("Workload", owner.namespace, name)) is not None:
            patch = given_back(place, now) if wish == "GiveBack" else pods_ready(place, now)
            await self.kube.patch("Workload", owner.namespace, name, patch, part="status")

    async def _pods(self, run: PromptLearningRun, owner: Owner, settings: Settings) -> list[Object]:
        """Return the pods of a run, and those of its shared engines that were taken down."""
        labels = [f"{names.LABEL_RUN_UID}={owner.uid}"]
        for index, engine in enumerate(run.spec.engines):
            name = engine_name(run.spec, owner, index, settings)
            if engine.shared and await self.kube.get("Deployment", owner.namespace, name) is None:
                labels.append(f"{names.LABEL_SHARED}={shared_digest(run.spec, engine, settings)}")
        return [pod for one in labels for pod in await self.kube.list("Pod", owner.namespace, labels=one)]

    async def _refuse_beside_another(self, wish: JobWish, owner: Owner, seen: Seen) -> None:
        """Raise ChangedError while a pod of an earlier Job of the step may be at work."""
        wanted_labels = {
            names.LABEL_RUN_UID: owner.uid,
            names.LABEL_STEP: wish.step.kind,
            names.LABEL_ITERATION: str(wish.step.iteration),
        }
        labels = ",".join(f"{name}={value}" for name, value in wanted_labels.items())
        pods = await self.kube.list("Pod", owner.namespace, labels=labels)
        now = rfc3339(seen.now)
        if pod_name := still_at_work(pods, now):
            raise ChangedError(
                "a pod of an earlier Job is still at work", where=f"Pod {pod_name}", status=409
            )

    async def _rollouts(
        self, wish: RolloutsWish, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> None:
        """Delete or make the Jobs of the user's image, or claims and their pool, and the Service through
        which their pods find rollouts."""
        name = names.rollouts_name(owner.name, owner.uid)
        for gone in wish.delete:
            await self.kube.delete(seen.rollouts[gone].kind, owner.namespace, gone)
        if seen.pool and not wish.pool:
            # The pool last: it is what says that there is something to delete.
            await self.kube.delete("SandboxTemplate", owner.namespace, name)
            await self.kube.delete("SandboxWarmPool", owner.namespace, name)
        if wish.remove:
            await self.kube.delete("Service", owner.namespace, name)
        attempts = {job.attempt for job in seen.rollouts.values()}
        missing = [attempt for attempt in wish.attempts if attempt not in attempts]
        if wish.pool and not seen.pool:
            for body in warm_pool(run, owner, await self._desks(owner), settings):
                await self._ensure(body, owner)
        for attempt in missing:
            if wish.kind == "SandboxClaim":
                made = sandbox_claim(owner, attempt, seen.now, settings)
            else:
                job = rollout_job(run, owner, attempt, await self._desks(owner), settings)
                made = placed(job, _assigned(seen, ROLLOUTS))
            await self._ensure(made, owner)

    async def _desks(self, owner: Owner) -> str:
        """Return the address at which a run's pods of rollouts find desks, and nothing else."""
        for policy in isolation(owner.namespace):
            # One of the name stays as it is: whoever may write policies here may allow more, too.
            await self.kube.create(policy)
        service = await self._ensure(rollout_service(owner), owner)
        return str(service["spec"]["clusterIP"])

    async def _engine(
        self,
        name: str,
        wish: EngineWish,
        run: PromptLearningRun,
        owner: Owner,
        settings: Settings,
        seen: Seen,
    ) -> None:
        engine_seen = seen.engines.get(name)
        index = next(k for k, engine in enumerate(run.spec.engines) if engine.name == name)
        object_name = engine_name(run.spec, owner, index, settings)
        shared = run.spec.engines[index].shared
        if wish.remove and name in seen.fetching:
            await self.kube.delete("Job", owner.namespace, names.prefetch_name(owner.name, owner.uid, index))
        if shared and not wish.replicas:
            if engine_seen is not None:
                await leave(self.kube, object_name, owner)
        elif shared and (engine_seen is None or not engine_seen.reachable):
            await self._join(run, owner, index, settings, seen)
        elif wish.remove:
            await self.kube.delete("Deployment", owner.namespace, object_name)
            await self.kube.delete("Service", owner.namespace, object_name)
        elif engine_seen is None and wish.replicas:
            if await self._weights_are_there(run, owner, index, settings, seen):
                service, deployment = engine_objects(run, owner, index, settings)
                await self._ensure(service, owner)
                await self._ensure(
                    placed(deployment, _assigned(seen, names.pod_set_name(index, name))), owner
                )
        elif engine_seen is not None and engine_seen.replicas != wish.replicas:
            await self.kube.patch(
                "Deployment",
                owner.namespace,
                object_name,
                {"spec": {"replicas": wish.replicas}},
                part="scale",
            )

    async def _join(
        self, run: PromptLearningRun, owner: Owner, index: int, settings: Settings, seen: Seen
    ) -> None:
        name = run.spec.engines[index].name
        engine = SharedEngine(
            placed(
                engine_deployment(run, owner, index, settings),
                _assigned(seen, names.pod_set_name(index, name)),
            ),
            partial(engine_service, run, owner, index, settings),
        )
        weights = partial(self._weights_are_there, run, owner, index, settings, seen)
        for kind in await join(self.kube, engine, owner, weights):
            self.made(kind)

    async def _check_cache(self, run: PromptLearningRun, owner: Owner, index: int) -> None:
        """Raise ManifestError where an engine's pods cannot share the claim that its weights are in."""
        engine = run.spec.engines[index]
        if engine.server.model_cache is not None and engine.server.replicas > 1:
            name = engine.server.model_cache.claim_name
            claim = await self.kube.get("PersistentVolumeClaim", owner.namespace, name)
            if claim is not None:
                check_model_cache(engine, claim["spec"].get("accessModes", ()), index)

    async def _weights_are_there(
        self, run: PromptLearningRun, owner: Owner, index: int, settings: Settings, seen: Seen
    ) -> bool:
        """Return whether the servers may start. With a model cache a Job fetches the weights into it
        first."""
        engine = run.spec.engines[index]
        await self._check_cache(run, owner, index)
        if engine.name in seen.fetching:
            return False
        body = prefetch_job(run, owner, index, settings)
        if body is None:
            return True
        job = await self._ensure(placed(body, _assigned(seen, names.pod_set_name(index, engine.name))), owner)
        conditions = job.get("status", {}).get("conditions", ())
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    async def _ensure(self, body: Object, owner: Owner) -> Object:
        """Make the object, or find it made, and return it. Raises ClusterError when the existing one was not
        made for this very run."""
        created = await self.kube.create(body)
        if created is not None:
            self.made(body["kind"])
            return created
        existing = await self._existing(body)
        if existing is None:
            raise _going(body)
        _check_owner(existing, owner)
        return existing

    async def _existing(self, body: Object) -> Object | None:
        meta = body["metadata"]
        return await self.kube.get(body["kind"], meta["namespace"], meta["name"])


def _check_owner(existing: Object, owner: Owner) -> None:
    """Raise ClusterError for an object that is being deleted or was not made for this very run."""
    if "deletionTimestamp" in existing["metadata"]:
        raise _going(existing)
    if not owned(existing, owner):
        raise ClusterError(
            "an object of this name is there that was not made for this run",
            where=f"{existing['kind']} {owner.namespace}/{existing['metadata']['name']}",
            fix="Delete or rename it",
            status=409,
        )


def _going(body: Object) -> ChangedError:
    return ChangedError(
        "an earlier one is being deleted", where=f"{body['kind']} {body['metadata']['name']}", status=409
    )


def _assigned(seen: Seen, pods: str) -> Assigned | None:
    """Return where the run's queue sends a set of its pods; None where it names none."""
    return seen.queue.assigned.get(pods) if seen.queue is not None else None


def _pods_lack(plan: ClusterPlan, seen: Seen) -> bool:
    """Return whether pods are to be made, or some that should be there do not come up. Their accounts or the
    run's ConfigMap may be gone then: whoever deletes them, or the namespace, tells nobody."""
    engines = {name for name, wish in plan.engines.items() if wish.replicas}
    attempts = {job.attempt for job in seen.rollouts.values()}
    if not (
        {job.name for job in plan.jobs} <= seen.jobs.keys()
        and engines <= seen.engines.keys()
        and attempts.issuperset(plan.rollouts.attempts)
    ):
        return True
    troubles = (
        *(job.trouble for job in seen.jobs.values()),
        *(engine.trouble for engine in seen.engines.values()),
        *(job.trouble for job in seen.rollouts.values()),
        *seen.fetching.values(),
    )
    return any(troubles)
