"""What a run on a cluster says about itself, from its memory and one tick's facts. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from combee.api.conditions import Condition, ConditionType, Reason, merge
from combee.api.run import RunSpec
from combee.api.status import (
    DelayObservation,
    GateStatus,
    HeldOutStatus,
    IterationStatus,
    Phase,
    Pinned,
    RoleUsage,
    RunStatus,
    SpendStatus,
    StepStatus,
    bounded,
    shown,
)
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.engines import engines_in_use, gpu_seconds
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen, Seen, Trouble

T, R = ConditionType, Reason

ERRORS: Mapping[str, Reason] = {
    "InvalidManifest": R.INVALID_MANIFEST,
    "NotAvailable": R.NOT_AVAILABLE,
    "InvalidData": R.INVALID_DATA,
    "HeldOutMoved": R.HELD_OUT_MOVED,
    "Endpoint": R.ENDPOINT_REFUSED,
    "ContextLength": R.ENDPOINT_REFUSED,
    "Store": R.STORE_UNUSABLE,
    "ArtifactTooLarge": R.STORE_UNUSABLE,
    "": R.TOO_MANY_FAILURES,
}
"""an error's code -> the reason of a failed run; any other is ours."""
_ENDS: Mapping[str, tuple[Phase, Reason]] = {
    "Learned": (Phase.LEARNED, R.LEARNED),
    "NothingBetter": (Phase.NOTHING_BETTER, R.NOTHING_BETTER),
    "BudgetExhausted": (Phase.BUDGET_EXHAUSTED, R.BUDGET_SPENT),
    "Stopped": (Phase.STOPPED, R.STOPPED),
}
_WORK: Mapping[Phase, Reason] = {
    Phase.PENDING: R.PENDING,
    Phase.PREPARING: R.PREPARING,
    Phase.LEARNING: R.LEARNING,
    Phase.FINISHING: R.FINISHING,
    Phase.SUSPENDED: R.SUSPENDED,
}
_SPENT: Mapping[str, Reason] = {
    "rollouts": R.ROLLOUTS_SPENT,
    "tokens": R.TOKENS_SPENT,
    "gpuSeconds": R.GPU_SECONDS_SPENT,
    "wallClockSeconds": R.WALL_CLOCK_SPENT,
}


@dataclass(frozen=True, slots=True)
class About:
    """The run that a status is about."""

    spec: RunSpec
    generation: int
    manifest_digest: str
    image: str
    """what its worker pods are made from."""
    algorithm: str
    when: When


@dataclass(frozen=True, slots=True)
class _End:
    """Where the run stands, and why."""

    phase: Phase
    reason: Reason
    message: str


When = Callable[[float], str]
"""seconds since 1970 as the API writes times; empty for 0."""


def refused_status(before: RunStatus, generation: int, reason: Reason, message: str, now: str) -> RunStatus:
    """The status of a run whose plan is not accepted: it waits for a better spec."""
    new = [
        _condition(T.READY, "False", reason, message),
        _condition(T.RECONCILING, "False", reason, message),
        _condition(T.STALLED, "True", reason, message),
        _condition(T.PLAN_ACCEPTED, "False", reason, message),
    ]
    return bounded(
        before.model_copy(
            update={
                "observed_generation": generation,
                "phase": Phase.PENDING,
                "message": message,
                "conditions": merge(before.conditions, _dated(new, generation, now)),
            }
        )
    )


def run_status(about: About, before: RunStatus, plan: ClusterPlan, seen: Seen) -> RunStatus:
    """The status after a tick. Equal facts give an equal status: nothing in it moves with the clock
    alone, or every write would cause the next."""
    memory, spec = plan.memory, about.spec
    state = memory.run
    end = _where(memory, plan, seen)
    facts = state.facts
    total = facts.train_rows * spec.method.epochs if facts else 0
    frozen = seen.plans.get(state.iteration) or plan.freeze
    status = RunStatus(
        observed_generation=about.generation,
        phase=end.phase,
        message=end.message,
        conditions=merge(
            before.conditions,
            _dated(_conditions(about, memory, plan, seen, end), about.generation, about.when(seen.now)),
        ),
        start_time=about.when(memory.started),
        completion_time=about.when(memory.ended),
        epoch=state.epoch,
        iteration=state.iteration,
        iterations_planned=_planned(memory, total, frozen.batch_size if frozen else None),
        examples_done=state.examples_done,
        examples_planned=total,
        eta_seconds=_eta(memory, total),
        batch_size=frozen.batch_size if frozen else before.batch_size,
        batch_reason=frozen.batch_reason if frozen else before.batch_reason,
        held_out=_held_out(memory),
        gain=state.best.select - state.baseline_select if state.best and state.best.iteration >= 0 else None,
        gate=_gate(memory),
        test_score=memory.test,
        usage={
            role: RoleUsage(
                calls=u.calls - u.hits,
                hits=u.hits,
                prompt_tokens=u.prompt_tokens,
                completion_tokens=u.completion_tokens,
                cached_tokens=u.cached_tokens,
            )
            for role, u in state.usage.items()
        },
        spend=SpendStatus(
            rollouts=state.spend.rollouts,
            tokens=state.spend.tokens,
            gpu_seconds=round(gpu_seconds(spec, memory, memory.ended or _last_change(memory)), 1),
            wall_clock_seconds=round(state.spend.wall_clock_seconds, 1),
        ),
        history=tuple(
            IterationStatus(
                iteration=note.iteration,
                epoch=note.epoch,
                batch_size=note.batch_size,
                batch_reason=note.batch_reason,
                seconds=note.seconds,
                calls=note.calls,
                tokens=note.tokens,
                rollouts=note.rollouts,
                train_score=note.train,
                select=note.select,
                best=state.best is not None and state.best.iteration == note.iteration,
                artifact_digest=note.artifact,
            )
            for note in memory.notes
        ),
        delay_observations=tuple(
            DelayObservation(batch_size=one.batch_size, seconds=one.seconds)
            for one in state.observations
            if one.seconds > 0
        ),
        artifact_digest=state.artifact,
        best_digest=state.best.artifact if state.best else "",
        resolved=before.resolved,
        pinned=Pinned(
            manifest_digest=about.manifest_digest,
            data_digests=facts.digests if facts else {},
            image=about.image,
            algorithm=about.algorithm,
        ),
        steps=tuple(_step(job) for job in sorted(seen.jobs.values(), key=lambda j: j.name) if job.live),
        attempts=dict(memory.attempts),
        published=memory.published,
        state=memory.to_status(),
    )
    status = status.model_copy(update={"shown": shown(status, spec.budget.rollouts)})
    return bounded(status)


def _where(memory: Memory, plan: ClusterPlan, seen: Seen) -> _End:
    """Where the run stands, in a phase, a reason and a sentence."""
    outcome = memory.run.outcome
    if memory.ended and outcome is not None:
        if outcome.name == "Failed":
            return _End(Phase.FAILED, ERRORS.get(memory.error, R.INTERNAL_ERROR), outcome.reason)
        phase, reason = _ENDS[outcome.name]
        calls = sum(usage.calls - usage.hits for usage in memory.run.usage.values())
        if outcome.name == "Learned" and not calls and memory.run.usage:
            reason = R.ALREADY_LEARNED
        return _End(phase, reason, outcome.reason)
    if seen.suspend:
        return _End(Phase.SUSPENDED, R.SUSPENDED, "spec.suspend is true: set it to false to go on")
    state = memory.run
    trouble = _trouble(seen)
    if state.phase == "Profiling":
        begun = any(job.ready or job.succeeded for job in seen.jobs.values())
        phase = Phase.PREPARING if begun else Phase.PENDING
        said = "the start is scored on heldOut" if begun else plan.waiting or "the first pod is being started"
    elif state.phase == "Learning":
        phase, said = Phase.LEARNING, f"iteration {state.iteration}"
        if (frozen := seen.plans.get(state.iteration)) is not None:
            said += f", {frozen.batch_size} examples"
    else:
        phase, said = Phase.FINISHING, "the best artifact is compared with the start on gate, and published"
    return _End(phase, _WORK[phase], f"{said}; {trouble.message}" if trouble else said)


def _trouble(seen: Seen) -> Trouble | None:
    jobs = [
        job.trouble for job in sorted(seen.jobs.values(), key=lambda j: j.name) if job.live and job.trouble
    ]
    engines = [engine.trouble for _, engine in sorted(seen.engines.items()) if engine.trouble]
    return next(iter([*engines, *jobs]), None)


def _conditions(
    about: About, memory: Memory, plan: ClusterPlan, seen: Seen, end: _End
) -> Iterator[Condition]:
    over, failed = end.phase.over, end.phase is Phase.FAILED
    good = end.reason in (R.LEARNED, R.NOTHING_BETTER, R.ALREADY_LEARNED)
    suspended = end.phase is Phase.SUSPENDED
    yield _condition(T.READY, "True" if good else "False", end.reason, end.message)
    working = not over and not suspended
    yield _condition(T.RECONCILING, "True" if working else "False", end.reason, end.message)
    yield _condition(T.STALLED, "True" if failed else "False", end.reason, end.message)
    going = R.SUSPENDED if suspended else R.IN_PROGRESS
    complete = over and not failed
    yield _condition(
        T.COMPLETE, "True" if complete else "False", end.reason if complete else going, end.message
    )
    yield _condition(T.FAILED, "True" if failed else "False", end.reason if over else going, end.message)
    if failed and end.reason in _REFUSALS:
        yield _condition(T.PLAN_ACCEPTED, "False", end.reason, end.message)
    else:
        yield _condition(T.PLAN_ACCEPTED, "True", R.ACCEPTED, "the plan is good")
    yield _quota(about.spec, seen, suspended)
    yield _placed(seen, suspended, over)
    yield _engines(about.spec, seen, suspended or over)
    yield _converging(memory)
    yield _budget(memory)


_REFUSALS = (R.INVALID_MANIFEST, R.NOT_AVAILABLE, R.INVALID_DATA, R.DATA_OVERLAP, R.HELD_OUT_MOVED)


def _quota(spec: RunSpec, seen: Seen, suspended: bool) -> Condition:
    if suspended:
        return _condition(T.QUOTA_RESERVED, "False", R.SUSPENDED, "the run is suspended")
    if spec.queue is None:
        return _condition(T.QUOTA_RESERVED, "True", R.NO_QUEUE, "the run uses no queue")
    held = sorted(job.name for job in seen.jobs.values() if job.live and job.held)
    if held:
        said = f"queue {spec.queue.name} has not admitted Job {held[0]} yet"
        return _condition(T.QUOTA_RESERVED, "False", R.WAITING_FOR_QUOTA, said)
    return _condition(T.QUOTA_RESERVED, "True", R.RESERVED, f"queue {spec.queue.name} admitted its Jobs")


def _placed(seen: Seen, suspended: bool, over: bool) -> Condition:
    if suspended:
        return _condition(T.PODS_PLACED, "False", R.SUSPENDED, "the run is suspended")
    live = [job for job in seen.jobs.values() if job.live]
    for job in sorted(live, key=lambda job: job.name):
        if job.trouble is not None and job.trouble.reason in _UNPLACED:
            return _condition(T.PODS_PLACED, "False", Reason(job.trouble.reason), job.trouble.message)
    if not live and not over:
        return _condition(T.PODS_PLACED, "Unknown", R.NOT_STARTED, "no pod is asked for now")
    return _condition(T.PODS_PLACED, "True", R.PLACED, "every pod has a node or is being started")


_UNPLACED = (R.UNSCHEDULABLE.value, R.IMAGE_PULL_FAILED.value, R.WAITING_FOR_QUOTA.value)


def _engines(spec: RunSpec, seen: Seen, down: bool) -> Condition:
    used = engines_in_use(spec)
    if not used:
        return _condition(T.ENGINES_READY, "True", R.NO_ENGINES, "the run has none of its own")
    if down:
        return _condition(T.ENGINES_READY, "False", R.SCALED_DOWN, "they are taken down")
    missing = [name for name in used if name not in seen.engines]
    if missing:
        return _condition(
            T.ENGINES_READY, "Unknown", R.NOT_STARTED, f"not asked for yet: {', '.join(missing)}"
        )
    for name in used:
        engine = seen.engines[name]
        if not engine.replicas:
            return _condition(
                T.ENGINES_READY, "False", R.SCALED_DOWN, f"engine {name} is taken down: it was idle"
            )
        if not engine.ready:
            reason = R.CRASHING if engine.trouble and engine.trouble.reason == "Crashing" else R.STARTING
            said = engine.trouble.message if engine.trouble else "its servers load the model"
            return _condition(T.ENGINES_READY, "False", reason, f"engine {name}: {said}")
    counts = ", ".join(f"{n} {seen.engines[n].ready}/{seen.engines[n].replicas}" for n in used)
    return _condition(T.ENGINES_READY, "True", R.SERVING, f"servers ready: {counts}")


def _converging(memory: Memory) -> Condition:
    state = memory.run
    if state.best is None or state.last_select is None:
        return _condition(T.CONVERGING, "Unknown", R.NOT_EVALUATED, "heldOut was not scored yet")
    if state.evaluations_since_best:
        said = (
            f"{state.evaluations_since_best} evaluations without a better score than {state.best.select:.3f}"
        )
        return _condition(T.CONVERGING, "False", R.PLATEAU, said)
    return _condition(T.CONVERGING, "True", R.IMPROVING, f"best score on select {state.best.select:.3f}")


def _budget(memory: Memory) -> Condition:
    stop = memory.run.stop or memory.run.outcome
    if stop is None or stop.name != "BudgetExhausted":
        return _condition(T.BUDGET_EXHAUSTED, "False", R.WITHIN_BUDGET, "no limit is reached")
    reason = next((r for name, r in _SPENT.items() if name in stop.reason), R.ROLLOUTS_SPENT)
    return _condition(T.BUDGET_EXHAUSTED, "True", reason, stop.reason)


def _condition(type: ConditionType, status: str, reason: Reason, message: str) -> Condition:
    return Condition.model_validate({"type": type, "status": status, "reason": reason, "message": message})


def _dated(conditions: Iterator[Condition] | list[Condition], generation: int, now: str) -> list[Condition]:
    at = {"observed_generation": generation, "last_transition_time": now}
    return [condition.model_copy(update=at) for condition in conditions]


def _planned(memory: Memory, total: int, batch: int | None) -> int | None:
    state = memory.run
    if not total or not batch:
        return state.iteration or None
    if memory.ended:
        return state.iteration
    return state.iteration + math.ceil((total - state.examples_done) / batch)


def _eta(memory: Memory, total: int) -> float | None:
    """Seconds to the end, going by the pace of the iterations so far; as of the last change."""
    learned = sum(note.batch_size for note in memory.notes)
    if memory.ended or not learned or total <= memory.run.examples_done:
        return None
    pace = sum(note.seconds for note in memory.notes) / learned
    return round(pace * (total - memory.run.examples_done), 1)


def _last_change(memory: Memory) -> float:
    return max(memory.engines_since.values(), default=0.0)


def _held_out(memory: Memory) -> HeldOutStatus:
    state, facts = memory.run, memory.run.facts
    if facts is None:
        return HeldOutStatus()
    best = state.best
    return HeldOutStatus(
        digest=facts.digests.get("heldOut", ""),
        select_rows=facts.select_rows,
        gate_rows=facts.gate_rows,
        baseline=state.baseline_select,
        current=state.last_select,
        best=best.select if best else None,
        best_iteration=best.iteration if best and best.iteration >= 0 else None,
        evaluations_without_gain=state.evaluations_since_best,
    )


def _gate(memory: Memory) -> GateStatus | None:
    gate = memory.gate
    if gate is None:
        return None
    return GateStatus(
        baseline=gate.baseline,
        best=gate.best,
        gain=gate.gain,
        low=gate.low,
        high=gate.high,
        rows=gate.rows,
        discordant=gate.discordant,
    )


def _step(job: JobSeen) -> StepStatus:
    return StepStatus(name=job.name, kind=job.kind, shards=job.completions, succeeded=job.succeeded)
