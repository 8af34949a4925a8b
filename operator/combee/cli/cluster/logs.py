"""``combee logs``: of the step that matters: one at work, else one that failed, else the last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from combee.cli.cluster.place import Here, LiveRun, find, note, on_cluster, say
from combee.cli.cluster.pods import begun, job_pods, log_lines, phase_of, shard_of, step_jobs
from combee.cli.where import Place
from combee.clients.kubernetes.kube import Object
from combee.errors import ClusterError, UserError
from combee.observe.runs import job_seen
from combee.plan.cluster.diagnose import diagnose
from combee.plan.cluster.seen import JobSeen
from combee.report.text import visible
from combee.steps import kind_of, order_of

START_SECONDS = 600.0
"""the time that --follow waits for a pod to start."""
LOOK_SECONDS = 1.0
MAX_PODS = 32


@dataclass(frozen=True, slots=True)
class Wish:
    """The logs that are asked for."""

    step: str | None = None
    iteration: int | None = None
    """counted from 1."""
    shard: int | None = None
    follow: bool = False
    raw: bool = False


def run_logs(name: str, place: Place, wish: Wish) -> int:
    """Print the logs of a step's pods, as they come with ``follow``."""

    async def work(here: Here) -> int:
        run = await find(here, name)
        jobs = {job["metadata"]["name"]: job for job in await step_jobs(here.kube, run.owner)}
        chosen = choose([job_seen(job) for job in jobs.values()], wish)
        if chosen is None:
            raise _no_step(here, run, wish, list(jobs.values()))
        pods = await job_pods(here.kube, jobs[chosen.name])
        picked = pick(pods, wish.shard)
        if not picked:
            raise _no_pod(here, run, chosen, wish)
        number = f"iteration {chosen.iteration + 1}, " if kind_of(chosen.kind).planned else ""
        note(f"{chosen.kind} ({number}{_state(chosen)}): {chosen.name}")
        many = len(picked) > 1
        for pod in picked if not wish.follow else ():
            await _print(here, pod, wish, many)
        if wish.follow:
            await asyncio.gather(*(_print(here, pod, wish, many) for pod in picked))
        return 0

    return on_cluster(place, work, quiet_stop=wish.follow)


def choose(jobs: Sequence[JobSeen], wish: Wish) -> JobSeen | None:
    """Return the Job whose logs matter most among those that are asked for."""
    wanted = [
        job
        for job in jobs
        if (wish.step is None or job.kind == wish.step)
        and (wish.iteration is None or job.iteration == wish.iteration - 1)
    ]

    def place_of(job: JobSeen) -> tuple[int, int, int]:
        return job.iteration, order_of(job.kind), job.attempt

    working = [job for job in wanted if job.live and job.ready]
    waiting = [job for job in wanted if job.live]
    failed = [job for job in wanted if job.failed]
    # Of those at work the earliest is what the others wait for; of the rest the last.
    if working:
        return min(working, key=place_of)
    if failed and not waiting:
        return max(failed, key=place_of)
    return min(waiting, key=place_of) if waiting else max(wanted, key=place_of, default=None)


def pick(pods: Sequence[Object], shard: int | None) -> list[Object]:
    """Return the newest pod of each shard, or of one; those that failed come first."""
    newest = {shard_of(pod): pod for pod in pods if shard is None or shard_of(pod) == shard}
    return sorted(newest.values(), key=lambda pod: (phase_of(pod) != "Failed", shard_of(pod)))[:MAX_PODS]


async def _print(here: Here, pod: Object, wish: Wish, many: bool) -> None:
    lead = f"[{shard_of(pod)}] " if many and not wish.raw else ""
    if wish.follow:
        async with asyncio.timeout(START_SECONDS):
            await begun(here.kube, pod, LOOK_SECONDS)
    try:
        async for line in log_lines(here.kube, pod, follow=wish.follow):
            say(line if wish.raw else f"{lead}{readable(line)}")
    except ClusterError as error:
        if error.status != 400:
            raise
        trouble = diagnose([pod])
        reason = trouble.message if trouble else "it is being started; --follow waits for it"
        note(f"{lead}no log yet: {reason}")


def _state(job: JobSeen) -> str:
    if job.failed:
        return "failed"
    if job.complete:
        return "done"
    return f"{job.succeeded} of {job.completions} done" if job.ready or job.succeeded else "waiting"


def _no_step(here: Here, run: LiveRun, wish: Wish, jobs: Sequence[Object]) -> UserError:
    step = wish.step or "step"
    if wish.iteration is not None:
        step += f" of iteration {wish.iteration}"
    held = sorted({job_seen(job).kind for job in jobs})
    if held:
        return UserError(f"{run.name} has no {step}", fix=f"It has: {', '.join(held)}")
    if run.status.phase.over:
        command = here.command(f"report {run.name} -o {run.name}")
        fix = f"Finished Jobs go after a while; what came of it: {command}"
    else:
        fix = f"See what it waits for: {here.command(f'why {run.name}')}"
    return UserError(f"{run.name} has no {step} on the cluster", fix=fix)


def _no_pod(here: Here, run: LiveRun, job: JobSeen, wish: Wish) -> UserError:
    if wish.shard is not None and wish.shard >= job.completions:
        return UserError(
            f"{job.name} has no shard {wish.shard}", fix=f"Its shards are 0 to {job.completions - 1}"
        )
    return UserError(
        f"{job.name} has no pod {'any more' if not job.live else 'yet'}",
        fix=f"See what it waits for: {here.command(f'why {run.name}')}",
    )


_SHOWN = ("time", "level", "run", "iteration", "step", "shard", "message")


def readable(line: str) -> str:
    """Return a line as people read it; one that is not ours only loses what could drive a terminal.

    >>> readable('{"time":"2026-01-02T03:04:05.6+00:00","level":"info","message":"stage","stage":"map"}')
    '03:04:05 info     stage (stage map)'
    >>> readable("plain")
    'plain'
    """
    entry = parsed(line)
    if entry is None:
        return visible(line)
    more = ", ".join(f"{key} {value}" for key, value in entry.items() if key not in _SHOWN)
    clock, level = visible(str(entry.get("time", ""))[11:19]), visible(str(entry.get("level", "")))
    return f"{clock} {level:<8} {visible(entry['message'] + (f' ({more})' if more else ''))}"


def parsed(line: str) -> dict[str, Any] | None:
    """Return a line of ours as data; None for any other."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("message"), str) else None


def last_words(lines: Iterable[str]) -> str:
    """Return what a failed pod said last: its last error, else its last line; empty when it said nothing."""
    words = ""
    error = ""
    for line in lines:
        entry = parsed(line)
        if entry is not None and entry.get("level") == "error":
            error = str(entry["message"])
        elif line.strip():
            words = str(entry["message"]) if entry is not None else line.strip()
    return visible(error or words)
