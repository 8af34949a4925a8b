"""The local executor: what an operator does with Jobs, with coroutines on a laptop.

    decide -> (freeze a plan | run steps | outcome), again and again

It holds no state of its own: every session folds the state anew from DIR's plans and summaries, so
the same command on the same DIR goes on wherever the last one was cut off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from combee.algo.budget import Spend
from combee.assembly.folder import RunFolder
from combee.assembly.guard import BudgetGuard
from combee.errors import BugError, CombeeError, UserError
from combee.local.meter import Meter
from combee.plan.decide import Identity, Plan, decide
from combee.plan.state import RunState, spend_of
from combee.plan.types import IterationPlan, Outcome, Snapshot, Step, StepSummary
from combee.steps import LEADING
from combee.work.context import WorkContext
from combee.work.steps import run_step


@dataclass(slots=True)
class LocalExecutor:
    """One session on one DIR."""

    context: WorkContext
    who: Identity
    folder: RunFolder
    meter: Meter
    guard: BudgetGuard
    given: Mapping[int, IterationPlan] = field(default_factory=dict)
    summaries: dict[str, StepSummary] = field(default_factory=dict)
    plans: dict[int, IterationPlan] = field(default_factory=dict)
    state: RunState = field(default_factory=RunState)
    earlier_seconds: float = 0.0
    """wall-clock of finished steps of earlier sessions."""
    baseline: str = ""

    async def run(self) -> Outcome:
        """Until there is an outcome. Cancelling it stops cleanly: finished work is kept."""
        self.summaries = await asyncio.to_thread(self.folder.summaries)
        self.plans = await asyncio.to_thread(self.folder.plans)
        self.earlier_seconds = sum(
            summary.seconds.get("wall", 0.0)
            for summary in self.summaries.values()
            if summary.kind not in LEADING
        )
        self.meter.earlier_seconds = self.earlier_seconds
        started = time.monotonic()
        while True:
            plan = self._decide(self.earlier_seconds + time.monotonic() - started)
            self._follow(plan)
            if plan.outcome is not None:
                return plan.outcome
            if plan.freeze is not None:
                wanted = self.given.get(plan.freeze.iteration, plan.freeze)
                self.plans[wanted.iteration] = await asyncio.to_thread(self.folder.freeze, wanted)
                self.meter.planned(self.plans[wanted.iteration], self.state)
            for step in plan.start:
                await self._do(step)

    def _decide(self, elapsed_seconds: float) -> Plan:
        snapshot = Snapshot(
            self.summaries, self.plans, given_iterations=len(self.given) if self.given else None
        )
        return decide(
            spec=self.context.spec,
            who=self.who,
            state=self.state,
            snapshot=snapshot,
            elapsed_seconds=elapsed_seconds,
        )

    def _follow(self, plan: Plan) -> None:
        before, self.state = self.state, plan.state
        if not self.baseline:
            self.baseline = self.state.artifact
        self.guard.start_step(spent_so_far(self.state, self.summaries))
        self.meter.moved(before, self.state, self.plans)

    async def _do(self, step: Step) -> None:
        """Run a step; a failed one is known to this session only, so that the next tries again.
        What the user has to mend first, such as a store that is full, ends the session."""
        try:
            summary = await run_step(self.context, step, self.plans, self.baseline)
        except CombeeError as error:
            if isinstance(error, BugError | UserError):
                raise
            self.summaries[step.name] = StepSummary(
                step.name, step.kind, error=error.code, message=str(error)
            )
            return
        await asyncio.to_thread(self.folder.keep, summary)
        self.summaries[step.name] = summary

    def stopped(self) -> Outcome:
        """The outcome of a session that was interrupted."""
        outcome = Outcome("Stopped", "interrupted; everything finished so far is kept")
        self.state = replace(self.state, outcome=outcome)
        return outcome


def spent_so_far(state: RunState, summaries: Mapping[str, StepSummary]) -> Spend:
    """What the state knows plus what steps of the unfinished iteration have spent: its finish will
    roll them up, and until then the budget must see them."""
    spend = state.spend
    for summary in summaries.values():
        if summary.kind in LEADING and summary.counts.get("iteration") == state.iteration:
            spend += spend_of(summary)
    return spend
