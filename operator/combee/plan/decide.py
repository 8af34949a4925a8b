"""What a run does next, decided from the manifest, the state and what was observed. Pure.

    Profiling --profile--> Learning --(plan, map, reduce, finish)*--> Evaluating --evaluate--> Complete

With a serial baseline ``diagnose`` follows ``profile``, and may be the end.

Every call derives everything anew; calling it twice on the same facts gives the same Plan, and a
snapshot that is behind only makes it ask again for what is already there (names are
deterministic, so asking again is harmless).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from combee.algo.budget import Spend, fits
from combee.api.run import RunSpec, Workers
from combee.errors import BugError
from combee.names import step_name
from combee.plan import calibrated
from combee.plan.batching import next_batch
from combee.plan.diagnosis import Diagnosis, charged, of_curve, of_summary, refusal, wanted, with_defaults
from combee.plan.diversity import diversity_of
from combee.plan.engine import hardware_slots
from combee.plan.frozen import frozen
from combee.plan.spending import affordable, closing_cost, priced
from combee.plan.state import Best, RunState, after_iteration, after_profile, charge, limits_of
from combee.plan.types import IterationPlan, Outcome, Snapshot, Step, StepSummary
from combee.steps import DIAGNOSE, EVALUATE, ITERATION, PROFILE
from combee.strategies import leaf_calls, redundancy_of

EVALUATIONS_PER_RUN = 20
"""heldOut's select half is scored about this often in a run, whatever the batch size is, so that
strategies are compared at equal numbers of examples."""
CALLS_A_POD, SLOTS_A_POD = 1000, 256
"""The leaf calls and the slots from which on one more pod is worth its start in a reduce."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the run is: its name, and a uid that makes its steps' names unique."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What an executor has to make true. The steps of ``start`` may run side by side."""

    state: RunState
    freeze: IterationPlan | None = None
    """the plan to write before anything of its iteration starts; the first one written wins."""
    start: tuple[Step, ...] = ()
    then: tuple[Step, ...] = ()
    """the steps of the same iteration that follow, each reading what the one before leaves: an
    executor may place them early, so that they wait where they will run."""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Facts:
    spec: RunSpec
    who: Identity
    snapshot: Snapshot
    elapsed_seconds: float
    gpu_seconds: float = 0.0

    def step(self, kind: str, iteration: int, **kwargs: Any) -> Step:
        name = step_name(self.who.name, self.who.uid, iteration, kind)
        return Step(name=name, kind=kind, iteration=iteration, seed=self.spec.seed, **kwargs)

    def summary(self, step: Step) -> StepSummary | None:
        return self.snapshot.summaries.get(step.name)


def decide(
    *,
    spec: RunSpec,
    who: Identity,
    state: RunState,
    snapshot: Snapshot,
    elapsed_seconds: float,
    gpu_seconds: float = 0.0,
) -> Plan:
    """Return the next Plan. ``elapsed_seconds``: wall-clock seconds that the run has been active so far;
    ``gpu_seconds``: seconds times GPUs that its engines have held.

    The returned state already includes every finished step that the snapshot shows for the
    current position; an executor calls again until it gets steps to start or an outcome.
    """
    if state.outcome is not None:
        return Plan(state, outcome=state.outcome)
    facts = _Facts(spec, who, snapshot, elapsed_seconds, gpu_seconds)
    if state.phase == "Profiling":
        return _profile(facts, state)
    if state.phase == "Learning":
        return _learn(facts, state)
    return _evaluate(facts, state)


def _profile(facts: _Facts, state: RunState) -> Plan:
    if state.facts is not None:
        return _diagnose(facts, state)
    step = facts.step(PROFILE.name, 0)
    summary = facts.summary(step)
    if summary is None:
        return Plan(state, start=(step,))
    if summary.error:
        return _failed(state, summary)
    profiled = after_profile(state, summary)
    if calibrated.is_refuted(profiled):
        return _done(profiled, calibrated.refusal(profiled, summary))
    if wanted(facts.spec) and facts.snapshot.given_iterations is None:
        return Plan(replace(profiled, phase="Profiling"))
    return Plan(profiled)


def _diagnose(facts: _Facts, state: RunState) -> Plan:
    """Plan the diagnosis of serial learning, or read the stated curve; without a go nothing is learned."""
    baseline = facts.spec.serial_baseline
    if baseline is None or state.facts is None:
        raise BugError("a diagnosis follows profile, where a serial baseline is asked for")
    if baseline.curve:
        known, start = state.facts, state.baseline_select
        rows = known.train_rows, known.select_rows
        return _diagnosed(state, of_curve(facts.spec, start, *rows, known.gate_units))
    inputs = {"artifact": state.artifact, PROFILE.name: facts.step(PROFILE.name, 0).name}
    step = facts.step(DIAGNOSE.name, 0, inputs=inputs)
    summary = facts.summary(step)
    if summary is None:
        return Plan(state, start=(step,))
    if summary.error:
        return _failed(state, summary)
    return _diagnosed(charge(state, summary), of_summary(summary))


def _diagnosed(state: RunState, diagnosis: Diagnosis) -> Plan:
    state = replace(state, phase="Learning", diagnosis=charged(diagnosis, state.spend.rollouts))
    return Plan(state) if diagnosis.go else _done(state, refusal(diagnosis))


def _learn(facts: _Facts, state: RunState) -> Plan:
    plan = facts.snapshot.plans.get(state.iteration)
    stated, facts = facts, replace(facts, spec=effective(facts.spec, state))
    if plan is None or _not_ours(facts, state, plan):
        stop = _enough(facts, state) or _over_budget(stated, state) or _over_default(facts, state)
        if stop is not None:
            return Plan(replace(state, phase="Evaluating", stop=stop))
        return Plan(state, freeze=iteration_plan(facts.spec, state, facts.gpu_seconds))
    if plan.scored_by != state.scored_by:
        return _done(state, calibrated.misfit(state, plan))
    steps = iteration_steps(facts, state, plan)
    for position, step in enumerate(steps):
        summary = facts.summary(step)
        if summary is None:
            return Plan(state, start=(step,), then=steps[position + 1 :])
        if summary.error:
            done = [facts.snapshot.summaries[one.name] for one in steps[:position]]
            return _broken_off(stated, reduce(charge, done, state), summary)
    return Plan(after_iteration(state, plan, facts.snapshot.summaries[steps[-1].name]))


def _broken_off(facts: _Facts, state: RunState, summary: StepSummary) -> Plan:
    """Return what follows a step of an iteration that failed. Where a budget ended it, what was learned
    before is looked at with what was kept for that."""
    if summary.error != "BudgetExhausted":
        return _failed(state, summary)
    stop = Outcome("BudgetExhausted", summary.message)
    return _evaluate(facts, replace(charge(state, summary), phase="Evaluating", stop=stop))


def effective(spec: RunSpec, state: RunState) -> RunSpec:
    """Return ``spec`` with the defaults that a diagnosis gives: they bound what is planned, and nothing that
    is under way."""
    closing = closing_cost(state).rollouts
    return with_defaults(spec, state.diagnosis, state.baseline_select, closing)


def _over_default(facts: _Facts, state: RunState) -> Outcome | None:
    """Return that the rollouts which a diagnosis allows are used up. Nobody stated them, so it is no budget
    that ran out."""
    if _over_budget(facts, state) is None:
        return None
    return Outcome("Done", "four times the rollouts of the serial learner to its plateau are used")


def _enough(facts: _Facts, state: RunState) -> Outcome | None:
    """Return why learning stops, other than for the budget, or None when it goes on.

    Given plans are obeyed before anything else, and the budget is asked last: a run that has converged is not
    reported as one that ran out of money.
    """
    given, done = facts.snapshot.given_iterations, state.examples_done
    epochs, stopping, best = facts.spec.method.epochs, facts.spec.stopping, state.best
    if given is not None and state.iteration >= given:
        return Outcome("Done", given_are_done(given))
    if state.epoch >= epochs:
        times = f"{epochs} epoch{'s' if epochs > 1 else ''}"
        return Outcome("Done", f"{times} of {done // epochs} examples done")
    if given is not None:
        return None
    if stopping.target_score is not None and best is not None and best.select >= stopping.target_score:
        return Outcome("Done", f"select is at {best.select:.3f}, the target is {stopping.target_score:g}")
    if state.evaluations_since_best >= stopping.patience:
        return Outcome("Done", f"select has not improved in {stopping.patience} evaluations")
    return None


def given_are_done(plans: int) -> str:
    """Return the reason why a run ended that obeyed so many given plans: without them it would go on."""
    return f"all {plans} given iteration plans are done"


def _not_ours(facts: _Facts, state: RunState, plan: IterationPlan) -> bool:
    """Return whether the plan was left behind for an iteration that the given plans do not have."""
    given = facts.snapshot.given_iterations
    return given is not None and plan.iteration >= given


def iteration_steps(facts: _Facts, state: RunState, plan: IterationPlan) -> tuple[Step, ...]:
    """Return the steps of one iteration, each of which reads what those before it left."""
    steps: dict[str, Step] = {}
    for kind in ITERATION:
        inputs = {"artifact": state.artifact, **{name: steps[name].name for name in kind.waits_for}}
        if kind.sums_up:
            inputs[PROFILE.name] = facts.step(PROFILE.name, 0).name
        steps[kind.name] = facts.step(kind.name, plan.iteration, shards=plan.pods(kind), inputs=inputs)
    return tuple(steps.values())


def iteration_plan(spec: RunSpec, state: RunState, gpu_seconds: float = 0.0) -> IterationPlan:
    """Freeze the decisions of the next iteration. ``gpu_seconds``: as of ``decide``."""
    if state.facts is None:
        raise BugError("an iteration is planned after profile")
    batch = next_batch(spec, state, affordable=affordable(spec, state, gpu_seconds))
    aggregation = spec.method.stated.aggregation(spec.aggregation)
    variants = min(spec.method.variants_in_flight, batch.size)
    slots, _ = hardware_slots(spec)
    redundancy = redundancy_of(aggregation, -(-batch.size // variants), slots)
    return frozen(
        spec,
        aggregation,
        redundancy,
        iteration=state.iteration,
        epoch=state.epoch,
        offset=state.offset,
        batch_size=batch.size,
        batch_reason=batch.reason,
        in_order=aggregation.traits.in_order,
        shards=shards_of(spec.workers, batch.size),
        evaluate=evaluation_due(spec, state, state.examples_done + batch.size),
        token_factor=round(state.token_factor, 4),
        trial=batch.trial,
        variants=variants,
        diversity=diversity_of(spec, state),
        scored_by=state.scored_by,
        reduce_shards=reduce_shards_of(spec.workers, leaf_calls(aggregation, redundancy, batch.size), slots),
    )


def shards_of(workers: Workers, examples: int) -> int:
    """Return the number of pods of a map: no more than there are examples, or limits to share. Each pod gets
    at least one call in flight and one request a minute, so that more pods would exceed the run's limits."""
    limits = (workers.parallelism, examples, workers.concurrency, workers.requests_per_minute)
    return min(limit for limit in limits if limit is not None)


def reduce_shards_of(workers: Workers, leaves: int, slots: int) -> int:
    """Return the number of pods that reduce a batch together: as many as have calls and slots enough to be
    worth their start, within the limits of a map's."""
    return max(1, shards_of(workers, min(leaves // CALLS_A_POD, slots // SLOTS_A_POD)))


def evaluation_due(spec: RunSpec, state: RunState, done: int) -> bool:
    """Return whether the iteration that ends at ``done`` examples passes the next mark of the grid."""
    if state.facts is None or not state.facts.select_rows:
        return False
    total = state.facts.train_rows * spec.method.epochs
    grid = spec.stopping.evaluate_every or max(1, total // EVALUATIONS_PER_RUN)
    return done >= total or done // grid > state.evaluated_at // grid


def _over_budget(facts: _Facts, state: RunState) -> Outcome | None:
    limits = limits_of(facts.spec)
    spent, per_example, closing = priced(facts.spec, state, facts.gpu_seconds)
    spent = replace(
        spent,
        wall_clock_seconds=max(spent.wall_clock_seconds, facts.elapsed_seconds),
        gpu_seconds=max(spent.gpu_seconds, facts.gpu_seconds),
    )
    exceeded = fits(spent, Spend(), limits)
    if exceeded is not None:
        return Outcome("BudgetExhausted", exceeded.is_spent)
    if facts.snapshot.given_iterations is not None:
        return None
    # The first iteration is tried whatever it takes, the next ones if they can take as long as the last.
    seconds = state.iteration_seconds and state.iteration_seconds + state.look_seconds
    short = fits(spent, per_example + closing + Spend(wall_clock_seconds=seconds), limits)
    if short is None:
        return None
    left = (
        f"what is left of budget.{short.name} does not pay for another iteration and the closing evaluation"
    )
    return Outcome("BudgetExhausted", left)


def _evaluate(facts: _Facts, state: RunState) -> Plan:
    """Plan one look at gate (and test) for the best artifact, unless it is the one the run started from."""
    best, stop = state.best, state.stop
    if best is None or stop is None:
        raise BugError("the closing evaluation follows learning")
    if state.facts is not None and not state.facts.held_out_rows:
        return _done(state, _unscored(state, best, stop))
    if best.iteration < 0:
        return _done(state, _no_gain(state, stop))
    step = facts.step(EVALUATE.name, state.iteration, inputs={"artifact": best.artifact})
    summary = facts.summary(step)
    if summary is None:
        return Plan(state, start=(step,))
    if summary.error:
        return _failed(state, summary)
    state = charge(state, summary)
    verdict = gated(summary.scores, stop)
    return _done(state, replace(verdict, name=stop.name) if stop.name == "BudgetExhausted" else verdict)


def gated(scores: Mapping[str, float], stop: Outcome) -> Outcome:
    """Return what the look at gate shows: a gain, one that chance could make, or none."""
    gain, low, high = scores["gateBest"] - scores["gateBaseline"], scores["gateLow"], scores["gateHigh"]
    if gain <= 0:
        reason = f"the best artifact on select does not hold on gate ({gain:+.3f}); {stop.reason}"
        return Outcome("NothingBetter", reason)
    rose = f"held-out gate rose by {gain:+.3f} (95 % interval {low:+.3f} to {high:+.3f})"
    if low > 0:
        return Outcome("Learned", f"{rose}; {stop.reason}")
    return Outcome("Unsure", f"{rose}, a gain that chance could make; {stop.reason}")


def _no_gain(state: RunState, stop: Outcome) -> Outcome:
    if stop.name == "BudgetExhausted":
        return stop
    start = f"{state.baseline_select:.3f}"
    return Outcome("NothingBetter", f"no playbook scored above the start ({start}) on select; {stop.reason}")


def _unscored(state: RunState, best: Best, stop: Outcome) -> Outcome:
    """Return how a run without heldOut ended: whether it learned anything new."""
    if stop.name == "BudgetExhausted":
        return stop
    if best.iteration < 0:
        advice = "a lesson is shown once two traces support it, or with aggregation.verify: Off"
        return Outcome("NothingBetter", f"no lesson came to be shown: {advice}; {stop.reason}")
    learned = f"learned from {state.examples_done:,} traces"
    return Outcome("Learned", f"{learned}, and scored on nothing; {stop.reason}")


def _done(state: RunState, outcome: Outcome) -> Plan:
    return Plan(replace(state, phase="Complete", outcome=outcome), outcome=outcome)


def _failed(state: RunState, summary: StepSummary) -> Plan:
    name = "BudgetExhausted" if summary.error == "BudgetExhausted" else "Failed"
    reason = summary.message or f"step {summary.step} failed: {summary.error}"
    return _done(charge(state, summary), Outcome(name, reason))
