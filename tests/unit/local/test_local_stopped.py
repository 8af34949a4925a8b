"""What a session that was interrupted says it spent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from combee.algo.budget import Limits, Spend
from combee.assembly.guard import BudgetGuard
from combee.clients.model.wire import CallRecord
from combee.local.executor import LocalExecutor
from combee.plan.decide import Identity, Plan
from combee.plan.state import RunState
from combee.plan.types import RoleUsage, Step, StepSummary

FINISHED = RunState(
    phase="Learning",
    iteration=1,
    spend=Spend(rollouts=10, tokens=1000),
    usage={"task": RoleUsage(10, 0, 1000)},
)
"""after a first iteration."""
MAPPED = StepSummary(
    "run-i001-map",
    "map",
    counts={"iteration": 1, "rollouts": 4},
    usage={"task": RoleUsage(4, 0, 400), "proposer": RoleUsage(3, 1, 90, 10)},
)
EARLIER = StepSummary("run-i000-map", "map", counts={"iteration": 0, "rollouts": 9})
REDUCE = Step("run-i001-reduce", "reduce", 1, 7)


def executor(*summaries: StepSummary) -> LocalExecutor:
    """A session that is about to begin a step after ``summaries``, with a budget's guard and no screen."""
    meter = SimpleNamespace(moved=lambda *_: None)
    made = LocalExecutor(
        context=cast(Any, SimpleNamespace(spec=SimpleNamespace(prices=None))),
        who=Identity("run", "12345678"),
        folder=cast(Any, None),
        meter=cast(Any, meter),
        guard=BudgetGuard(Limits(), lambda: 0.0),
        summaries={one.step: one for one in summaries},
    )
    made._follow(Plan(FINISHED))
    return made


def test_finished_steps_of_the_unfinished_iteration_count() -> None:
    it = executor(EARLIER, MAPPED)
    assert it.stopped().name == "Stopped"
    assert it.state.spend == Spend(rollouts=14, tokens=1500)
    assert it.state.usage == {"task": RoleUsage(14, 0, 1400), "proposer": RoleUsage(3, 1, 90, 10)}


def test_what_the_interrupted_step_asked_counts_and_calls_without_an_answer_do_not() -> None:
    it = executor(EARLIER, MAPPED)
    it.current = REDUCE
    it.guard.settle(CallRecord("proposer", 0.0, 1.0, 0.0, 30, 20, 0, False, 1))
    it.guard.settle(CallRecord("proposer", 0.0, 0.0, 0.0, 0, 0, 0, False, 1, error="Cancelled"))
    it.stopped()
    assert it.state.spend == Spend(rollouts=14, tokens=1550)
    assert it.state.usage["proposer"] == RoleUsage(4, 1, 120, 30)


def test_a_session_that_is_stopped_between_two_steps_counts_each_once() -> None:
    it = executor(EARLIER)
    it.current = REDUCE
    it.guard.settle(CallRecord("task", 0.0, 1.0, 0.0, 30, 20, 0, False, 1))
    it._follow(Plan(FINISHED))
    it.stopped()
    assert it.state.spend == FINISHED.spend
