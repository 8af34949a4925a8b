"""The local executor: it does with coroutines on a laptop what the operator does with Jobs.

    decide -> (freeze a plan | run steps | outcome), repeatedly

It holds no state of its own: every session folds the state anew from DIR's plans and summaries, so
the same command on the same DIR continues where the last session was interrupted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Protocol

from combee.assembly.guard import BudgetGuard
from combee.errors import BudgetExhaustedError, BugError, CombeeError, UserError
from combee.local.meter import Meter
from combee.plan.decide import Identity, Plan, decide
from combee.plan.money import money_of
from combee.plan.spending import kept_for_look
from combee.plan.state import RunState, charge
from combee.plan.types import Clocks, IterationPlan, Outcome, Snapshot, Step, StepSummary
from combee.steps import LEADING
from combee.work.context import WorkContext
from combee.work.steps import run_step


class Folder(Protocol):
    """What a session reads and leaves: a run's folder, or the record of a run that is replayed."""

    def summaries(self) -> dict[str, StepSummary]:
        """Return the summaries of finished steps by name."""

    def plans(self) -> dict[int, IterationPlan]:
        """Return the frozen plans by iteration."""

    def freeze(self, plan: IterationPlan) -> IterationPlan:
        """Write a plan unless the iteration has one, and return the iteration's plan."""

    def clocks(self, iteration: int, now: Clocks) -> Clocks:
        """Write what the clocks show at a decision, and return what counts: what was written first."""

    def keep(self, summary: StepSummary) -> StepSummary:
        """Write the summary of a finished step, and return the one that counts."""


@dataclass(slots=True)
class LocalExecutor:
    """Runs one session on one DIR. ``given``: the plans of --plans, by iteration."""

    context: WorkContext
    who: Identity
    folder: Folder
    meter: Meter
    guard: BudgetGuard
    given: Mapping[int, IterationPlan] = field(default_factory=dict)
    summaries: dict[str, StepSummary] = field(default_factory=dict)
    plans: dict[int, IterationPlan] = field(default_factory=dict)
    state: RunState = field(default_factory=RunState)
    baseline: str = ""
    current: Step | None = None
    """The step that was begun last."""

    async def run(self) -> Outcome:
        """Work until there is an outcome, and return it. When cancelled, finished work is kept."""
        self.summaries = await asyncio.to_thread(self.folder.summaries)
        self.plans = await asyncio.to_thread(self.folder.plans)
        while True:
            plan = self._decide(await self._clocks())
            self._follow(plan)
            if plan.outcome is not None:
                return plan.outcome
            if plan.freeze is not None:
                plan_to_freeze = self.given.get(plan.freeze.iteration, plan.freeze)
                self.plans[plan_to_freeze.iteration] = await asyncio.to_thread(
                    self.folder.freeze, plan_to_freeze
                )
                self.meter.planned(self.plans[plan_to_freeze.iteration], self.state)
            for step in plan.start:
                await self._do(step)

    async def _clocks(self) -> Clocks:
        """Return what the clocks show. Where an iteration is to be planned, or learning to be stopped, it is
        written down first: whoever decides the same again sees the same clocks."""
        now, state = Clocks(round(self.guard.elapsed_seconds(), 3)), self.state
        if state.phase != "Learning" or state.iteration in self.plans:
            return now
        return await asyncio.to_thread(self.folder.clocks, state.iteration, now)

    def _decide(self, clocks: Clocks) -> Plan:
        snapshot = Snapshot(
            self.summaries, self.plans, given_iterations=len(self.given) if self.given else None
        )
        return decide(
            spec=self.context.spec,
            who=self.who,
            state=self.state,
            snapshot=snapshot,
            elapsed_seconds=clocks.elapsed_seconds,
            gpu_seconds=clocks.gpu_seconds,
        )

    def _follow(self, plan: Plan) -> None:
        before, self.state = self.state, plan.state
        if not self.baseline:
            self.baseline = self.state.artifact
        charged = charged_so_far(self.state, self.summaries)
        money = money_of(self.context.spec, charged.usage)
        kept = kept_for_look(self.context.spec, self.state)
        self.guard.start_step(replace(charged.spend, money=money), kept)
        self.meter.moved(before, self.state, self.plans)

    async def _do(self, step: Step) -> None:
        """Run a step. A failure is recorded in this session only, so that the next session retries the step;
        but a spent budget stays spent, and is kept. An error that the user must fix first, such as a full
        store, ends the session."""
        self.current = step
        try:
            summary = await run_step(self.context, step, self.plans, self.baseline)
        except CombeeError as error:
            if isinstance(error, BugError | UserError):
                raise
            summary = self.guard.failed(step, error.code, str(error))
            if not isinstance(error, BudgetExhaustedError):
                self.summaries[step.name] = summary
                return
        self.summaries[step.name] = await asyncio.to_thread(self.folder.keep, summary)

    def stopped(self) -> Outcome:
        """Return the outcome of a session that was interrupted. The state is charged with what was
        asked, by the steps of an unfinished iteration and by the step that was interrupted, too."""
        outcome = Outcome("Stopped", "interrupted; everything finished so far is kept")
        state = charged_so_far(self.state, self.summaries)
        if self.current is not None:
            state = charge(state, self.guard.failed(self.current, "Stopped", outcome.reason))
        self.state = replace(state, outcome=outcome)
        return outcome


def charged_so_far(state: RunState, summaries: Mapping[str, StepSummary]) -> RunState:
    """Return the state charged with the finished steps of the unfinished iteration: the finish step will add
    them up, and until then the budget must count them. Once learning is over there is none."""
    if state.phase not in ("Profiling", "Learning"):
        return state
    leading = [
        summary
        for summary in summaries.values()
        if summary.kind in LEADING and summary.counts.get("iteration") == state.iteration
    ]
    return reduce(charge, leading, state)
