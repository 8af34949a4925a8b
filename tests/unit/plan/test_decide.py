"""decide() as a table: state and snapshot in, Plan out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from combee.algo.budget import Spend
from combee.api.load import parse_run
from combee.api.run import RunSpec, Workers
from combee.plan.decide import (
    Identity,
    decide,
    evaluation_due,
    iteration_plan,
    reduce_shards_of,
    shards_of,
)
from combee.plan.observed import Observed
from combee.plan.spending import kept_for_look
from combee.plan.state import Best, DataFacts, RunState
from combee.plan.types import IterationPlan, Outcome, RoleUsage, Snapshot, StepSummary

WHO = Identity("formula", "3fa9c1d2")
FACTS = DataFacts(
    train_rows=100, select_rows=20, gate_rows=20, test_rows=0, digests={"train": "t", "heldOut": "h"}
)


def spec(**changes: object) -> RunSpec:
    model = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}
    base: dict[str, object] = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE"},
        "models": {"task": model, "proposer": model},
        **changes,
    }
    manifest = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "formula"},
    }
    return parse_run({**manifest, "spec": base}, "test").spec


FIXED = {"mode": "Fixed", "size": 50, "reason": "test"}


def ask(state: RunState, snapshot: Snapshot | None = None, elapsed_seconds: float = 0.0, **changes: object):
    return decide(
        spec=spec(batching=FIXED, **changes),
        who=WHO,
        state=state,
        snapshot=snapshot or Snapshot(),
        elapsed_seconds=elapsed_seconds,
    )


def profile(**changes: object) -> StepSummary:
    return replace(
        StepSummary(
            step="formula-3fa9c1d2-i000-profile-a0",
            kind="profile",
            outputs={"artifact": "A0", "train": "t", "heldOut": "h"},
            counts={"train": 100, "select": 20, "gate": 20, "test": 0, "rollouts": 20},
            scores={"select": 0.5},
            usage={"task": RoleUsage(20, 0, 2000, 200, 0)},
        ),
        **changes,
    )


def finish(iteration: int, **changes: object) -> StepSummary:
    return replace(
        StepSummary(
            step=f"formula-3fa9c1d2-i{iteration:03d}-finish-a0",
            kind="finish",
            outputs={"artifact": f"A{iteration + 1}"},
            counts={"rollouts": 70, "evaluated": 20, "iteration": iteration},
            scores={"select": 0.6},
            observations=((50, 3.0),),
        ),
        **changes,
    )


LEARNING = RunState(
    phase="Learning",
    facts=FACTS,
    artifact="A0",
    baseline_select=0.5,
    last_select=0.5,
    best=Best("A0", 0.5, -1),
)


def plan(iteration: int = 0, **changes: object) -> IterationPlan:
    return replace(iteration_plan(spec(batching=FIXED), LEARNING), iteration=iteration, **changes)


def done(*kinds_of: tuple[int, str]) -> dict[str, StepSummary]:
    names = {(i, k): f"formula-3fa9c1d2-i{i:03d}-{k}-a0" for i, k in kinds_of}
    return {name: finish(i) if k == "finish" else StepSummary(name, k) for (i, k), name in names.items()}


def test_a_new_run_profiles() -> None:
    got = ask(RunState())
    assert [(step.name, step.kind) for step in got.start] == [("formula-3fa9c1d2-i000-profile-a0", "profile")]
    assert got.freeze is None and got.outcome is None


def test_profile_pins_the_data_and_scores_the_start() -> None:
    got = ask(RunState(), Snapshot({profile().step: profile()}))
    assert got.state.phase == "Learning"
    assert got.state.facts == DataFacts(100, 20, 20, 0, {"train": "t", "heldOut": "h"})
    assert got.state.best == Best("A0", 0.5, -1)
    assert got.state.spend == Spend(rollouts=20, tokens=2200)
    assert got.start == ()


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        ((), "map"),
        (((0, "map"),), "reduce"),
        (((0, "map"), (0, "reduce")), "finish"),
    ],
    ids=["nothing yet", "mapped", "reduced"],
)
def test_an_iteration_goes_map_reduce_finish(finished: tuple[tuple[int, str], ...], expected: str) -> None:
    got = ask(LEARNING, Snapshot(done(*finished), {0: plan()}))
    assert [step.kind for step in got.start] == [expected]
    assert got.start[0].name == f"formula-3fa9c1d2-i000-{expected}-a0"
    assert got.state == LEARNING


def test_nothing_starts_before_its_plan_is_frozen() -> None:
    got = ask(LEARNING)
    assert got.start == ()
    assert got.freeze is not None
    assert (got.freeze.iteration, got.freeze.offset, got.freeze.batch_size) == (0, 0, 50)
    assert got.freeze.batch_reason == "fixed at 50: test"


def test_a_frozen_plan_is_obeyed_even_when_the_manifest_says_otherwise() -> None:
    got = ask(LEARNING, Snapshot({}, {0: plan(batch_size=7, shards=3)}))
    assert got.freeze is None
    assert got.start[0].shards == 3


def test_a_finished_iteration_moves_the_state() -> None:
    got = ask(LEARNING, Snapshot(done((0, "map"), (0, "reduce"), (0, "finish")), {0: plan()}))
    state = got.state
    assert (state.iteration, state.offset, state.examples_done, state.artifact) == (1, 50, 50, "A1")
    assert state.best == Best("A1", 0.6, 0)
    assert state.observations == (Observed(50, 3.0),)


@pytest.mark.parametrize("select", [0.5, 0.4, 0.0])
def test_a_score_that_is_not_better_costs_patience_and_keeps_the_earlier_best(select: float) -> None:
    summaries = {**done((0, "map"), (0, "reduce")), finish(0).step: finish(0, scores={"select": select})}
    state = ask(LEARNING, Snapshot(summaries, {0: plan()})).state
    assert state.best == Best("A0", 0.5, -1)
    assert state.evaluations_since_best == 1


def test_an_iteration_without_evaluation_leaves_best_and_patience() -> None:
    summaries = {**done((0, "map"), (0, "reduce")), finish(0).step: finish(0, scores={})}
    state = ask(LEARNING, Snapshot(summaries, {0: plan(evaluate=False)})).state
    assert (state.best, state.evaluations_since_best) == (Best("A0", 0.5, -1), 0)


STOPS = [
    pytest.param({"epoch": 1, "examples_done": 100}, Snapshot(), "1 epoch of 100 examples done", id="epochs"),
    pytest.param(
        {"evaluations_since_best": 3}, Snapshot(), "select has not improved in 3 evaluations", id="patience"
    ),
    pytest.param(
        {"iteration": 2},
        Snapshot(given_iterations=2),
        "all 2 given iteration plans are done",
        id="given plans",
    ),
]


@pytest.mark.parametrize(("changes", "snapshot", "reason"), STOPS)
def test_learning_stops(changes: dict[str, object], snapshot: Snapshot, reason: str) -> None:
    got = ask(replace(LEARNING, **changes), snapshot)
    assert got.state.phase == "Evaluating"
    assert got.state.stop == Outcome("Done", reason)


def test_given_plans_are_obeyed_past_patience() -> None:
    got = ask(replace(LEARNING, evaluations_since_best=9), Snapshot(given_iterations=2))
    assert got.freeze is not None


@pytest.mark.parametrize(
    ("budget", "spend", "reason"),
    [
        ({"rollouts": 100}, Spend(rollouts=100), "does not pay for another iteration"),
        ({"rollouts": 100}, Spend(rollouts=101), "the budget of 100 rollouts is spent"),
        ({"tokens": 1000, "primary": "tokens"}, Spend(tokens=1001), "the budget of 1,000 tokens is spent"),
    ],
)
def test_a_spent_budget_ends_learning(budget: dict[str, object], spend: Spend, reason: str) -> None:
    got = ask(replace(LEARNING, spend=spend), budget=budget)
    assert got.state.stop is not None
    assert got.state.stop.name == "BudgetExhausted"
    assert reason in got.state.stop.reason


def test_a_budget_shrinks_the_last_batch_rather_than_being_overrun() -> None:
    state = replace(LEARNING, spend=Spend(rollouts=100), per_example=Spend(rollouts=2))
    got = ask(state, budget={"rollouts": 220})
    assert got.freeze is not None
    assert got.freeze.batch_size == 30  # (220 - 100 - closing 60) / 2
    assert "budget" in got.freeze.batch_reason


@pytest.mark.parametrize(
    ("elapsed", "iteration_seconds", "goes_on"),
    [(49.0, 30.0, True), (51.0, 30.0, False), (99.0, 0.0, True), (101.0, 0.0, False)],
    ids=["fits", "no time for the look", "the first is tried", "over"],
)
def test_the_clock_leaves_time_for_the_closing_look(
    elapsed: float, iteration_seconds: float, goes_on: bool
) -> None:
    assert LEARNING.facts is not None
    timed = replace(LEARNING, iteration_seconds=iteration_seconds)
    a_row = 20.0 / LEARNING.facts.look_rollouts
    timed = replace(timed, profile_seconds=a_row * LEARNING.facts.select_rows)
    got = ask(timed, budget={"wallClockSeconds": 100}, elapsed_seconds=elapsed)
    assert (got.freeze is not None) == goes_on
    assert goes_on or (got.state.stop is not None and "wallClockSeconds" in got.state.stop.reason)
    obeyed = ask(timed, Snapshot(given_iterations=2), budget={"wallClockSeconds": 100}, elapsed_seconds=51.0)
    assert obeyed.freeze is not None


STOPPED = replace(LEARNING, phase="Evaluating", stop=Outcome("Done", "1 epoch done"), iteration=2)


def test_nothing_better_never_looks_at_the_gate() -> None:
    got = ask(STOPPED)
    assert got.start == ()
    assert got.outcome is not None and got.outcome.name == "NothingBetter"


def evaluation(best: float, low: float = 0.1, high: float = 0.3) -> StepSummary:
    scores = {"gateBaseline": 0.5, "gateBest": best, "gateLow": low, "gateHigh": high}
    return StepSummary("formula-3fa9c1d2-i002-evaluate-a0", "evaluate", scores=scores)


BETTER = replace(STOPPED, best=Best("A2", 0.7, 1))


def test_the_best_artifact_gets_one_look_at_the_gate() -> None:
    got = ask(BETTER)
    assert [(step.kind, step.inputs) for step in got.start] == [("evaluate", {"artifact": "A2"})]


@pytest.mark.parametrize(
    ("best", "low", "high", "name", "reason"),
    [
        (0.7, 0.1, 0.3, "Learned", "rose by +0.200 (95 % interval +0.100 to +0.300)"),
        (0.7, 0.01, 0.39, "Learned", "rose by +0.200 (95 % interval +0.010 to +0.390)"),
        (
            0.7,
            0.0,
            0.4,
            "Unsure",
            "rose by +0.200 (95 % interval +0.000 to +0.400), a gain that chance could make",
        ),
        (
            0.51,
            -0.1,
            0.12,
            "Unsure",
            "rose by +0.010 (95 % interval -0.100 to +0.120), a gain that chance could make",
        ),
        (0.5, -0.1, 0.1, "NothingBetter", "the best artifact on select does not hold on gate (+0.000)"),
        (0.4, -0.2, 0.0, "NothingBetter", "the best artifact on select does not hold on gate (-0.100)"),
    ],
)
def test_the_gate_decides(best: float, low: float, high: float, name: str, reason: str) -> None:
    seen = evaluation(best, low, high)
    got = ask(BETTER, Snapshot({seen.step: seen}))
    head = "held-out gate " if reason.startswith("rose") else ""
    assert got.outcome == Outcome(name, f"{head}{reason}; 1 epoch done")
    assert got.state.phase == "Complete"


def test_a_spent_budget_stays_the_outcome_and_says_what_the_gate_says() -> None:
    state = replace(BETTER, stop=Outcome("BudgetExhausted", "spent"))
    assert ask(state, Snapshot({evaluation(0.9).step: evaluation(0.9)})).outcome == Outcome(
        "BudgetExhausted", "held-out gate rose by +0.400 (95 % interval +0.100 to +0.300); spent"
    )


@pytest.mark.parametrize("error", ["Endpoint", "Transient", "BudgetExhausted"])
@pytest.mark.parametrize("kind", ["profile", "map", "reduce", "finish"])
def test_a_failed_step_ends_the_run_with_its_own_words(kind: str, error: str) -> None:
    name = f"formula-3fa9c1d2-i000-{kind}-a0"
    before = {"reduce": ("map",), "finish": ("map", "reduce")}.get(kind, ())
    summaries = done(*((0, k) for k in before))
    summaries[name] = StepSummary(name, kind, error=error, message="what happened")
    state = RunState() if kind == "profile" else LEARNING
    got = ask(state, Snapshot(summaries, {0: plan()}))
    assert got.outcome == Outcome(
        "BudgetExhausted" if error == "BudgetExhausted" else "Failed", "what happened"
    )


def test_a_budget_that_ends_an_iteration_leaves_the_look_at_what_was_learned() -> None:
    name = "formula-3fa9c1d2-i001-map-a0"
    spent = {"task": RoleUsage(5, 0, 900, 100)}
    broken = StepSummary(
        name, "map", counts={"rollouts": 5}, usage=spent, error="BudgetExhausted", message="spent"
    )
    state = replace(LEARNING, iteration=1, artifact="A1", best=Best("A1", 0.7, 0))
    got = ask(state, Snapshot({name: broken}, {1: plan(1)}))
    assert [(step.kind, step.inputs) for step in got.start] == [("evaluate", {"artifact": "A1"})]
    assert got.outcome is None and got.state.phase == "Evaluating"
    assert got.state.stop == Outcome("BudgetExhausted", "spent")
    assert (got.state.spend.rollouts, got.state.spend.tokens) == (5, 1000)


def test_learning_keeps_what_the_look_takes_and_the_look_keeps_nothing() -> None:
    used = {"task": RoleUsage(100, 0, 9000, 1000)}
    state = replace(LEARNING, usage=used, spend=Spend(rollouts=100, tokens=10_000), profile_seconds=30.0)
    kept = kept_for_look(spec(), state, gpus=2)
    rows = FACTS.look_rollouts
    assert (kept.rollouts, kept.tokens) == (rows, 100 * rows)
    assert kept.wall_clock_seconds == pytest.approx(30.0 / FACTS.select_rows * rows) == kept.gpu_seconds / 2
    assert kept_for_look(spec(), replace(state, phase="Evaluating")) == Spend()
    assert kept_for_look(spec(), RunState()) == Spend()


def test_an_outcome_is_final() -> None:
    state = replace(STOPPED, phase="Complete", outcome=Outcome("Learned", "x"))
    assert ask(state).outcome == Outcome("Learned", "x")


@pytest.mark.parametrize(
    "state", [RunState(), LEARNING, STOPPED, BETTER], ids=["new", "learning", "stopped", "better"]
)
def test_asking_twice_gives_the_same_plan(state: RunState) -> None:
    assert ask(state) == ask(state)


@pytest.mark.parametrize("size", [1, 5, 20, 50, 100])
def test_held_out_is_evaluated_at_the_same_examples_whatever_the_batch_size(size: int) -> None:
    state, marks = LEARNING, []
    while state.examples_done < 100:
        finished = state.examples_done + size
        due = evaluation_due(spec(batching=FIXED), state, finished)
        if due:
            marks.append(finished)
        state = replace(state, examples_done=finished, evaluated_at=finished if due else state.evaluated_at)
    grid = [mark for mark in range(5, 101, 5) if mark % size == 0 or size < 5]
    assert marks == (grid if size >= 5 else list(range(5, 101, 5)))


def test_sequential_is_one_example_at_a_time_in_order() -> None:
    got = decide(
        spec=spec(aggregation={"strategy": "Sequential"}),
        who=WHO,
        state=LEARNING,
        snapshot=Snapshot(),
        elapsed_seconds=0.0,
    )
    assert got.freeze is not None
    assert (got.freeze.batch_size, got.freeze.in_order, got.freeze.shards) == (1, True, 1)


@pytest.mark.parametrize(
    ("parallelism", "concurrency", "requests_per_minute", "examples", "shards"),
    [
        (4, 64, None, 40, 4),
        (4, 64, None, 3, 3),
        # Each pod makes one call at a time at least.
        (8, 5, None, 40, 5),
        (8, 64, 6, 40, 6),
        (8, 2, 1, 40, 1),
    ],
)
def test_a_map_has_no_more_pods_than_calls_to_share(
    parallelism: int, concurrency: int, requests_per_minute: int | None, examples: int, shards: int
) -> None:
    given = {"parallelism": parallelism, "concurrency": concurrency, "requestsPerMinute": requests_per_minute}
    workers = Workers.model_validate({name: limit for name, limit in given.items() if limit is not None})
    assert shards_of(workers, examples) == shards


@pytest.mark.parametrize(
    ("parallelism", "leaves", "slots", "pods"),
    [
        # A pod more is worth its start only where it has calls to make and slots to make them in.
        (8, 12_500, 64, 1),
        (8, 12_500, 512, 2),
        (8, 12_500, 10_000, 8),
        (8, 3_100, 10_000, 3),
        (1, 12_500, 10_000, 1),
        (8, 0, 10_000, 1),
    ],
)
def test_a_reduce_has_as_many_pods_as_its_calls_and_slots_are_worth(
    parallelism: int, leaves: int, slots: int, pods: int
) -> None:
    workers = Workers.model_validate({"parallelism": parallelism, "concurrency": slots})
    assert reduce_shards_of(workers, leaves, slots) == pods


@pytest.mark.parametrize(
    ("strategy", "pods"), [("ParallelScan", 4), ("Naive", 1), ("Summarize", 1)], ids=lambda one: str(one)
)
def test_a_large_reduce_is_planned_for_several_pods_which_leave_one_result(strategy: str, pods: int) -> None:
    facts = replace(LEARNING.facts, train_rows=100_000) if LEARNING.facts else None
    about = spec(
        aggregation={"strategy": strategy},
        batching={"mode": "Fixed", "size": 100_000, "reason": "all at once"},
        workers={"concurrency": 2000},
    )
    plan = iteration_plan(about, replace(LEARNING, facts=facts))
    assert (plan.shards, plan.reduce_shards) == (4, pods)
    assert IterationPlan.from_json(plan.to_json(), where="here") == plan
    assert (b"reduce_shards" in plan.to_json()) == (pods > 1)
    got = decide(
        spec=about,
        who=WHO,
        state=replace(LEARNING, facts=facts),
        snapshot=Snapshot(plans={0: plan}),
        elapsed_seconds=0.0,
    )
    steps = (*got.start, *got.then)
    assert [(step.kind, step.shards, step.results) for step in steps] == [
        ("map", 4, 4),
        ("reduce", pods, 1),
        ("finish", 1, 1),
    ]
