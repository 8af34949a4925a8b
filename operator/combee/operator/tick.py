"""One tick of one run: read everything anew, decide, carry the plan out, write the status in one patch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from combee import __version__
from combee.api.conditions import Reason
from combee.api.digests import manifest_digest
from combee.api.run import PromptLearningRun
from combee.api.status import RunStatus
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import BugError, ClusterError, ManifestError
from combee.names import RUN_KIND, workload_name
from combee.objects.engines import check_run
from combee.objects.types import Settings
from combee.observe.nodes import Nodes
from combee.observe.runs import Observer
from combee.operator.apply import Executor, RefusedPlaceError
from combee.operator.sharing import ChangedError
from combee.operator.statuspatch import status_patch
from combee.operator.tell import Teller
from combee.operator.versions import Versions, with_models, with_start
from combee.plan.cluster.accept import Policy, RefusedError, accept, asks_for_reasons, question
from combee.plan.cluster.decide import ClusterPlan, Run, decide_cluster
from combee.plan.cluster.happenings import happenings
from combee.plan.cluster.hardware import with_hardware
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import QueueSeen, Seen
from combee.plan.cluster.status import About, refused_status, run_status
from combee.plan.decide import Identity
from combee.plan.types import IterationPlan
from combee.records import Owner
from combee.times import rfc3339

SOON_SECONDS = 1.0
NEVER = -1.0
MAX_ROUNDS = 8
"""The most plans that one tick freezes; usually it freezes one."""

Key = tuple[str, str]
"""The (namespace, name) of a run."""


@dataclass(slots=True)
class Ticker:
    """Runs the ticks of all runs, with the parts that a tick needs."""

    kube: Kube
    observer: Observer
    executor: Executor
    teller: Teller
    versions: Versions
    nodes: Nodes
    settings: Settings
    policy: Policy
    seen: Callable[[Key, RunStatus | None], None] = lambda key, status: None
    """Called with each current status, or None when the run is gone; for metrics."""
    clock: Callable[[], float] = time.time

    async def tick(self, key: Key) -> float | None:
        """Do one tick. Return after how many seconds to tick again; None: at the resync, NEVER: when
        woken."""
        namespace, name = key
        raw = await self.kube.get(RUN_KIND, namespace, name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            # The run owns its objects: the cluster deletes them, with or without the operator.
            self.seen(key, None)
            return NEVER
        before = RunStatus.model_validate(raw.get("status") or {})
        self.seen(key, before)
        generation = raw["metadata"].get("generation", 0)
        if _at_rest(before) and before.observed_generation == generation:
            return NEVER
        try:
            run = accept(raw, self.policy, over=before.phase.over)
            if not before.phase.over:
                check_run(run, self.settings, started=bool(before.start_time))
        except RefusedError as error:
            return await self._refuse(raw, before, error)
        except ManifestError as error:
            return await self._refuse(raw, before, _refusal(error))
        return await self._go_on(key, raw, run, before)

    async def _refuse(self, raw: Object, before: RunStatus, error: RefusedError) -> float | None:
        if before.phase.over:
            # What it came to stays, whatever is allowed by now. What it still holds may be let go of later.
            return NEVER if _at_rest(before) or await self._holds_nothing(raw, before) else None
        after = refused_status(
            before, raw["metadata"].get("generation", 0), error.reason, str(error), rfc3339(self.clock())
        )
        await self._write(raw, before, after)
        return NEVER

    async def _holds_nothing(self, raw: Object, before: RunStatus) -> bool:
        """Return whether nothing is left of a run that is over: no step under way and no place in a queue,
        whatever its status says, which is not written anew while its manifest cannot be read."""
        meta = raw["metadata"]
        name = workload_name(meta["name"], meta["uid"])
        try:
            return not before.steps and await self.kube.get("Workload", meta["namespace"], name) is None
        except ClusterError as error:
            if error.status != 403:
                raise
            return False

    async def _go_on(self, key: Key, raw: Object, run: PromptLearningRun, before: RunStatus) -> float | None:
        meta = raw["metadata"]
        owner = Owner(meta["name"], meta["namespace"], meta["uid"])
        submitted = run
        memory = Memory.from_status(before.state)
        if not before.start_time:
            memory = replace(memory, nodes=await self.nodes.gpus_of(run.spec, self.clock()))
        looks = None
        if asks_for_reasons(memory, run.spec, self.policy):
            looks = await self.versions.looks(run.spec, owner.namespace)
        try:
            question(run.spec, self.policy, memory.nodes, started=bool(before.start_time), looks=looks)
        except RefusedError as error:
            # Its Playbook or the nodes may have the answer by then, and neither wakes the run.
            await self._refuse(raw, before, error)
            return None
        started = await self.versions.started(run, owner, memory)
        if started is not memory:
            # Written before any action: a tick that starts again must not start from another version.
            await self._write(raw, before, before.model_copy(update={"state": started.to_status()}))
            return 0.0
        run = with_start(run, memory)
        about_run = Run(Identity(owner.name, owner.uid[:8]), run.spec)
        settings, memory = self._pinned(memory)
        seen = await self.observer.see(
            about_run, owner, memory, settings, suspend=run.spec.suspend, now=self.clock()
        )
        seen = replace(seen, looks=looks)
        try:
            plan, seen = await self._decide(about_run, owner, memory, seen)
            run = with_models(run, plan.memory)
            if refused := await self._follow(plan, run, owner, settings, seen):
                seen = replace(seen, queue=QueueSeen(lacks=refused))
                plan = decide_cluster(about_run, memory, seen)
            if plan.memory.published and not before.published and run.spec.playbook_ref is not None:
                await self.versions.announce(run, owner, plan.memory)
        except ChangedError:
            return SOON_SECONDS
        except ManifestError as error:
            return await self._refuse(raw, before, _refusal(error))
        about = About(
            spec=with_hardware(run.spec, plan.memory.nodes),
            generation=meta.get("generation", 0),
            manifest_digest=manifest_digest(submitted),
            image=settings.worker_image,
            algorithm=__version__,
            when=rfc3339,
        )
        await self._write(raw, before, run_status(about, before, plan, seen))
        return plan.wake_after_seconds

    async def _decide(self, run: Run, owner: Owner, memory: Memory, seen: Seen) -> tuple[ClusterPlan, Seen]:
        """Decide, and freeze plans meanwhile. A plan that was frozen before, by any operator, is followed."""
        seen = replace(seen, warm_pools=seen.warm_pools and of_this_release(memory, self.settings))
        for _ in range(MAX_ROUNDS):
            plan = decide_cluster(run, memory, seen)
            if plan.freeze is None:
                return plan, seen
            freeze = for_pods(plan.freeze, memory, self.settings)
            frozen = await self.executor.freeze(freeze, plan.clocks, owner)
            seen = replace(seen, plans={**seen.plans, frozen.iteration: frozen})
        raise BugError(f"{MAX_ROUNDS} plans in one tick", where=owner.name)

    async def _follow(
        self, plan: ClusterPlan, run: PromptLearningRun, owner: Owner, settings: Settings, seen: Seen
    ) -> str:
        """Carry the plan out. Return why the run cannot have a place in its queue, where that is refused: it
        is asked for again at the resync, since what refuses it may be mended."""
        try:
            await self.executor.follow(plan, run, owner, settings, seen)
        except RefusedPlaceError as error:
            return f"{error.what}. {error.fix}"
        return ""

    def _pinned(self, memory: Memory) -> tuple[Settings, Memory]:
        """Return the settings and memory with the images that the run began with: an upgrade does not change
        them."""
        images = dict(memory.images) or {
            "worker": self.settings.worker_image,
            "vllm": self.settings.vllm_image,
        }
        pinned = replace(self.settings, worker_image=images["worker"], vllm_image=images["vllm"])
        return pinned, replace(memory, images=images)

    async def _write(self, raw: Object, before: RunStatus, after: RunStatus) -> None:
        """Write the status in one patch, if it changed. The resourceVersion makes the patch fail when
        somebody else wrote since the run was read."""
        patch = status_patch(raw, after.dump())
        if patch is None:
            return
        meta = raw["metadata"]
        await self.kube.patch(RUN_KIND, meta["namespace"], meta["name"], patch, part="status")
        self.seen((meta["namespace"], meta["name"]), after)
        for happening in happenings(before, after):
            await self.teller.tell(raw, happening)


def _at_rest(status: RunStatus) -> bool:
    """Return whether a run is over, with no step under way and no place in a queue."""
    placed = any(one.reason is Reason.RESERVED for one in status.conditions)
    return status.phase.over and not status.steps and not placed


def of_this_release(memory: Memory, settings: Settings) -> bool:
    """Return whether a run's pods are of this release: those of another may know nothing of warm pools."""
    return memory.images.get("worker") == settings.worker_image


def for_pods(plan: IterationPlan, memory: Memory, settings: Settings) -> IterationPlan:
    """Return the plan as a run's pods can read it: those of another release may not know that several of them
    reduce together."""
    return plan if of_this_release(memory, settings) else replace(plan, reduce_shards=1)


def _refusal(error: ManifestError) -> RefusedError:
    return RefusedError(Reason.INVALID_MANIFEST, error.what, where=error.where, fix=error.fix)
