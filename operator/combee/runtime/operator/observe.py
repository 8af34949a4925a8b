"""Read what there is of a run: its Jobs, engines, the frozen plan, and what finished pods left."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from combee import names
from combee.adapters.kube import Kube, Object
from combee.manifests.types import Owner
from combee.plan.cluster.decide import Run
from combee.plan.cluster.diagnose import diagnose
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, JobSeen, Seen, Trouble
from combee.plan.types import IterationPlan, StepSummary

PATIENCE_SECONDS = 4.0
"""A pod takes so long to start when all is well: before it nobody asks why it does not run."""
WORKER = "worker"
MAX_REMEMBERED = 4096


@dataclass(slots=True)
class Observer:
    """Reads runs from a cluster. Remembers what finished Jobs said, which cannot change any more."""

    kube: Kube
    _said: dict[str, StepSummary] = field(default_factory=dict)
    """uid of a finished Job -> what its pod left."""

    async def see(self, run: Run, owner: Owner, memory: Memory, *, suspend: bool, now: float) -> Seen:
        """One tick's facts; about five requests, and one more for each pod that is in trouble."""
        mine = f"{names.LABEL_RUN_UID}={owner.uid}"
        jobs, engines, plan = await asyncio.gather(
            self.kube.list("Job", owner.namespace, labels=mine),
            self._engines(run, owner, mine, now),
            self.plan(owner, memory.run.iteration),
        )
        steps = [job for job in jobs if names.LABEL_STEP in job["metadata"].get("labels", {})]
        seen = await asyncio.gather(*(self._job(job, memory, now) for job in steps))
        return Seen(
            now=now,
            suspend=suspend,
            jobs={job.name: job for job in seen},
            engines=engines,
            plans={} if plan is None else {plan.iteration: plan},
        )

    async def plan(self, owner: Owner, iteration: int) -> IterationPlan | None:
        """The frozen plan of an iteration."""
        name = names.plan_name(owner.name, owner.uid, iteration)
        found = await self.kube.get("ConfigMap", owner.namespace, name)
        if found is None or not owned(found, owner):
            return None
        return IterationPlan.from_json(found["data"]["plan.json"].encode(), where=f"ConfigMap {name}")

    async def _job(self, raw: Object, memory: Memory, now: float) -> JobSeen:
        job = job_seen(raw)
        if job.complete and job.completions == 1 and job.kind != "map":
            return job_seen(raw, summary=await self._summary(raw))
        waits = job.live and not job.held and not job.placed and age(raw, now) > PATIENCE_SECONDS
        if job.failed or waits:
            return job_seen(raw, trouble=await self._trouble(raw))
        return job

    async def _summary(self, job: Object) -> StepSummary | None:
        uid = job["metadata"]["uid"]
        if uid not in self._said:
            said = next((s for pod in await self._pods(job) if (s := summary_of(pod)) is not None), None)
            if said is None:
                return None
            if len(self._said) >= MAX_REMEMBERED:
                self._said.pop(next(iter(self._said)))
            self._said[uid] = said
        return self._said[uid]

    async def _pods(self, job: Object) -> list[Object]:
        meta = job["metadata"]
        chosen = f"batch.kubernetes.io/controller-uid={meta['uid']}"
        return await self.kube.list("Pod", meta["namespace"], labels=chosen)

    async def _trouble(self, made_by: Object) -> Trouble | None:
        pods = await self._pods(made_by)
        events = [] if pods else await self._events(made_by)
        return diagnose(pods, events)

    async def _events(self, about: Object) -> list[Object]:
        meta = about["metadata"]
        chosen = f"involvedObject.uid={meta['uid']}"
        return await self.kube.list("Event", meta["namespace"], fields=chosen)

    async def _engines(self, run: Run, owner: Owner, mine: str, now: float) -> dict[str, EngineSeen]:
        if not run.spec.engines:
            return {}
        found = await self.kube.list("Deployment", owner.namespace, labels=mine)
        seen = [await self._engine(deployment, now) for deployment in found]
        return {engine.name: engine for engine in seen}

    async def _engine(self, deployment: Object, now: float) -> EngineSeen:
        engine = engine_seen(deployment)
        if engine.ready >= engine.replicas or age(deployment, now) < PATIENCE_SECONDS:
            return engine
        meta = deployment["metadata"]
        chosen = ",".join(f"{k}={v}" for k, v in deployment["spec"]["selector"]["matchLabels"].items())
        pods = await self.kube.list("Pod", meta["namespace"], labels=chosen)
        return engine_seen(deployment, trouble=diagnose(pods, await self._made_badly(deployment, pods)))

    async def _made_badly(self, deployment: Object, pods: list[Object]) -> list[Object]:
        if pods:
            return []
        sets = "involvedObject.kind=ReplicaSet,reason=FailedCreate"
        events = await self.kube.list("Event", deployment["metadata"]["namespace"], fields=sets)
        mine = deployment["metadata"]["name"] + "-"
        return [event for event in events if event["involvedObject"]["name"].startswith(mine)]


def owned(child: Object, owner: Owner) -> bool:
    """Whether ``child`` was made for this very run, not for an earlier one of its name."""
    return any(ref.get("uid") == owner.uid for ref in child["metadata"].get("ownerReferences", ()))


def age(raw: Object, now: float) -> float:
    """Seconds since the object was made."""
    made = datetime.fromisoformat(raw["metadata"]["creationTimestamp"]).timestamp()
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
        complete="Complete" in conditions,
        failed=f"{failed.get('reason', '')}: {failed.get('message', '')}" if failed else "",
        held=bool(spec.get("suspend")),
        deleting="deletionTimestamp" in meta,
        expiring=spec.get("ttlSecondsAfterFinished") is not None,
        summary=summary,
        trouble=trouble,
    )


def engine_seen(raw: Object, *, trouble: Trouble | None = None) -> EngineSeen:
    """An engine's Deployment as ``decide_cluster`` sees it."""
    return EngineSeen(
        name=raw["metadata"]["labels"][names.LABEL_ENGINE],
        replicas=raw["spec"].get("replicas") or 0,
        ready=raw.get("status", {}).get("readyReplicas") or 0,
        trouble=trouble,
    )


def summary_of(pod: Mapping[str, Any]) -> StepSummary | None:
    """What a pod's ``worker`` left in its termination message; None where that cannot be read."""
    for status in pod.get("status", {}).get("containerStatuses", ()):
        ended = status.get("state", {}).get("terminated")
        if status.get("name") == WORKER and ended:
            return StepSummary.decode(str(ended.get("message", "")).encode())
    return None
