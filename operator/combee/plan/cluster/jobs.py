"""The Jobs of a run: which should be there, which are tried again, which have done their work. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from combee.algo.budget import Spend
from combee.api.run import LimitName, RunSpec
from combee.plan.cluster.engines import calls_at_once, gpu_seconds, gpus_charged
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.queues import held_back
from combee.plan.cluster.seen import YIELDED, JobSeen, Seen
from combee.plan.money import money_of
from combee.plan.spending import kept_for_look
from combee.plan.types import DAMAGED_FILE, MAX_SUMMARY_BYTES, Outcome, Step, StepSummary
from combee.steps import EVALUATE, KINDS, Result, kind_of

UNPLACED_SECONDS = 30.0
"""When a map pod finds no place for this long, the pods that wait for it are deleted."""
FINAL_ATTEMPT = 1
"""How often a step is tried anew after its Job failed for good (each index seven times)."""
MAX_DISRUPTED = 10
"""How many Jobs of a step may lose their pods to disruptions before such a failure counts, too."""
MAX_LOST_RESULTS = 5
"""How many finished one-pod Jobs of a step may leave no readable result before the run fails."""
ENGINE_WAIT_SECONDS = 3600
"""How long a step's pod waits for an engine that loads: as long as the engine's startup probe."""


_SUMMARY: TypeAdapter[StepSummary] = TypeAdapter(StepSummary)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What became of the Jobs that are there."""

    memory: Memory
    summaries: Mapping[str, StepSummary]
    """the summaries by step; one is empty where the step's results are only in the store."""
    delete: tuple[str, ...] = ()
    failed: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The steps whose Jobs should be there."""

    memory: Memory
    steps: tuple[Step, ...] = ()
    delete: tuple[str, ...] = ()
    wake_after_seconds: float | None = None
    waiting: str = ""


def look_after(memory: Memory, seen: Seen) -> Upkeep:
    """Read finished Jobs, and give a next attempt to those that yielded, failed or left nothing."""
    fewest = min(memory.message_bytes, *(job.message_bytes for job in seen.jobs.values()), MAX_SUMMARY_BYTES)
    memory = replace(_caught_up(memory, seen), message_bytes=fewest)
    jobs = sorted(seen.jobs.values(), key=lambda job: (job.iteration, job.name))
    counting = [job for job in jobs if not _past(memory, job)]
    summaries = {job.step: summary for job in counting if (summary := _result_of(job)) is not None}
    for summary in list(summaries.values()):
        for implied in _implied(summary):
            summaries.setdefault(implied.step, implied)
    failed = None
    for job in counting:
        if job.step not in summaries:
            memory, why = _again(memory, job)
            failed = failed or why
    delete = tuple(job.name for job in jobs if (job.live or _unplaced(job)) and _past(memory, job))
    return Upkeep(memory, summaries, delete, failed)


def _unplaced(job: JobSeen) -> bool:
    """Return whether one of several pods has found no place, while another did all there was to do."""
    return job.ended and job.completions > 1 and not job.placed


def _caught_up(memory: Memory, seen: Seen) -> Memory:
    """Count a later attempt that is there, even when the status that said so was never written."""
    ahead = [j for j in seen.jobs.values() if not _past(memory, j) and j.attempt > memory.attempt(j.step)]
    if not ahead:
        return memory
    latest = {job.step: job.attempt for job in sorted(ahead, key=lambda job: job.attempt)}
    return replace(memory, attempts={**memory.attempts, **latest})


def _implied(summary: StepSummary) -> Iterator[StepSummary]:
    """Yield summaries of the steps before one that is done: they are done, whatever became of their Jobs."""
    head = summary.step.removesuffix(f"{summary.kind}-a0")
    for kind in kind_of(summary.kind).waits_for:
        yield StepSummary(f"{head}{kind}-a0", kind)


def _again(memory: Memory, job: JobSeen) -> tuple[Memory, Outcome | None]:
    """Give a Job that is over without a result its next attempt, or return why the run cannot go on."""
    if job.failed:
        if job.disrupted and memory.attempt(job.step) < MAX_DISRUPTED:
            return memory.again(job.step, in_turn=True), None
        if memory.failures.get(job.step, 0) < FINAL_ATTEMPT:
            return memory.failed(job.step), None
        why = f": {job.trouble.message}" if job.trouble else ""
        return memory, Outcome("Failed", f"step {job.step} failed for good ({job.failed}){why}")
    if not job.complete:
        return memory, None
    if _yielded(job):
        return memory.again(job.step, in_turn=True), None
    # Its pod is gone, or its message was cut: the result is in the store and doing it again is cheap.
    if memory.lost.get(job.step, 0) < MAX_LOST_RESULTS:
        return memory.missed(job.step), None
    times = MAX_LOST_RESULTS + 1
    return memory, Outcome("Failed", f"step {job.step} ended {times} times without a result that can be read")


def _result_of(job: JobSeen) -> StepSummary | None:
    """Return what came of a Job's step; None while it is not done or says nothing that can be relied on.

    The pods of a map leave their results in the store: it is done when its Job is. Any other step is done
    when its pods have ended, which the Job says a second or two later.
    """
    if not (job.complete or job.ended):
        return None
    if kind_of(job.kind).sharded:
        return StepSummary(job.step, job.kind)
    return None if job.summary is None or _yielded(job) or not _whole(job, job.summary) else job.summary


def _yielded(job: JobSeen) -> bool:
    """Return whether its pod waited for inputs as long as it may and gave up its place."""
    return job.summary is not None and job.summary.error == YIELDED


def _whole(job: JobSeen, summary: StepSummary) -> bool:
    """Return whether a summary can be relied on. It comes from a pod, and so from anybody who may write into
    one: it must be of its step, of the right types, and hold what the fold over it reads."""
    try:
        # NaN and infinities become nulls, which are no numbers.
        _SUMMARY.validate_json(to_json(asdict(summary), inf_nan_mode="null"), strict=True)
    except (ValidationError, ValueError):
        return False
    if (summary.step, summary.kind) != (job.step, job.kind) or min(summary.counts.values(), default=0) < 0:
        return False
    needs = Result() if summary.error else kind_of(job.kind).result
    parts = ("outputs", "counts", "scores")
    complete = all(set(getattr(needs, part)) <= set(getattr(summary, part)) for part in parts)
    return complete and all(summary.counts[name] > 0 for name in needs.not_zero)


def settled(memory: Memory, seen: Seen) -> tuple[str, ...]:
    """Return the finished Jobs from which nothing will be read any more, by the memory as it was written."""
    return tuple(
        sorted(
            job.name
            for job in seen.jobs.values()
            if (job.complete or job.failed) and not job.expiring and not job.deleting and _past(memory, job)
        )
    )


def _past(memory: Memory, job: JobSeen) -> bool:
    """Return whether nothing will be read from a Job any more."""
    state = memory.run
    if memory.ended or job.attempt < memory.attempt(job.step):
        return True
    if job.step == memory.mending:
        return False
    phase = kind_of(job.kind).phase
    if phase == "Profiling":
        return state.phase != "Profiling"
    if phase == "Learning":
        return job.iteration < state.iteration or state.phase not in ("Profiling", "Learning")
    return phase == "Evaluating" and state.outcome is not None


def wanted_jobs(
    spec: RunSpec, memory: Memory, seen: Seen, due: Step, then: tuple[Step, ...], *, may_start: bool
) -> Wanted:
    """Return the Jobs for the step that is due, and for those after it that may be placed early.

    Early ones come only when every pod of the previous step is placed (else two runs could hold each
    other's places under a quota for ever), and go again when one of its pods finds no place.
    """
    job = _job(memory, seen, due)
    if job is None and KINDS[due.kind].asks_models and not may_start:
        return Wanted(memory, waiting="its engines are not ready yet")
    step = _equipped(due, spec, memory, seen, early=False)
    placed = job is not None and job.placed and not job.held and not job.deleting
    followers = (_job(memory, seen, follower) for follower in then)
    waiting = [follower for follower in followers if follower is not None and follower.live]
    held = held_back(job.name, job.queue) if job is not None and job.held else ""
    if not placed and waiting:
        return replace(_patience(memory, seen, step, waiting), waiting=held)
    memory = replace(memory, unplaced_since=0.0)
    # A queue counts the pods of one step: none may wait there while another works.
    if not placed or spec.workers.overlap == "Never" or spec.queue is not None:
        return Wanted(memory, (step,), waiting=held)
    return Wanted(memory, (step, *_placed_early(spec, memory, seen, then)))


def _placed_early(spec: RunSpec, memory: Memory, seen: Seen, then: tuple[Step, ...]) -> Iterator[Step]:
    for step in then:
        if step.name in memory.in_turn:
            return
        yield _equipped(step, spec, memory, seen, early=True)
        job = _job(memory, seen, step)
        if job is None or not job.placed or job.deleting:
            return


def _patience(memory: Memory, seen: Seen, due: Step, waiting: list[JobSeen]) -> Wanted:
    """Wait a while for a place for the step that is due, then delete the Jobs that may keep it out."""
    since = memory.unplaced_since or seen.now
    seconds_left = UNPLACED_SECONDS - (seen.now - since)
    if seconds_left > 0:
        return Wanted(replace(memory, unplaced_since=since), (due,), wake_after_seconds=seconds_left)
    for job in waiting:
        memory = memory.again(job.step, in_turn=True)
    return Wanted(replace(memory, unplaced_since=0.0), (due,), delete=tuple(job.name for job in waiting))


def _job(memory: Memory, seen: Seen, step: Step) -> JobSeen | None:
    attempt = memory.attempt(step.name)
    return next((j for j in seen.jobs.values() if j.step == step.name and j.attempt == attempt), None)


def _table(spend: Spend) -> dict[str, float]:
    """Return amounts by the names of their limits, as a pod reads them."""
    return dict(zip(get_args(LimitName), spend.amounts, strict=True))


def _equipped(step: Step, spec: RunSpec, memory: Memory, seen: Seen, *, early: bool) -> Step:
    """Return the step with what its pod must know beyond the plan."""
    state = memory.run
    kind, params = KINDS[step.kind], dict(step.params)
    if kind.asks_models:
        # What its pods read of the run never changes, but a budget may grow.
        params["budget"] = spec.budget.dump()
    if memory.damaged:
        params[DAMAGED_FILE] = memory.damaged
    if state.facts is not None and kind.data:
        params["digests"] = dict(state.facts.digests)
    if kind.looks_at_gate:
        params["baseline"] = memory.baseline
    if kind.asks_models and not kind.opens:
        held_seconds = gpu_seconds(spec, memory, seen.now)
        spent = replace(
            state.spend,
            gpu_seconds=round(held_seconds, 3),
            wall_clock_seconds=round(memory.elapsed(seen.now), 3),
            money=money_of(spec, state.usage, held_seconds),
        )
        params["spent"] = _table(spent)
        look_gpus = gpus_charged(spec, memory, EVALUATE)
        kept = kept_for_look(spec, state, gpus=look_gpus, gpu_seconds=held_seconds)
        params["kept"] = _table(kept)
    if spec.engines and kind.asks_models:
        params["engineWaitSeconds"] = ENGINE_WAIT_SECONDS
        params["gpus"] = gpus_charged(spec, memory, kind)
    if (calls := calls_at_once(spec, seen, set(kind.roles).difference(state.unasked))) is not None:
        params["concurrency"] = calls
    if memory.message_bytes < MAX_SUMMARY_BYTES:
        params["summaryBytes"] = memory.message_bytes
    if early:
        params["waitSeconds"] = spec.workers.wait_seconds
    return replace(step, params=params)
