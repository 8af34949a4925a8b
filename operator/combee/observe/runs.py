"""Read what there is of a run: its Jobs, engines, the frozen plan, and what finished pods left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from combee import names
from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.addresses import engine_name
from combee.objects.meta import owned
from combee.objects.queues import QUEUE_LABEL
from combee.objects.types import Settings
from combee.observe.claims import WarmSeen, claim_seen, list_claims
from combee.observe.complaints import Complaints
from combee.observe.queues import see_queue
from combee.observe.services import see_services
from combee.plan.cluster.decide import Run
from combee.plan.cluster.diagnose import (
    being_set_up,
    diagnose,
    fetch_trouble,
    gated,
    only_disrupted,
    probed,
    unready,
)
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.queues import held_back
from combee.plan.cluster.seen import (
    YIELDED,
    EngineSeen,
    JobSeen,
    RolloutsSeen,
    Seen,
    ServiceSeen,
    Trouble,
)
from combee.plan.types import MAX_SUMMARY_BYTES, POD_MESSAGE_BYTES, IterationPlan, StepSummary
from combee.records import Owner
from combee.steps import kind_of
from combee.times import seconds_of

PATIENCE_SECONDS = 4.0
"""A pod takes so long to start when all is well: before it nobody asks why it does not run."""
CLAIM_PATIENCE_SECONDS = 30.0
"""A claim whose pod says nothing takes so long: before it nobody asks why it is not ready."""
FAILED_INDEXES = "FailedIndexes"
"""the reason of a Job each of whose failed indexes was tried as often as it may be."""
WORKER = "worker"
MAX_REMEMBERED = 4096


@dataclass(slots=True)
class Observer:
    """Reads runs from a cluster. Remembers what finished Jobs said, which cannot change any more."""

    kube: Kube
    complaints: Complaints
    warm_pools: bool = False
    """whether rollouts may be made by warm pools of agent-sandbox."""
    _summaries: dict[str, tuple[StepSummary, int]] = field(default_factory=dict)
    """uid of a finished Job -> what its pod left, and how many bytes it could."""

    async def see(
        self, run: Run, owner: Owner, memory: Memory, settings: Settings, *, suspend: bool, now: float
    ) -> Seen:
        """One tick's facts; about five requests, some more for a queue and each shared engine, and one for
        each pod that is in trouble. ``settings``: those that the run's objects are made by."""
        selector = f"{names.LABEL_RUN_UID}={owner.uid}"
        jobs, engines, services, plan, queue, warm = await asyncio.gather(
            self.kube.list("Job", owner.namespace, labels=selector),
            self._engines(run, owner, selector, settings, now),
            self._services(run, owner, wanted=not (suspend or memory.ended)),
            self.plan(owner, memory.run.iteration),
            see_queue(self.kube, run.spec.queue, owner),
            self._claims(run, owner, selector, now),
        )
        steps = [job for job in jobs if names.LABEL_STEP in job["metadata"].get("labels", {})]
        rollouts = [job for job in jobs if component(job) == names.ROLLOUT]
        fetches = [job for job in jobs if job not in steps and job not in rollouts]
        seen = await asyncio.gather(*(self._job(job, now) for job in steps))
        pods = await asyncio.gather(*(self._rollouts(job, now) for job in rollouts))
        fetching = await asyncio.gather(*(self._fetch(job, now) for job in fetches))
        return Seen(
            now=now,
            suspend=suspend,
            jobs={job.name: job for job in seen},
            engines=engines,
            rollouts={job.name: job for job in (*pods, *warm.claims)},
            warm_pools=warm.served,
            pool=warm.pool,
            pool_ready=warm.ready,
            plans={} if plan is None else {plan.iteration: plan},
            services=services,
            fetching=dict(one for one in fetching if one is not None),
            queue=queue,
        )

    async def plan(self, owner: Owner, iteration: int) -> IterationPlan | None:
        """The frozen plan of an iteration."""
        name = names.plan_name(owner.name, owner.uid, iteration)
        config_map = await self.kube.get("ConfigMap", owner.namespace, name)
        if config_map is None or not owned(config_map, owner):
            return None
        return IterationPlan.from_json(config_map["data"]["plan.json"].encode(), where=f"ConfigMap {name}")

    async def _job(self, raw: Object, now: float) -> JobSeen:
        job = job_seen(raw)
        # Of several pods that do a step together any has the result.
        if not kind_of(job.kind).sharded and (job.complete or at_rest(raw)):
            left = await self._left(raw)
            if left is not None:
                return replace(job_seen(raw, summary=left[0]), message_bytes=left[1])
            if job.complete:
                return replace(job, message_bytes=message_bytes(await self._pods(raw)))
        waits = job.live and not job.held and not job.placed and age(raw, now) > PATIENCE_SECONDS
        if job.failed or waits:
            pods = await self._pods(raw)
            gone = job.failed.startswith(FAILED_INDEXES) and only_disrupted(pods)
            return replace(job, trouble=await self._trouble(raw, pods), disrupted=gone)
        return job

    async def _rollouts(self, raw: Object, now: float) -> RolloutsSeen:
        """Only those that wait are listed: the others of a Job are many, and nothing is wrong with them."""
        job = rollouts_seen(raw)
        if job.over or job.held or job.deleting or age(raw, now) <= PATIENCE_SECONDS:
            return job
        meta = raw["metadata"]
        chosen = f"batch.kubernetes.io/controller-uid={meta['uid']}"
        waiting = await self.kube.list("Pod", meta["namespace"], labels=chosen, fields="status.phase=Pending")
        begun = bool(waiting) or bool(raw.get("status", {}).get("active"))
        return replace(job, trouble=await self._trouble(raw, waiting) if waiting or not begun else None)

    async def _claims(self, run: Run, owner: Owner, selector: str, now: float) -> WarmSeen:
        """The claims of pods out of a warm pool, and the pool."""
        wanted = self.warm_pools and run.spec.task.container is not None
        listed = await list_claims(self.kube, owner.namespace, selector) if wanted else None
        if listed is None:
            return WarmSeen()
        claims, pools = listed
        seen = await asyncio.gather(*(self._claim(claim, now) for claim in claims))
        present = [pool for pool in pools if "deletionTimestamp" not in pool["metadata"]]
        ready = sum(pool.get("status", {}).get("readyReplicas") or 0 for pool in present)
        return WarmSeen(True, tuple(seen), bool(present), ready)

    async def _claim(self, raw: Object, now: float) -> RolloutsSeen:
        """Only the pods of one that waits are listed, as of a Job of rollouts."""
        claim = claim_seen(raw)
        if claim.proven or claim.over or claim.deleting or age(raw, now) <= PATIENCE_SECONDS:
            return claim
        # Its pod has its name.
        sandbox = raw.get("status", {}).get("sandbox", {}).get("name")
        field = f"metadata.name={sandbox}"
        pods = await self.kube.list("Pod", raw["metadata"]["namespace"], fields=field) if sandbox else []
        if pods and all("deletionTimestamp" in pod["metadata"] for pod in pods):
            # A node that is lost may never say that it ended: another pod comes, as by a Job.
            return replace(claim, over=True)
        if pods:
            return replace(claim, trouble=await self._trouble(raw, pods))
        return replace(claim, trouble=unready(raw) if age(raw, now) > CLAIM_PATIENCE_SECONDS else None)

    async def _fetch(self, raw: Object, now: float) -> tuple[str, Trouble] | None:
        """An engine, and how the Job that fetches its weights stands; None when it is complete."""
        name, engine = raw["metadata"]["name"], raw["metadata"].get("labels", {}).get(names.LABEL_ENGINE, "")
        status = raw.get("status", {})
        ended = {c["type"]: c for c in status.get("conditions", ()) if c.get("status") == "True"}
        if "Complete" in ended:
            return None
        if raw["spec"].get("suspend"):
            waits = held_back(name, raw["metadata"].get("labels", {}).get(QUEUE_LABEL, ""))
            return engine, Trouble("WaitingForQuota", f"its weights are not fetched yet: {waits}")
        late = not status.get("ready") and age(raw, now) > PATIENCE_SECONDS
        return engine, fetch_trouble(
            name, ended.get("Failed"), await self._trouble(raw, await self._pods(raw)) if late else None
        )

    async def _left(self, job: Object) -> tuple[StepSummary, int] | None:
        uid = job["metadata"]["uid"]
        if uid not in self._summaries:
            # What a pod said when it ended does not change: a late answer that has it will do, and is cheap.
            # After a start this is asked for every run at once.
            pods = await self._pods(job, cached=True)
            if result_of(pods) is None:
                pods = await self._pods(job)
            summary = result_of(pods)
            if summary is None:
                return None
            if len(self._summaries) >= MAX_REMEMBERED:
                self._summaries.pop(next(iter(self._summaries)))
            self._summaries[uid] = summary, message_bytes(pods)
        return self._summaries[uid]

    async def _pods(self, job: Object, *, cached: bool = False) -> list[Object]:
        meta = job["metadata"]
        chosen = f"batch.kubernetes.io/controller-uid={meta['uid']}"
        return await self.kube.list("Pod", meta["namespace"], labels=chosen, cached=cached)

    async def _trouble(self, made_by: Object, pods: list[Object]) -> Trouble | None:
        setting_up = being_set_up(pods)
        subject = setting_up if pods else made_by
        return diagnose(pods, await self.complaints.about(subject) if subject else [])

    async def _engines(
        self, run: Run, owner: Owner, selector: str, settings: Settings, now: float
    ) -> dict[str, EngineSeen]:
        own = [engine for engine in run.spec.engines if engine.vllm is not None and not engine.shared]
        deployments = await self.kube.list("Deployment", owner.namespace, labels=selector) if own else []
        seen = [await self._engine(deployment, now) for deployment in deployments]
        for index, engine in enumerate(run.spec.engines):
            if engine.shared:
                name = engine_name(run.spec, owner, index, settings)
                seen += await self._shared(name, owner, now)
        return {engine.name: engine for engine in seen}

    async def _shared(self, name: str, owner: Owner, now: float) -> list[EngineSeen]:
        """A shared engine; nothing while it is not there for this run. Without its Service nobody asks it."""
        deployment = await self.kube.get("Deployment", owner.namespace, name)
        if deployment is None or not owned(deployment, owner):
            return []
        users, place = users_of(deployment, owner)
        engine = replace(await self._engine(deployment, now), users=users, place=place)
        service = await self.kube.get("Service", owner.namespace, name)
        return [engine if goes_with(service, deployment) else replace(engine, ready=0, reachable=False)]

    async def _services(self, run: Run, owner: Owner, *, wanted: bool) -> dict[str, ServiceSeen]:
        return await see_services(self.kube, run.spec, owner.namespace) if wanted else {}

    async def _engine(self, deployment: Object, now: float) -> EngineSeen:
        engine = engine_seen(deployment)
        if engine.ready >= engine.replicas or age(deployment, now) < PATIENCE_SECONDS:
            return engine
        meta = deployment["metadata"]
        chosen = ",".join(f"{k}={v}" for k, v in deployment["spec"]["selector"]["matchLabels"].items())
        pods = await self.kube.list("Pod", meta["namespace"], labels=chosen)
        events = await self._events_of(deployment, pods)
        seen = engine_seen(deployment, trouble=diagnose(pods, events), words=probed(events))
        return replace(seen, held=bool(pods) and all(map(gated, pods)))

    async def _events_of(self, deployment: Object, pods: list[Object]) -> list[Object]:
        """What is wrong with the pods, or with the making of them."""
        if pods:
            loading = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
            setting_up = being_set_up(pods)
            subjects = [*loading, setting_up] if setting_up else loading
            return [event for pod in subjects for event in await self.complaints.about(pod)]
        events = await self.complaints.about_kind(deployment["metadata"]["namespace"], "ReplicaSet")
        prefix = deployment["metadata"]["name"] + "-"
        return [event for event in events if event["involvedObject"]["name"].startswith(prefix)]


def result_of(pods: Iterable[Object]) -> StepSummary | None:
    """The summary of the first pod that ended with a result, or that yielded; None: none did."""
    left = [summary for pod in pods if (summary := result_in(pod)) is not None]
    return min(left, key=lambda summary: summary.error == YIELDED, default=None)


def message_bytes(pods: Iterable[Object]) -> int:
    """How much of a summary is kept of the pod with the most containers, which have equal parts."""
    kinds = ("containers", "initContainers", "ephemeralContainers")
    counts = [sum(len(pod.get("spec", {}).get(kind, ())) for kind in kinds) for pod in pods]
    return min(MAX_SUMMARY_BYTES, POD_MESSAGE_BYTES // max(1, *counts, 1))


def goes_with(service: Object | None, deployment: Object) -> bool:
    """Whether a shared engine's Service is that of this Deployment, and not of an earlier one."""
    uid = deployment["metadata"]["uid"]
    return service is not None and any(
        one.get("uid") == uid for one in service["metadata"].get("ownerReferences", ())
    )


def users_of(deployment: Object, owner: Owner) -> tuple[int, int]:
    """How many runs use a shared engine now, and this one's place among them."""
    owners = deployment["metadata"].get("ownerReferences", ())
    uids = sorted({one["uid"] for one in owners if one.get("kind") == names.RUN_KIND})
    return len(uids), uids.index(owner.uid)


def age(raw: Object, now: float) -> float:
    """Seconds since the object was made."""
    made = seconds_of(raw["metadata"]["creationTimestamp"])
    return now - made


def job_seen(raw: Object, *, summary: StepSummary | None = None, trouble: Trouble | None = None) -> JobSeen:
    """A Job as ``decide_cluster`` sees it."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    labels = meta.get("labels", {})
    conditions = {c["type"]: c for c in status.get("conditions", ()) if c.get("status") == "True"}
    failed = conditions.get("Failed") or conditions.get("FailureTarget")
    return JobSeen(
        name=meta["name"],
        step=names.attempt_name(meta["name"], 0),
        kind=labels[names.LABEL_STEP],
        iteration=int(labels.get(names.LABEL_ITERATION, "0")),
        attempt=int(labels.get(names.LABEL_ATTEMPT, "0")),
        completions=spec.get("completions") or 1,
        ready=status.get("ready") or 0,
        succeeded=status.get("succeeded") or 0,
        replaced=status.get("failed") or 0,
        since=meta.get("creationTimestamp", ""),
        complete="Complete" in conditions,
        ended=summary is not None and "Complete" not in conditions,
        failed=f"{failed.get('reason', '')}: {failed.get('message', '')}" if failed else "",
        held=bool(spec.get("suspend")),
        queue=labels.get(QUEUE_LABEL, ""),
        deleting="deletionTimestamp" in meta,
        expiring=spec.get("ttlSecondsAfterFinished") is not None,
        summary=summary,
        trouble=trouble,
    )


def component(raw: Object) -> str:
    """What a child is for."""
    return str(raw["metadata"].get("labels", {}).get(names.LABEL_COMPONENT, ""))


def rollouts_seen(raw: Object) -> RolloutsSeen:
    """A Job of rollouts as ``decide_cluster`` sees it."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    ended = {c["type"] for c in status.get("conditions", ()) if c.get("status") == "True"}
    begun = sum(status.get(count) or 0 for count in ("active", "succeeded", "failed"))
    return RolloutsSeen(
        name=meta["name"],
        attempt=int(meta["labels"].get(names.LABEL_ATTEMPT, "0")),
        used_up=begun >= (spec.get("completions") or 1),
        proven=bool(status.get("succeeded")),
        over=bool(ended & {"Complete", "Failed", "FailureTarget"}),
        held=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in meta,
    )


def at_rest(raw: Object) -> bool:
    """Whether a Job has a pod and none that runs.

    Its pod begins, or it ended and is not counted yet, or it is counted and the Job is not called complete
    yet. The end of a pod is in its own status a second or two before that.
    """
    status = raw.get("status", {})
    over = any(c["type"] in ("Failed", "FailureTarget") for c in status.get("conditions", ()))
    return bool(status.get("active") or status.get("succeeded")) and not status.get("ready") and not over


def engine_seen(raw: Object, *, trouble: Trouble | None = None, words: str = "") -> EngineSeen:
    """An engine's Deployment as ``decide_cluster`` sees it."""
    return EngineSeen(
        name=raw["metadata"]["labels"][names.LABEL_ENGINE],
        replicas=raw["spec"].get("replicas") or 0,
        ready=raw.get("status", {}).get("readyReplicas") or 0,
        trouble=trouble,
        probed=words,
    )


def summary_of(pod: Mapping[str, Any]) -> StepSummary | None:
    """What a pod's ``worker`` left in its termination message; None where that cannot be read."""
    ended = worker_end(pod)
    return StepSummary.decode(str(ended.get("message", "")).encode()) if ended else None


def result_in(pod: Mapping[str, Any]) -> StepSummary | None:
    """The same of one that ended well: what another left is why it is tried again, and no result."""
    ended = worker_end(pod)
    return summary_of(pod) if ended and ended.get("exitCode") == 0 else None


def worker_end(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How a pod's ``worker`` ended; None while it has not."""
    for status in pod.get("status", {}).get("containerStatuses", ()):
        ended: Mapping[str, Any] | None = status.get("state", {}).get("terminated")
        if status.get("name") == WORKER and ended:
            return ended
    return None
