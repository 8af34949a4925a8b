"""Pods of a run and their logs, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from combee import names
from combee.cli.cluster.place import note
from combee.clients.kubernetes.kube import Kube, Object, place
from combee.plan.cluster.diagnose import diagnose
from combee.records import Owner

WORKER = "worker"
SILENCE_SECONDS = 30.0
"""the longest silence of a log that is read and not followed."""
JOB_LABEL = "batch.kubernetes.io/job-name"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"


def children_selector(owner: Owner, **more: str) -> str:
    """Return the label selector of a run's children."""
    chosen = {names.LABEL_RUN_UID: owner.uid, **more}
    return ",".join(f"{key}={value}" for key, value in chosen.items())


async def step_jobs(kube: Kube, owner: Owner) -> list[Object]:
    """Return the Jobs of a run's steps."""
    jobs = await kube.list("Job", owner.namespace, labels=children_selector(owner))
    return [job for job in jobs if names.LABEL_STEP in job["metadata"].get("labels", {})]


async def job_pods(kube: Kube, job: Object) -> list[Object]:
    """Return a Job's pods, by shard, the newest of a shard last."""
    meta = job["metadata"]
    pods = await kube.list("Pod", meta["namespace"], labels=f"{JOB_LABEL}={meta['name']}")
    return sorted(pods, key=lambda pod: (shard_of(pod), pod["metadata"]["creationTimestamp"]))


def shard_of(pod: Object) -> int:
    """Return the shard that a step's pod works on; 0 where it has none."""
    return int(pod["metadata"].get("labels", {}).get(INDEX_LABEL, "0"))


def phase_of(pod: Object) -> str:
    """Return Pending, Running, Succeeded, Failed or Unknown."""
    return str(pod.get("status", {}).get("phase", "Unknown"))


async def begun(kube: Kube, pod: Object, look_seconds: float) -> bool:
    """Wait until a pod has started, and say once what holds it. Return False when it was deleted."""
    meta, last = pod["metadata"], ""
    while (now := await kube.get("Pod", meta["namespace"], meta["name"])) is not None:
        if phase_of(now) != "Pending":
            return True
        trouble = diagnose([now])
        if trouble is not None and trouble.message != last:
            last = trouble.message
            note(last)
        await asyncio.sleep(look_seconds)
    return False


async def log_lines(
    kube: Kube, pod: Object, *, follow: bool = False, tail: int | None = None
) -> AsyncIterator[str]:
    """Yield the lines of a pod's log; with ``follow`` as they come, until the pod ends. Raises ClusterError
    when there is none (yet, or any more)."""
    meta = pod["metadata"]
    query = {"container": WORKER}
    query |= {"follow": "true"} if follow else {}
    query |= {"tailLines": str(tail)} if tail is not None else {}
    silence = None if follow else SILENCE_SECONDS
    path = f"{place('Pod', meta['namespace'], meta['name'])}/log"
    rest = b""
    async for piece in kube.stream(path, query=query, silence_seconds=silence):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


def event_time(event: Object) -> str:
    """Return when the event was last seen."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])
