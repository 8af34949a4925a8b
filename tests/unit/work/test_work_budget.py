"""The wall behind a run's budget: what a call reserves and is charged, and when the next one is refused."""

from __future__ import annotations

import pytest

from combee.algo.budget import Limits, Spend
from combee.assembly.guard import BudgetGuard
from combee.clients.model.wire import CallRecord
from combee.errors import BudgetExhaustedError


def guarded(**limits: int) -> BudgetGuard:
    return BudgetGuard(Limits(**limits), lambda: 0.0)


def record(*, role: str = "task", planned: int = 100, error: str = "", hit: bool = False) -> CallRecord:
    used = (0, 0) if error else (30, 20)
    return CallRecord(role, 0.0, 1.0, 0.0, *used, 0, hit, 1, planned_tokens=planned, error=error)


def test_what_is_reserved_counts_until_the_call_is_settled() -> None:
    guard = guarded(tokens=150)
    guard(1, 100)
    with pytest.raises(BudgetExhaustedError, match="150 tokens"):
        guard(1, 51)
    guard.settle(record())
    assert (guard.tokens, guard.rollouts) == (50, 1)
    guard(1, 100)
    guard.settle(record(error="TransientError"))
    assert (guard.tokens, guard.rollouts) == (50, 1)
    guard(1, 100)


def test_a_call_of_another_role_is_no_rollout_and_its_tokens_count() -> None:
    guard = guarded(rollouts=1)
    guard(0, 100)
    guard.settle(record(role="proposer"))
    assert (guard.tokens, guard.rollouts) == (50, 0)
    guard(1, 100)
    with pytest.raises(BudgetExhaustedError, match="1 rollouts"):
        guard(1, 100)


def test_a_hit_is_charged_what_it_cost_when_it_was_made() -> None:
    guard = guarded()
    guard.settle(record(planned=0, hit=True))
    assert (guard.tokens, guard.rollouts, guard.reserved_tokens, guard.reserved_rollouts) == (50, 1, 0, 0)


def test_a_step_begins_with_what_finished_steps_spent() -> None:
    guard = guarded(rollouts=10)
    guard(1, 100)
    guard.start_step(Spend(rollouts=9, tokens=900))
    guard(1, 100)
    with pytest.raises(BudgetExhaustedError, match="Raise it"):
        guard(1, 100)
