"""The wall behind a run's budget: what a request holds and is charged, and when the next one is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from combee.algo.budget import Limits, Spend
from combee.api.prices import ModelPrice
from combee.assembly.guard import BudgetGuard
from combee.clients.model.wire import CallRecord
from combee.errors import BudgetExhaustedError
from combee.plan.types import Usage


def guarded(**limits: Any) -> BudgetGuard:
    return BudgetGuard(Limits(**limits), lambda: 0.0)


def record(*, role: str = "task", error: str = "", hit: bool = False, lost: int = 0) -> CallRecord:
    used = (0, 0) if error else (30, 20)
    return CallRecord(role, 0.0, 1.0, 0.0, *used, 0, hit, 1, error=error, lost_tokens=lost, sent=not error)


def test_what_is_held_counts_until_the_call_is_over() -> None:
    guard = guarded(tokens=150)
    held = guard.hold("task", 60, 40)
    with pytest.raises(BudgetExhaustedError, match="150 tokens"):
        guard.hold("task", 11, 40)
    held.release()
    guard.settle(record())
    assert (guard.tokens, guard.rollouts) == (50, 1)
    guard.hold("task", 60, 40).release()
    guard.settle(record(error="TransientError"))
    assert (guard.tokens, guard.rollouts, guard.held) == (50, 1, Spend())
    guard.hold("task", 60, 40)


def test_a_call_of_another_role_and_a_request_made_again_are_no_rollouts_and_their_tokens_count() -> None:
    guard = guarded(rollouts=1, tokens=250)
    guard.settle(record(role="proposer"))
    assert (guard.tokens, guard.rollouts) == (50, 0)
    guard.hold("task", 50, 50)
    guard.hold("task", 50, 50, again=True)
    with pytest.raises(BudgetExhaustedError, match="1 rollouts"):
        guard.hold("task", 1, 0)
    with pytest.raises(BudgetExhaustedError, match="250 tokens"):
        guard.hold("task", 1, 0, again=True)


def test_what_was_lost_on_the_way_is_charged() -> None:
    guard = guarded()
    guard.settle(record(lost=50))
    assert (guard.tokens, guard.rollouts) == (100, 1)
    assert guard.step_usage["task"].lost_tokens == 50


def test_a_call_that_failed_is_charged_what_it_may_have_used() -> None:
    guard = guarded()
    guard.settle(replace(record(error="TransientError", lost=1000), sent=True))
    assert (guard.tokens, guard.rollouts, guard.step_usage["task"].calls) == (1000, 1, 0)


def test_a_hit_is_charged_what_it_cost_when_it_was_made_and_refused_once_nothing_is_left() -> None:
    guard = guarded(rollouts=2)
    for _ in range(2):
        guard.recall("task")
        guard.settle(record(hit=True))
    assert (guard.tokens, guard.rollouts) == (100, 2)
    guard.recall("proposer")
    with pytest.raises(BudgetExhaustedError, match="2 rollouts"):
        guard.recall("task")


def test_the_clock_is_that_of_the_whole_run_and_stops_requests_but_not_hits() -> None:
    seconds = [5.0]
    guard = BudgetGuard(Limits(wall_clock_seconds=6), lambda: seconds[0])
    guard.hold("task", 1, 1)
    seconds[0] = 6.1
    guard.recall("task")
    with pytest.raises(BudgetExhaustedError, match="6 wallClockSeconds"):
        guard.hold("task", 1, 1, again=True)


def test_a_step_begins_with_what_finished_steps_spent() -> None:
    guard = guarded(rollouts=10)
    guard.hold("task", 60, 40)
    guard.start_step(Spend(rollouts=9, tokens=900))
    guard.hold("task", 60, 40)
    with pytest.raises(BudgetExhaustedError, match="Raise it"):
        guard.hold("task", 60, 40)


def test_a_step_leaves_what_is_kept_for_the_look() -> None:
    seconds = [0.0]
    guard = BudgetGuard(Limits(rollouts=10, wall_clock_seconds=100), lambda: seconds[0])
    guard.start_step(Spend(rollouts=4), Spend(rollouts=5, wall_clock_seconds=20))
    guard.hold("task", 1, 1).release()
    guard.step_rollouts += 1
    with pytest.raises(BudgetExhaustedError, match="the budget of 10 rollouts is spent"):
        guard.hold("task", 1, 1)
    guard.hold("proposer", 1, 1).release()
    seconds[0] = 81.0
    with pytest.raises(BudgetExhaustedError, match="the budget of 100 wallClockSeconds is spent"):
        guard.hold("proposer", 1, 1)
    guard.start_step(Spend(rollouts=5))
    guard.hold("task", 1, 1).release()


def test_seconds_of_gpus_end_a_step_before_the_look_needs_them() -> None:
    seconds = [10.0]
    guard = BudgetGuard(Limits(gpu_seconds=1000), lambda: seconds[0], gpus=4)
    guard.start_step(Spend(gpu_seconds=500), Spend(gpu_seconds=100))
    seconds[0] += 99.0
    guard.hold("task", 1, 1).release()
    seconds[0] += 2.0
    with pytest.raises(BudgetExhaustedError, match="1,000 gpuSeconds"):
        guard.hold("task", 1, 1)


def test_money_is_held_at_the_full_price_and_charged_with_what_was_cached() -> None:
    table = {"prompt": 10_000, "cached": 1_000, "completion": 20_000}
    price = ModelPrice.model_validate(
        {"name": "m", **{f"{kind}PerMillionTokens": money for kind, money in table.items()}}
    )

    def cost(usage: Usage, gpu_seconds: float) -> float:
        return sum(
            price.of(used.prompt_tokens, used.completion_tokens, used.cached_tokens)
            for role, used in usage.items()
            if role == "task"
        )

    guard = BudgetGuard(Limits(money=3.0), lambda: 0.0, cost)
    held = guard.hold("agent", 100, 50)
    assert held.amount.money == pytest.approx(2.0)
    with pytest.raises(BudgetExhaustedError, match="3 in money"):
        guard.hold("task", 100, 50)
    held.release()
    guard.settle(CallRecord("agent", 0.0, 1.0, 0.0, 100, 10, 50, False, 1))
    assert guard.money == pytest.approx((50 * 10 + 50 * 1 + 10 * 20) / 1000)
    guard.hold("proposer", 10_000, 10_000)


def test_gpus_cost_while_a_step_works() -> None:
    seconds = [100.0]
    guard = BudgetGuard(Limits(money=10.0), lambda: seconds[0], lambda usage, held: 0.01 * held, gpus=4)
    guard.start_step(Spend(money=5.0))
    seconds[0] += 100.0
    assert guard.money == pytest.approx(5.0 + 4.0)
    seconds[0] += 50.0
    with pytest.raises(BudgetExhaustedError, match="10 in money"):
        guard.hold("task", 1, 1)
