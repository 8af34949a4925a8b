"""The run's hard budget, checked before every request to a model.

``decide`` plans within the budget, and this guard enforces it. A request holds the most it can use until it
is over, and is then charged what it used. An answer from the memo is charged like any other, so that a run's
cost does not depend on how often it was interrupted; it is refused once nothing is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from combee.algo.budget import Limits, Spend, fits
from combee.api.run import RunSpec
from combee.clients.model.agents import AGENT
from combee.clients.model.wire import CallRecord
from combee.errors import BudgetExhaustedError
from combee.plan.money import money_of
from combee.plan.state import limits_of
from combee.plan.types import RoleUsage, Step, StepSummary, Usage, add_usage

NOTHING = Spend()


@dataclass(frozen=True, slots=True)
class Held:
    """What one request may use, until it is over."""

    guard: BudgetGuard
    amount: Spend

    def release(self) -> None:
        """Give it back to the budget."""
        self.guard.held -= self.amount


@dataclass(slots=True)
class BudgetGuard:
    """Implements ``wire.Budget`` for one process. ``elapsed_seconds``: how long the run has been at work,
    over all its sessions."""

    limits: Limits
    elapsed_seconds: Callable[[], float]
    cost: Callable[[Usage, float], float] = lambda usage, gpu_seconds: 0.0
    """what tokens and seconds of GPUs cost by the run's prices."""
    gpus: float = 0.0
    """the GPUs that the run holds meanwhile, as far as this process has to count them."""
    before: Spend = field(default_factory=Spend)
    """what finished steps spent."""
    held: Spend = field(default_factory=Spend)
    kept: Spend = field(default_factory=Spend)
    """what the step may not spend, since the closing look needs it."""
    step_began: float = 0.0
    step_rollouts: int = 0
    step_usage: Usage = field(default_factory=dict)
    """by role, what the step used so far: it is charged to a step that fails, and has no result to say it."""

    @classmethod
    def of(cls, spec: RunSpec, elapsed_seconds: Callable[[], float]) -> Self:
        """Return the guard of a run's budget, with its prices."""
        return cls(limits_of(spec), elapsed_seconds, partial(money_of, spec))

    def start_step(self, spend: Spend, kept: Spend = NOTHING) -> None:
        """Start counting a step on top of what finished steps spent, which leaves what is ``kept``."""
        self.kept = kept
        self.before, self.held, self.step_rollouts, self.step_usage = spend, Spend(), 0, {}
        self.step_began = self.elapsed_seconds()

    @property
    def rollouts(self) -> int:
        """The rollouts that were charged."""
        return self.before.rollouts + self.step_rollouts

    @property
    def tokens(self) -> int:
        """The tokens that were charged."""
        return self.before.tokens + sum(usage.tokens for usage in self.step_usage.values())

    @property
    def money(self) -> float:
        """What was charged, and what the GPUs cost meanwhile."""
        return self.before.money + self.cost(self.step_usage, self._held_gpu_seconds())

    def hold(self, role: str, prompt_tokens: int, output_tokens: int, *, again: bool = False) -> Held:
        """Hold what a request may use at most, while it is under way."""
        most = RoleUsage(1, 0, prompt_tokens, output_tokens)
        money = self.cost({_charged(role): most}, 0.0)
        planned = Spend(int(role == "task" and not again), most.tokens, money=money)
        self._refuse_over(
            planned, replace(self._spent() + self.held, wall_clock_seconds=self.elapsed_seconds())
        )
        self.held += planned
        return Held(self, planned)

    def recall(self, role: str) -> None:
        """Check that something is left for an answer from the memo."""
        self._refuse_over(Spend(int(role == "task"), 1), self._spent())

    def settle(self, record: CallRecord) -> None:
        """Charge what a call used, or may have used."""
        if not record.sent:
            return
        self.step_rollouts += record.role == "task"
        role = _charged(record.role)
        tokens = record.prompt_tokens, record.completion_tokens, record.cached_tokens, record.lost_tokens
        used = RoleUsage(int(not record.error), int(record.hit), *tokens)
        self.step_usage = add_usage(self.step_usage, {role: used})

    def failed(self, step: Step, error: str, message: str) -> StepSummary:
        """Return the summary of a step that did not do its work, with what it used."""
        counts = {"iteration": step.iteration, "rollouts": self.step_rollouts}
        return StepSummary(
            step.name, step.kind, counts=counts, usage=dict(self.step_usage), error=error, message=message
        )

    def _held_gpu_seconds(self) -> float:
        return self.gpus * (self.elapsed_seconds() - self.step_began)

    def _spent(self) -> Spend:
        gpu_seconds = self.before.gpu_seconds + self._held_gpu_seconds()
        return Spend(self.rollouts, self.tokens, gpu_seconds, money=self.money)

    def _refuse_over(self, planned: Spend, spent: Spend) -> None:
        exceeded = fits(spent + self.kept, planned, self.limits)
        if exceeded is not None:
            raise BudgetExhaustedError(
                exceeded.is_spent,
                where=f"spec.budget.{exceeded.name}",
                fix=RAISE_IT,
            )


def _charged(role: str) -> str:
    return "task" if role == AGENT else role


RAISE_IT = (
    "Raise it and start again, on a cluster under another name, on a laptop in another folder with a copy of "
    "this one's store/memo: what was answered is not asked again"
)
