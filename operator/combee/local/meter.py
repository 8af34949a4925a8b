"""A run's progress for people: counts calls and progress, and passes snapshots to a listener.

Nothing here affects a decision or a result.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from combee.api.run import RunSpec
from combee.assembly.guard import BudgetGuard
from combee.clients.model.chat import CallRecord
from combee.clients.model.limits import RunLimits
from combee.plan.diagnosis import words
from combee.plan.remaining import seconds_left
from combee.plan.state import DataFacts, RunState, repeats
from combee.plan.types import IterationPlan
from combee.report.progress import ProgressState
from combee.steps import kind_of

KEPT_NOTES = 3
TICK_SECONDS = 0.5
PHASES = {"Profiling": "preparing", "Learning": "learning", "Evaluating": "finishing", "Complete": "finished"}


class Listener(Protocol):
    """A screen. Its methods return at once and never raise."""

    def started(self, run: str, folder: str, *, resumed: bool = False, over: bool = False) -> None:
        """The run starts, is resumed, or is over already."""

    def plan(self, plan: IterationPlan) -> None:
        """An iteration's plan is frozen."""

    def progress(self, state: ProgressState) -> None:
        """The progress changed, or some time passed; called often."""

    def iteration(self, state: ProgressState) -> None:
        """An iteration is finished."""

    def note(self, text: str) -> None:
        """There is something that a person should know; the run goes on."""


class Silent:
    """A listener for work that nobody watches."""

    def started(self, run: str, folder: str, *, resumed: bool = False, over: bool = False) -> None: ...
    def plan(self, plan: IterationPlan) -> None: ...
    def progress(self, state: ProgressState) -> None: ...
    def iteration(self, state: ProgressState) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(slots=True)
class Meter:
    """Implements ``work.context.Progress`` and the chat clients' ``on_call``."""

    name: str
    spec: RunSpec
    facts: DataFacts
    listener: Listener
    guard: BudgetGuard
    limits: RunLimits | None = None
    state: RunState = field(default_factory=RunState)
    current: IterationPlan | None = None
    stage: str = "starting"
    done: int = 0
    total: int = 0
    calls: int = 0
    hits: int = 0
    moved_at: float = field(default_factory=time.monotonic)
    """When the last iteration ended, or profile, or the session began."""
    mapped: int = 0
    """examples of the iteration that were rolled out and reflected on."""
    notes: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_NOTES))
    noted: set[str] = field(default_factory=set)
    simulated: bool = False

    def begin(self, stage: str, total: int) -> None:
        """A stage of ``total`` units starts."""
        self.stage, self.done, self.total = stage, 0, total
        if self.current is not None and self.state.phase == "Learning" and not kind_of(stage).sharded:
            self.mapped = self.current.batch_size
        self.listener.progress(self.screen_state())

    def advance(self, units: int = 1) -> None:
        """Count ``units`` more as done."""
        self.done += units
        if self.current is not None and kind_of(self.stage).sharded:
            self.mapped = min(self.done, self.current.batch_size)
        self.listener.progress(self.screen_state())

    def note(self, text: str) -> None:
        """Pass a text to the listener, unless it was passed before."""
        if text not in self.noted:
            self.noted.add(text)
            self.notes.append(text)
            self.listener.note(text)

    def on_call(self, record: CallRecord) -> None:
        """Count a call and settle its reservation in the budget."""
        self.guard.settle(record)
        self.calls += not record.error
        self.hits += record.hit
        if record.retried_for:
            self.note(f"the endpoint of {record.role} is being asked again ({record.retried_for[0]})")

    def planned(self, plan: IterationPlan, state: RunState) -> None:
        """Pass a frozen plan to the listener, once for each iteration."""
        if self.current is not None and self.current.iteration == plan.iteration:
            return
        self.current, self.state, self.mapped = plan, state, 0
        self.listener.plan(plan)

    def moved(self, before: RunState, after: RunState, plans: Mapping[int, IterationPlan]) -> None:
        """Record a new state. The listener also gets the plans that an earlier session froze."""
        if after.phase != before.phase or after.iteration > before.iteration:
            self.moved_at, self.mapped = time.monotonic(), 0
        if after.iteration > before.iteration:
            if before.iteration in plans:
                self.planned(plans[before.iteration], before)
            self.state = after
            # What the session counts may be ahead: it knows every finished step of a run that goes on.
            spent = after.spend
            counted = replace(
                self.screen_state(),
                tokens=spent.tokens,
                rollouts=spent.rollouts,
                elapsed_seconds=spent.wall_clock_seconds,
            )
            self.listener.iteration(counted)
            if says := repeats(after):
                self.note(says)
        diagnosis = after.diagnosis
        if diagnosis is not None and before.diagnosis is None and diagnosis.verdict == "Inconclusive":
            self.note(words(diagnosis))
        self.state = after
        if after.iteration in plans:
            self.planned(plans[after.iteration], after)

    async def tick(self) -> None:
        """Pass snapshots to the listener regularly, so that a run with a long call does not look dead."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.listener.progress(self.screen_state())

    def screen_state(self) -> ProgressState:
        """Return everything that a screen shows."""
        state, plan = self.state, self.current
        elapsed = self.guard.elapsed_seconds()
        total = self.facts.train_rows * self.spec.method.epochs
        scored = state.facts is not None and state.facts.held_out_rows > 0
        expected = None
        over = state.phase not in ("Profiling", "Learning")  # the remaining examples are not learned from
        if plan is not None:
            examples_left = 0 if over else max(0, total - state.examples_done)
            expected = state.iteration + -(-examples_left // max(1, plan.batch_size))
        return ProgressState(
            run=self.name,
            phase=PHASES.get(state.phase, state.phase),
            iteration=min(state.iteration + 1, expected or 1) if plan else 0,
            iterations_expected=expected,
            batch_size=plan.batch_size if plan else 0,
            batch_reason=plan.batch_reason if plan else "",
            stage=self.stage,
            stage_done=self.done,
            stage_total=self.total,
            examples_done=state.examples_done + self.mapped,
            examples_total=total,
            calls_done=self.calls,
            calls_hit=self.hits,
            calls_in_flight=self.limits.in_flight if self.limits else 0,
            tokens=self.guard.tokens,
            rollouts=self.guard.rollouts,
            heldout_baseline=state.baseline_select if scored else None,
            heldout_best=state.best.select if scored and state.best else None,
            heldout_last=state.last_select,
            simulated=self.simulated,
            elapsed_seconds=elapsed,
            eta_seconds=seconds_left(
                self.spec,
                state,
                plan.batch_size,
                begun_seconds=time.monotonic() - self.moved_at,
            )
            if plan
            else None,
            budget=_budget_text(self.guard),
            notes=tuple(self.notes),
        )


def _budget_text(guard: BudgetGuard) -> str:
    used = {"rollouts": guard.rollouts, "tokens": guard.tokens, "money": round(guard.money, 2)}
    limits = [(name, limit) for _, name, limit in guard.limits.by_name if name in used]
    return ", ".join(f"{name} {used[name]:,}/{limit:,}" for name, limit in limits)
