"""Read the judges of a Playbook's canaries and how they fare."""

from __future__ import annotations

import asyncio

from combee import names
from combee.api.common import one_line
from combee.api.playbook import PlaybookSpec
from combee.clients.kubernetes.kube import Kube, Object
from combee.objects.judge import MADE_OF, PAIRS_BEFORE
from combee.objects.meta import owned
from combee.observe.jobs import ended
from combee.observe.runs import PATIENCE_SECONDS, age
from combee.plan.cluster.diagnose import being_set_up, diagnose
from combee.plan.cluster.seen import Trouble
from combee.plan.playbook.judges import JudgeJob, JudgesSeen, judged_by_job, refusal
from combee.records import Owner
from combee.times import seconds_of

MAX_MESSAGE = 600
"""The most bytes of the reason why a Job failed."""


async def see_judges(
    kube: Kube, owner: Owner, spec: PlaybookSpec, now: float, *, secret_policy: bool
) -> JudgesSeen:
    """Return the state of the Jobs. This takes one request, and two more for each canary in trouble; none for
    a Playbook whose canary needs no such Job."""
    if not judged_by_job(spec):
        return JudgesSeen()
    selector = f"{names.LABEL_PLAYBOOK}={names.playbook_label(owner.name)},{names.LABEL_CANARY}"
    jobs: dict[str, list[Object]] = {}
    for job in await kube.list("Job", owner.namespace, labels=selector):
        if owned(job, owner):
            jobs.setdefault(job["metadata"]["labels"][names.LABEL_CANARY], []).append(job)
    for canary_jobs in jobs.values():
        canary_jobs.sort(key=lambda job: str(job["metadata"]["creationTimestamp"]))
    troubles = await asyncio.gather(*(_trouble(kube, canary_jobs, now) for canary_jobs in jobs.values()))
    return JudgesSeen(
        jobs={canary: tuple(map(_judge_job, canary_jobs)) for canary, canary_jobs in jobs.items()},
        troubles=dict(zip(jobs, troubles, strict=True)),
        refused=refusal(spec, secret_policy=secret_policy),
    )


async def _trouble(kube: Kube, jobs: list[Object], now: float) -> str:
    """Return why the last Job cannot start, or why the last Job that ended failed; empty when neither
    holds."""
    past = [job for job in jobs if not _live(job)]
    last = next(reversed(jobs), None)
    if last is not None and _live(last):
        stuck = not last.get("status", {}).get("ready") and age(last, now) > PATIENCE_SECONDS
        trouble = await _diagnosed(kube, last) if stuck else None
        if trouble is not None:
            return one_line(trouble.message, MAX_MESSAGE)
    if not past or (failed := ended(past[-1], "Failed")) is None:
        return ""
    trouble = await _diagnosed(kube, past[-1])
    message = trouble.message if trouble is not None else str(failed.get("message", ""))
    return one_line(message, MAX_MESSAGE)


async def _diagnosed(kube: Kube, job: Object) -> Trouble | None:
    """Return why a Job's pod does not run, or why it died."""
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    pods = await kube.list("Pod", namespace, labels=f"batch.kubernetes.io/controller-uid={uid}")
    starting = being_set_up(pods) if pods else job
    if starting is None:
        return diagnose(pods)
    about = f"involvedObject.uid={starting['metadata']['uid']}"
    return diagnose(pods, await kube.list("Event", namespace, fields=about))


def _judge_job(job: Object) -> JudgeJob:
    meta = job["metadata"]
    notes = meta.get("annotations") or {}
    before = str(notes.get(PAIRS_BEFORE, ""))
    return JudgeJob(
        created=seconds_of(meta["creationTimestamp"]),
        live=_live(job),
        made_of=str(notes.get(MADE_OF, "")),
        pairs=int(before) if before.isdigit() else -1,
        name=meta["name"],
        uid=meta["uid"],
        ended=_ended_at(job),
    )


def _live(job: Object) -> bool:
    return ended(job) is None and "deletionTimestamp" not in job["metadata"]


def _ended_at(job: Object) -> float:
    """Return when a Job came to its end, in seconds since 1970; 0 while it is at work."""
    at = str((ended(job) or {}).get("lastTransitionTime") or "")
    return seconds_of(at) if at else 0.0
