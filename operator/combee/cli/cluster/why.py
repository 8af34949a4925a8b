"""``combee why``: what a run waits for or died of, as it is now."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace

from combee import names
from combee.cli.cluster.logs import last_words
from combee.cli.cluster.place import Here, LiveRun, find, on_cluster, say
from combee.cli.cluster.pods import JOB_LABEL, children_selector, log_lines, phase_of, step_jobs
from combee.cli.cluster.status import shown
from combee.cli.cluster.status_text import text
from combee.cli.cluster.why_text import Facts, next_command, why
from combee.cli.where import Place
from combee.clients.kubernetes.kube import Kube, Object
from combee.errors import ClusterError
from combee.objects.meta import owned
from combee.observe.runs import PATIENCE_SECONDS, age, engine_seen, job_seen, summary_of
from combee.plan.cluster.diagnose import diagnose
from combee.plan.cluster.queues import held_back
from combee.plan.cluster.seen import Trouble

TAIL = 50
MAX_LAST_WORDS = 3


def run_why(name: str, place: Place) -> int:
    """Print what a run waits for or died of."""

    async def work(here: Here) -> int:
        run = await find(here, name)
        facts = await _facts(here.kube, run)
        say(text(why(facts), shutil.get_terminal_size((110, 24)).columns))
        say(f"\nNext: {here.command(next_command(facts))}")
        return 0

    return on_cluster(place, work)


async def _facts(kube: Kube, run: LiveRun) -> Facts:
    owner, now = run.owner, time.time()
    jobs = await step_jobs(kube, owner)
    pods = await kube.list("Pod", owner.namespace, labels=children_selector(owner))
    engines = await kube.list("Deployment", owner.namespace, labels=children_selector(owner))
    for engine in await kube.list("Deployment", owner.namespace, labels=names.LABEL_SHARED):
        if owned(engine, owner):
            digest = engine["metadata"]["labels"][names.LABEL_SHARED]
            engines.append(engine)
            pods += await kube.list("Pod", owner.namespace, labels=f"{names.LABEL_SHARED}={digest}")
    events = await _events(kube, owner.namespace)
    facts = Facts(
        shown(run),
        generation=int(run.raw["metadata"].get("generation", 0)),
        events=[one for one in events if one.get("involvedObject", {}).get("uid") == run.uid],
    )
    if run.status.phase.over and run.status.phase.value != "Failed":
        return facts
    troubles = _job_troubles(jobs, pods, events, now) | _engine_troubles(engines, pods, events, now)
    return replace(facts, troubles=troubles, last_words=await _last_words(kube, jobs, pods, run))


async def _events(kube: Kube, namespace: str) -> list[Object]:
    """Return the events of the whole namespace, in one request; none where they may not be read."""
    try:
        return await kube.list("Event", namespace)
    except ClusterError as error:
        if error.status != 403:
            raise
        return []


def _job_troubles(
    jobs: Sequence[Object], pods: Sequence[Object], events: Sequence[Object], now: float
) -> dict[str, Trouble]:
    troubles: dict[str, Trouble] = {}
    for job in jobs:
        seen = job_seen(job)
        if seen.complete or (seen.live and (seen.placed or age(job, now) < PATIENCE_SECONDS)):
            continue
        if seen.held:
            troubles[f"{seen.kind} step"] = Trouble("WaitingForQuota", held_back(seen.name, seen.queue))
            continue
        own = _labelled(pods, JOB_LABEL, seen.name)
        uids = {one["metadata"]["uid"] for one in (job, *own)}
        about = [one for one in events if one.get("involvedObject", {}).get("uid") in uids]
        trouble = diagnose(own, about)
        if trouble is None and seen.failed:
            trouble = Trouble("", f"{seen.name} failed: {seen.failed}")
        if trouble is not None:
            troubles[f"{seen.kind} step"] = trouble
    return troubles


def _engine_troubles(
    engines: Sequence[Object], pods: Sequence[Object], events: Sequence[Object], now: float
) -> dict[str, Trouble]:
    troubles: dict[str, Trouble] = {}
    for deployment in engines:
        seen = engine_seen(deployment)
        if seen.ready >= seen.replicas or age(deployment, now) < PATIENCE_SECONDS:
            continue
        own = _labelled(pods, names.LABEL_ENGINE, seen.name)
        start = f"{deployment['metadata']['name']}-"
        about = [
            one for one in events if str(one.get("involvedObject", {}).get("name", "")).startswith(start)
        ]
        waiting = Trouble("Starting", f"{seen.ready} of {seen.replicas} servers are ready")
        troubles[f"engine {seen.name}"] = diagnose(own, about) or waiting
    return troubles


def _labelled(pods: Sequence[Object], label: str, value: str) -> list[Object]:
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get(label) == value]


async def _last_words(
    kube: Kube, jobs: Sequence[Object], pods: Sequence[Object], run: LiveRun
) -> dict[str, str]:
    """Return the last words of the newest failed pods: the error in their summary, else the end of their
    log. A Job that is complete got over it."""
    done = {job["metadata"]["name"] for job in jobs if job_seen(job).complete}
    failed = run.status.phase.value == "Failed"
    words: dict[str, str] = {}
    for pod in sorted(pods, key=lambda one: str(one["metadata"]["creationTimestamp"]), reverse=True):
        if len(words) >= MAX_LAST_WORDS:
            break
        name, labels = str(pod["metadata"]["name"]), pod["metadata"].get("labels", {})
        summary = summary_of(pod)
        if summary is not None and summary.error and (failed or labels.get(JOB_LABEL) not in done):
            words[name] = f"{summary.error}: {summary.message}"
        elif (
            phase_of(pod) == "Failed"
            and labels.get(JOB_LABEL) not in done
            and (text := await _tail(kube, pod))
        ):
            words[name] = text
    return words


async def _tail(kube: Kube, pod: Object) -> str:
    try:
        return last_words([line async for line in log_lines(kube, pod, tail=TAIL)])
    except ClusterError:
        return ""  # the node that had it is gone, or it never began
