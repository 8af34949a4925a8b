"""What a run on a cluster says about itself, from its memory and one tick's facts. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

from combee.api.conditions import ConditionType, Reason, merge
from combee.api.run import RunSpec
from combee.api.status import (
    DelayObservation,
    DiagnosisStatus,
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
from combee.plan.cluster.engines import gpu_seconds
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen, Seen
from combee.plan.cluster.standing import condition, conditions, dated, standing
from combee.plan.diagnosis import words
from combee.plan.money import money_of
from combee.plan.parallelism import parallelism_of
from combee.plan.remaining import seconds_left

T = ConditionType

When = Callable[[float], str]
"""Writes seconds since 1970 as the API writes times; empty for 0."""


@dataclass(frozen=True, slots=True)
class About:
    """The run that a status is about."""

    spec: RunSpec
    generation: int
    manifest_digest: str
    image: str
    """the image that its worker pods are made from."""
    algorithm: str
    when: When


def refused_status(before: RunStatus, generation: int, reason: Reason, message: str, now: str) -> RunStatus:
    """Return the status of a run whose plan is not accepted: it waits for a better spec."""
    statuses = {T.READY: "False", T.RECONCILING: "False", T.STALLED: "True", T.PLAN_ACCEPTED: "False"}
    new = [condition(type, status, reason, message) for type, status in statuses.items()]
    refused = {
        "observed_generation": generation,
        "phase": Phase.REFUSED,
        "message": message,
        "conditions": merge(before.conditions, dated(new, generation, now)),
    }
    return bounded(before.model_copy(update=refused))


def run_status(about: About, before: RunStatus, plan: ClusterPlan, seen: Seen) -> RunStatus:
    """Return the status after a tick. Equal facts give an equal status: nothing in it moves with the clock
    alone, or every write would cause the next. What GPUs have cost is told as of the last other change."""
    memory, spec = plan.memory, about.spec
    state = memory.run
    end = standing(memory, plan, seen)
    facts = state.facts
    total = facts.train_rows * spec.method.epochs if facts else 0
    frozen = seen.plans.get(state.iteration) or plan.freeze
    status = RunStatus(
        observed_generation=about.generation,
        phase=end.phase,
        message=end.message,
        conditions=merge(
            before.conditions,
            dated(conditions(about.spec, memory, plan, seen, end), about.generation, about.when(seen.now)),
        ),
        start_time=about.when(memory.started) or None,
        completion_time=about.when(memory.ended) or None,
        epoch=state.epoch,
        iteration=state.iteration,
        iterations_planned=_planned(memory, total, frozen.batch_size if frozen else None),
        examples_done=state.examples_done,
        examples_planned=total,
        eta_seconds=_eta(about, memory, frozen.batch_size if frozen else 0),
        batch_size=frozen.batch_size if frozen else before.batch_size,
        batch_reason=frozen.batch_reason if frozen else before.batch_reason,
        held_out=_held_out(memory),
        gain=_gain(memory),
        diagnosis=_diagnosis(memory),
        shape=parallelism_of(spec, memory.run),
        gate=_gate(memory),
        test_score=memory.test,
        usage=_usage(memory),
        spend=_spend(spec, memory, seen.now),
        history=_history(memory),
        delay_observations=_observations(memory),
        artifact_digest=state.artifact,
        best_digest=state.best.artifact if state.best else "",
        resolved={**before.resolved, **_resolved(memory)},
        pinned=_pinned(about, memory),
        steps=tuple(_step(job) for job in sorted(seen.jobs.values(), key=lambda j: j.name) if job.open),
        attempts=dict(memory.attempts),
        published=memory.published,
        state=memory.to_status(),
    )
    figures = shown(status, spec.budget.rollouts, spec.budget.money)
    return _unless_same(before, bounded(status.model_copy(update={"shown": figures})))


def _unless_same(before: RunStatus, status: RunStatus) -> RunStatus:
    """Return ``status``, or what was before where no more than the cost of GPUs has moved."""
    same = status.model_copy(update={"spend": before.spend, "shown": before.shown})
    return same if same == before else status


def _gain(memory: Memory) -> float | None:
    best, facts = memory.run.best, memory.run.facts
    if best is None or best.iteration < 0 or facts is None or not facts.held_out_rows:
        return None
    return best.select - memory.run.baseline_select


def _pinned(about: About, memory: Memory) -> Pinned:
    facts = memory.run.facts
    return Pinned(
        manifest_digest=about.manifest_digest,
        data_digests=facts.digests if facts else {},
        image=about.image,
        algorithm=about.algorithm,
    )


def _resolved(memory: Memory) -> dict[str, str]:
    engines = memory.nodes.hardware.items()
    return {f"engines.{name}.hardware": f"{words} (labels of nodes)" for name, words in engines}


def _usage(memory: Memory) -> dict[str, RoleUsage]:
    return {
        role: RoleUsage(**{**asdict(usage), "calls": usage.calls - usage.hits})
        for role, usage in memory.run.usage.items()
    }


def _spend(spec: RunSpec, memory: Memory, now: float) -> SpendStatus:
    spent = memory.run.spend
    held_seconds = gpu_seconds(spec, memory, memory.ended or now)
    money = money_of(spec, memory.run.usage, held_seconds)
    return SpendStatus(
        rollouts=spent.rollouts,
        tokens=spent.tokens,
        gpu_seconds=round(held_seconds, 1),
        wall_clock_seconds=round(spent.wall_clock_seconds, 1),
        money=round(money, 4) if spec.prices is not None else None,
        currency=spec.prices.currency if spec.prices is not None else "",
    )


def _observations(memory: Memory) -> tuple[DelayObservation, ...]:
    return tuple(
        DelayObservation(batch_size=observation.batch_size, seconds=observation.seconds)
        for observation in memory.run.observations
        if observation.seconds > 0
    )


def _history(memory: Memory) -> tuple[IterationStatus, ...]:
    best = memory.run.best
    rows = (asdict(note) for note in memory.notes)
    return tuple(
        IterationStatus(
            train_score=row.pop("train"),
            artifact_digest=row.pop("artifact"),
            best=best is not None and best.iteration == row["iteration"],
            **row,
        )
        for row in rows
    )


def _planned(memory: Memory, total: int, batch: int | None) -> int | None:
    state = memory.run
    if not total or not batch:
        return state.iteration or None
    if memory.ended:
        return state.iteration
    return state.iteration + math.ceil((total - state.examples_done) / batch)


def _eta(about: About, memory: Memory, batch_size: int) -> float | None:
    """Return the seconds to the end as of the last change."""
    left = seconds_left(about.spec, memory.run, batch_size)
    return None if memory.ended or left is None else round(left, 1)


def _held_out(memory: Memory) -> HeldOutStatus:
    state, facts = memory.run, memory.run.facts
    if facts is None or not facts.held_out_rows:
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


def _diagnosis(memory: Memory) -> DiagnosisStatus | None:
    one = memory.run.diagnosis
    if one is None:
        return None
    return DiagnosisStatus(
        verdict=one.verdict,
        message=words(one),
        level=one.reading.level,
        low=one.reading.low,
        high=one.reading.high,
        plateau_rollouts=one.plateau_rollouts,
        examples=one.examples,
        rollouts=one.rollouts,
    )


def _gate(memory: Memory) -> GateStatus | None:
    gate = memory.gate
    return None if gate is None else GateStatus(**asdict(gate), gain=gate.gain)


def _step(job: JobSeen) -> StepStatus:
    return StepStatus(
        name=job.name,
        kind=job.kind,
        shards=job.completions,
        succeeded=job.succeeded,
        failed=job.replaced,
        since=job.since,
    )
