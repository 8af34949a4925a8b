"""The whole life of a run on a cluster, decided from one tick's facts. Pure.

    Pending -> queue -> engines -> profile -> (map, reduce, finish)* -> evaluate -> publish -> over

The learning itself is ``plan.decide``, the same as on a laptop. Here its steps become Jobs: which are
there by now, which may be placed early, which are tried again, and when engines hold their GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from combee.api.run import RunSpec
from combee.names import attempt_name, published_name, step_name
from combee.plan import calibrated
from combee.plan.cluster.engines import (
    EngineWish,
    account,
    clocks_of,
    deadline,
    engines_down,
    engines_wished,
    held_back_whole,
    with_services,
)
from combee.plan.cluster.jobs import Upkeep, look_after, settled, wanted_jobs
from combee.plan.cluster.memory import Gate, IterationNote, Memory
from combee.plan.cluster.mending import asks_nobody, mended, met_damage, step_again
from combee.plan.cluster.published import told_digests
from combee.plan.cluster.queues import not_admitted
from combee.plan.cluster.rollouts import RolloutsWish, next_look, rollouts_down, rollouts_wished
from combee.plan.cluster.seen import QueueSeen, Seen
from combee.plan.decide import Identity, Plan, decide
from combee.plan.playbook.changed import unexplained
from combee.plan.state import RunState
from combee.plan.types import Clocks, IterationPlan, Outcome, Snapshot, Step, StepSummary
from combee.steps import FINISH, ITERATION, KINDS, PUBLISH, kind_of

QueueWish = Literal["", "Join", "TellReady", "GiveBack", "Leave"]
"""What to do about the run's place in its queue; empty: nothing."""
MAX_NOTES = 20


@dataclass(frozen=True, slots=True)
class JobWish:
    """A Job that should be there: the step it does, and the attempt."""

    step: Step
    attempt: int

    @property
    def name(self) -> str:
        return attempt_name(self.step.name, self.attempt)


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What the executor has to make true, in this order: freeze, delete, engines, jobs, rollouts, queue,
    expire."""

    memory: Memory
    freeze: IterationPlan | None = None
    """the plan to write, or to read back where there is one. Then decide again with it beside the plans that
    were seen: the memory may still be of the previous iteration."""
    clocks: Clocks = field(default_factory=Clocks)
    """what the clocks showed when ``freeze`` was decided."""
    jobs: tuple[JobWish, ...] = ()
    """the Jobs to make unless they are there."""
    delete: tuple[str, ...] = ()
    expire: tuple[str, ...] = ()
    """finished Jobs whose results are in the memory that was written: they may expire after a while."""
    engines: Mapping[str, EngineWish] = field(default_factory=dict)
    rollouts: RolloutsWish = field(default_factory=RolloutsWish)
    queue: QueueWish = ""
    outcome: Outcome | None = None
    wake_after_seconds: float | None = None
    """the seconds until the next look, even if nothing happens."""
    waiting: str = ""
    """what the run waits for, in words, when nothing can be started now."""
    held: str = ""
    """why nothing may be learned until a person says something; empty where it may."""


@dataclass(frozen=True, slots=True)
class Run:
    """Who and what the tick is about. ``playbook``: the Playbook it learns for, if any."""

    who: Identity
    spec: RunSpec

    @property
    def playbook(self) -> str:
        """The name of the Playbook that gets the result as a candidate; the run's own where there is none."""
        return self.spec.playbook_ref.name if self.spec.playbook_ref else self.who.name


def decide_cluster(run: Run, memory: Memory, seen: Seen) -> ClusterPlan:
    """Return the next ClusterPlan. Deciding again on the same facts gives the same plan; facts that are
    behind only make it ask again for what is there."""
    finished = settled(memory, seen)
    if memory.ended:
        return _over(memory, seen, finished)
    if seen.suspend:
        return _suspended(run, memory, seen, finished)
    if seen.queue is not None and not seen.queue.admitted:
        if held := _held(memory, seen):
            return replace(_suspended(run, memory, seen, finished), held=held)
        return _queued(run, memory, seen, seen.queue, finished)
    memory = with_services(_clocked(run, memory, seen), seen)
    upkeep = look_after(memory, seen)
    memory = met_damage(run.who, run.spec.seed, upkeep.memory, seen, upkeep.summaries)
    if memory != upkeep.memory:  # of the attempts before, nothing is read any more
        upkeep = look_after(memory, seen)
    memory, unmended = mended(run.spec, upkeep.memory, upkeep.summaries, seen.now)
    if (failed := upkeep.failed or unmended) is not None:
        return _ended(run, memory, failed, seen, finished)
    if (again := step_again(run.who, run.spec.seed, memory, memory.mending)) is not None:
        at_work = _at_work(run, memory, seen, (again,))
        return replace(at_work, delete=(*upkeep.delete, *at_work.delete), expire=finished)
    memory, plan = _fold(run, memory, seen, upkeep.summaries)
    start = plan.start
    if held := _held(memory, seen):
        return replace(_suspended(run, memory, seen, finished), held=held)
    if plan.outcome is not None:
        published = _published(run, memory, plan.outcome, upkeep.summaries)
        memory = replace(memory, published=published.config_map, content_digests=published.digests)
        if published.step is None:
            return _ended(run, memory, published.outcome, seen, finished)
        start = (published.step,)
    elif (passed := deadline(run.spec, memory, seen.now).passed) is not None:
        return _ended(run, memory, passed, seen, finished)
    elif plan.freeze is not None:
        to_freeze = _to_freeze(run, memory, seen, upkeep, plan.freeze, finished)
        return replace(to_freeze, clocks=clocks_of(run.spec, memory, seen.now))
    at_work = _at_work(run, memory, seen, (start[0], *plan.then))
    return replace(at_work, delete=(*upkeep.delete, *at_work.delete), expire=finished)


def _held(memory: Memory, seen: Seen) -> str:
    """Return why nothing may be learned from these rows yet. It is asked once heldOut was read, until the
    first plan is frozen."""
    state = memory.run
    if (
        seen.looks is None
        or state.facts is None
        or state.iteration
        or seen.plans
        or state.outcome is not None
    ):
        return ""
    return unexplained(seen.looks, state.facts.digests.get("heldOut", ""))


def _clocked(run: Run, memory: Memory, seen: Seen) -> Memory:
    """Return the memory with the run's own clock going, or stopped while the cluster holds the run back."""
    memory = replace(memory, started=memory.started or seen.now)
    if held_back_whole(seen):
        return memory.paused(seen.now)
    return replace(memory, active_since=memory.active_since or seen.now)


def _to_freeze(
    run: Run, memory: Memory, seen: Seen, upkeep: Upkeep, plan: IterationPlan, finished: tuple[str, ...]
) -> ClusterPlan:
    """Plan to write an iteration's plan. Nothing of the iteration starts before that but its engines."""
    engines = engines_wished(run.spec, memory, seen, due=True, uid=run.who.uid)
    memory = account(run.spec, engines.memory, engines.wishes, seen)
    return ClusterPlan(memory, freeze=plan, delete=upkeep.delete, engines=engines.wishes, expire=finished)


def _at_work(run: Run, memory: Memory, seen: Seen, steps: tuple[Step, ...]) -> ClusterPlan:
    """Plan the Jobs and engines for the first of ``steps``, which is due, and for those that follow it."""
    due, *then = steps
    keeps = due.name == memory.mending and asks_nobody(memory)
    asks = KINDS[due.kind].asks_models and not keeps
    engines = engines_wished(run.spec, memory, seen, due=asks, keeps=keeps, uid=run.who.uid)
    memory = account(run.spec, engines.memory, engines.wishes, seen)
    jobs = wanted_jobs(run.spec, memory, seen, due, tuple(then), may_start=engines.may_start or keeps)
    memory = jobs.memory
    seconds_left = deadline(run.spec, memory, seen.now).seconds_left
    wakes = (engines.wake_after_seconds, jobs.wake_after_seconds, next_look(seen), seconds_left)
    return ClusterPlan(
        memory,
        jobs=tuple(JobWish(step, memory.attempt(step.name)) for step in jobs.steps),
        delete=jobs.delete,
        engines=engines.wishes,
        rollouts=rollouts_wished(run.spec, seen, due),
        queue="TellReady" if _came_up(seen) else "",
        wake_after_seconds=min((seconds for seconds in wakes if seconds is not None), default=None),
        waiting=engines.waiting or jobs.waiting,
    )


def _fold(run: Run, memory: Memory, seen: Seen, summaries: Mapping[str, StepSummary]) -> tuple[Memory, Plan]:
    """Take every finished step into the memory, until something is to be done. With an outcome, the
    best playbook is published before the run is over."""
    snapshot, clocks = Snapshot(summaries, seen.plans), clocks_of(run.spec, memory, seen.now)
    while True:
        plan = decide(
            spec=run.spec,
            who=run.who,
            state=memory.run,
            snapshot=snapshot,
            elapsed_seconds=clocks.elapsed_seconds,
            gpu_seconds=clocks.gpu_seconds,
        )
        planned = memory.run.iteration in seen.plans
        if memory.run.stop is None and plan.state.stop is not None and not planned:
            # Inside an iteration it was the step's pod that stopped: its plan was decided by other clocks.
            memory = replace(memory, stopped=clocks)
        if plan.outcome is not None:
            failed = next((s.error for s in summaries.values() if s.error), "")
            failed = failed or calibrated.code_of(plan.state)
            state = replace(plan.state, phase="Publishing")
            return replace(_with_gate(memory, summaries), run=state, error=failed), plan
        memory = _noted(run, memory, plan.state, summaries, seen)
        if plan.freeze is not None or plan.start:
            return memory, plan


def _noted(
    run: Run, memory: Memory, after: RunState, summaries: Mapping[str, StepSummary], seen: Seen
) -> Memory:
    """Return the memory with ``after`` and what a person wants to know of the way there."""
    before = memory.run

    def named(kind: str) -> str:
        return step_name(run.who.name, run.who.uid, before.iteration, kind)

    if before.phase == "Profiling" and after.phase != "Profiling":
        settled = {named(kind.name) for kind in KINDS.values() if kind.phase == "Profiling"}
        memory = replace(memory.settled(settled), baseline=after.artifact)
    if after.iteration > before.iteration:
        note = IterationNote.of(seen.plans[before.iteration], after, summaries[named(FINISH.name)])
        memory = memory.settled({named(kind.name) for kind in ITERATION})
        memory = replace(memory, notes=(*memory.notes, note)[-MAX_NOTES:], damaged="")
    return replace(memory, run=after)


def _with_gate(memory: Memory, summaries: Mapping[str, StepSummary]) -> Memory:
    summary = next((s for s in summaries.values() if kind_of(s.kind).looks_at_gate and not s.error), None)
    if summary is None:
        return memory
    scores, counts = summary.scores, summary.counts
    gate = Gate(
        baseline=scores["gateBaseline"],
        best=scores["gateBest"],
        low=scores["gateLow"],
        high=scores["gateHigh"],
        rows=counts["gateRows"],
        discordant=counts["gateDiscordant"],
    )
    return replace(memory, gate=gate, test=scores.get("testBest"), record=summary.outputs.get("record", ""))


@dataclass(frozen=True, slots=True)
class _Published:
    """Where the best playbook is, or the step that will put it there, and how the run ends."""

    outcome: Outcome
    config_map: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)
    step: Step | None = None


def _published(
    run: Run, memory: Memory, outcome: Outcome, summaries: Mapping[str, StepSummary]
) -> _Published:
    """Return what is published: nothing unless gate rose, or nothing scores and something was learned."""
    facts, best = memory.run.facts, memory.run.best
    unscored = facts is not None and not facts.held_out_rows and best is not None and best.iteration >= 0
    better = memory.gate is not None and memory.gate.gain > 0
    if outcome.name not in ("Learned", "Unsure", "BudgetExhausted") or not (better or unscored):
        return _Published(outcome)
    step = publish_step(run, memory)
    summary = summaries.get(step.name)
    if summary is None:
        return _Published(outcome, step=step)
    if summary.error:
        return _Published(Outcome("Failed", summary.message or f"step {step.name} failed: {summary.error}"))
    return _Published(outcome, summary.outputs["configMap"], told_digests(summary.outputs))


def publish_step(run: Run, memory: Memory) -> Step:
    best = memory.run.best
    digest = best.artifact if best is not None else ""
    findings = {"findings": best.findings} if best is not None and best.findings else {}
    digests = memory.run.facts.digests if memory.run.facts else {}
    named = {"playbook": run.playbook, "digest": digest, "name": published_name(run.playbook, digest)}
    return Step(
        name=step_name(run.who.name, run.who.uid, memory.run.iteration, PUBLISH.name),
        kind=PUBLISH.name,
        iteration=memory.run.iteration,
        seed=run.spec.seed,
        inputs={"artifact": digest, "record": memory.record, **findings},
        params={**named, **{split: digests.get(split, "") for split in ("heldOut", "train")}},
    )


def _suspended(run: Run, memory: Memory, seen: Seen, finished: tuple[str, ...]) -> ClusterPlan:
    """Plan a pause of a person's, through which the run keeps no place in its queue."""
    return _leaving(_paused(run, memory, seen, finished), seen)


def _leaving(plan: ClusterPlan, seen: Seen) -> ClusterPlan:
    """Return a plan after which nothing works, with the run's place left once nothing is seen of what it
    counts. Until the place is gone somebody looks again: its last pods may take a while to end."""
    placed = seen.queue is not None and seen.queue.made
    if not placed or plan.wake_after_seconds is not None:
        return plan
    return replace(plan, queue="Leave", wake_after_seconds=1.0)


def _queued(run: Run, memory: Memory, seen: Seen, queue: QueueSeen, finished: tuple[str, ...]) -> ClusterPlan:
    """Plan to wait for the queue: first nothing is left of what it counts, then the place that it took back
    is given back, or a new one is asked for."""
    pause = _paused(run, replace(memory, started=memory.started or seen.now), seen, finished)
    pause = replace(pause, waiting=not_admitted(run.spec, queue))
    if pause.wake_after_seconds is not None or queue.lacks:
        return pause
    if queue.stale:
        return _leaving(pause, seen)
    if queue.made:
        wish: QueueWish = "GiveBack" if queue.evicted else ""
        return replace(pause, queue=wish, wake_after_seconds=1.0 if wish else None)
    # What is asked for follows from the spec, which can be changed until the status has a time of the start.
    return replace(pause, queue="Join" if memory.started else "", wake_after_seconds=1.0)


def _came_up(seen: Seen) -> bool:
    """Return whether a pod of a step is at work for the first time since the queue admitted the run."""
    news = seen.queue is not None and not seen.queue.ready
    return news and any(job.ready for job in seen.jobs.values())


def _paused(run: Run, memory: Memory, seen: Seen, finished: tuple[str, ...]) -> ClusterPlan:
    """Plan a pause: live Jobs are deleted (the memo makes doing them again cheap), engines free GPUs. Those
    of a run in a queue are deleted, since it may send them elsewhere next time."""
    down = engines_down(memory, seen)
    memory = account(run.spec, memory, down, seen)
    holding = any(engine.replicas for engine in seen.engines.values())
    if run.spec.queue is not None:
        down = {name: EngineWish(0, remove=True) for name in sorted({*seen.engines, *seen.fetching})}
        holding = bool(down)
    memory = replace(memory.paused(seen.now), unplaced_since=0.0, idle_since=0.0)
    live = tuple(sorted(job.name for job in seen.jobs.values() if job.live))
    return ClusterPlan(
        memory,
        delete=live,
        expire=finished,
        engines=down,
        rollouts=rollouts_down(seen),
        wake_after_seconds=1.0 if live or holding or seen.rollouts else None,
    )


def _ended(run: Run, memory: Memory, outcome: Outcome, seen: Seen, finished: tuple[str, ...]) -> ClusterPlan:
    memory = account(run.spec, memory, {}, seen)
    memory = replace(
        memory.paused(seen.now),
        run=replace(memory.run, phase="Complete", outcome=outcome),
        ended=seen.now,
        attempts={},
        mending="",
        failures={},
        lost={},
        in_turn=(),
        unplaced_since=0.0,
        idle_since=0.0,
        halfway_since=0.0,
        let_go_until=0.0,
    )
    return _over(memory, seen, finished)


def _over(memory: Memory, seen: Seen, finished: tuple[str, ...]) -> ClusterPlan:
    """Plan the end of a run: engines and live Jobs go, and then its place in its queue; finished Jobs stay a
    while, to be looked at."""
    live = tuple(sorted(job.name for job in seen.jobs.values() if job.live))
    engines = {name: EngineWish(replicas=0, remove=True) for name in sorted({*seen.engines, *seen.fetching})}
    over = ClusterPlan(
        memory,
        delete=live,
        expire=finished,
        engines=engines,
        rollouts=rollouts_down(seen),
        outcome=memory.run.outcome,
        wake_after_seconds=1.0 if live or engines or seen.rollouts else None,
    )
    return _leaving(over, seen)
