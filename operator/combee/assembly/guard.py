"""The run's hard budget, checked before every model call.

``decide`` plans within the budget, and this guard enforces it. A call reserves the most it can use and
settles what it used. A memo hit is charged its recorded tokens, so that a run's cost does not depend
on how often it was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from combee.algo.budget import Limits, Spend
from combee.clients.model.agents import AGENT
from combee.clients.model.chat import CallRecord
from combee.errors import BudgetExhaustedError
from combee.plan.types import RoleUsage, Step, StepSummary


@dataclass(slots=True)
class BudgetGuard:
    """``guard(rollouts, tokens)`` raises BudgetExhaustedError when the call does not fit."""

    limits: Limits
    elapsed_seconds: Callable[[], float]
    rollouts: int = 0
    tokens: int = 0
    reserved_tokens: int = 0
    reserved_rollouts: int = 0
    step_rollouts: int = 0
    step_usage: dict[str, RoleUsage] = field(default_factory=dict)
    """By role, what the step used so far: it is charged to a step that fails, and has no result to say it."""

    def start_step(self, spend: Spend) -> None:
        """Start counting a step on top of what finished steps spent."""
        self.rollouts, self.tokens = int(spend.rollouts), int(spend.tokens)
        self.reserved_rollouts = self.reserved_tokens = self.step_rollouts = 0
        self.step_usage = {}

    def __call__(self, rollouts: int, tokens: int) -> None:
        totals = (
            ("rollouts", self.limits.rollouts, self.rollouts + self.reserved_rollouts + rollouts),
            ("tokens", self.limits.tokens, self.tokens + self.reserved_tokens + tokens),
            ("wallClockSeconds", self.limits.wall_clock_seconds, self.elapsed_seconds()),
        )
        for name, limit, value in totals:
            if limit is not None and value > limit:
                raise BudgetExhaustedError(
                    f"the budget of {limit:,.0f} {name} is spent",
                    where=f"spec.budget.{name}",
                    fix="Raise it and run the same command again: what was learned is kept",
                )
        self.reserved_rollouts += rollouts
        self.reserved_tokens += tokens

    def settle(self, record: CallRecord) -> None:
        """Replace a call's reservation by what the call used."""
        rollouts = 1 if record.role == "task" else 0
        if record.planned_tokens:
            self.reserved_tokens -= record.planned_tokens
            self.reserved_rollouts -= rollouts
        if not record.error:
            self.tokens += record.prompt_tokens + record.completion_tokens
            self.rollouts += rollouts
            self.step_rollouts += rollouts
            role = "task" if record.role == AGENT else record.role
            tokens = record.prompt_tokens, record.completion_tokens, record.cached_tokens
            self.step_usage[role] = self.step_usage.get(role, RoleUsage()) + RoleUsage(
                1, int(record.hit), *tokens
            )

    def failed(self, step: Step, error: str, message: str) -> StepSummary:
        """Return the summary of a step that did not do its work, with what it used."""
        counts = {"iteration": step.iteration, "rollouts": self.step_rollouts}
        return StepSummary(
            step.name, step.kind, counts=counts, usage=dict(self.step_usage), error=error, message=message
        )
