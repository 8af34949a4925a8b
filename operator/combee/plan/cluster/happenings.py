"""The Events between two statuses of a run: sentences for `kubectl describe`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from combee.api.conditions import Condition, ConditionType, Reason
from combee.api.status import Phase, RunStatus


@dataclass(frozen=True, slots=True)
class Happening:
    """One Event."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def happenings(before: RunStatus, after: RunStatus) -> Iterator[Happening]:
    """Yield what happened from ``before`` to ``after``, in the order in which people think of it."""
    yield from _accepted(before, after)
    if before.phase is Phase.SUSPENDED and after.phase is not Phase.SUSPENDED and not after.phase.over:
        yield Happening("Normal", "Resumed", "the run goes on where it was")
    if after.phase is Phase.SUSPENDED and before.phase is not Phase.SUSPENDED:
        yield Happening("Normal", "Suspended", "its Jobs are deleted and its engines scaled to 0")
    yield from _worked(before, after)
    yield from _troubled(before, after)
    if after.published and not before.published:
        yield Happening("Normal", "Published", f"the best playbook is in ConfigMap {after.published}")
    if after.phase.over and not before.phase.over:
        good = after.phase is not Phase.FAILED
        yield Happening("Normal" if good else "Warning", after.phase.value, after.message)


def _accepted(before: RunStatus, after: RunStatus) -> Iterator[Happening]:
    old, new = _of(before, ConditionType.PLAN_ACCEPTED), _of(after, ConditionType.PLAN_ACCEPTED)
    if new is None or (old is not None and (old.status, old.message) == (new.status, new.message)):
        return
    if new.status == "True" and old is not None and old.status == "True":
        # Told before: another release words it differently.
        return
    if new.status == "True":
        yield Happening("Normal", "PlanAccepted", "the plan is good; the first step is being started")
    elif new.status == "False":
        yield Happening("Warning", new.reason.value, new.message)


def _worked(before: RunStatus, after: RunStatus) -> Iterator[Happening]:
    if after.held_out.baseline is not None and before.held_out.baseline is None:
        score, rows = f"{after.held_out.baseline:.3f}", after.held_out.select_rows
        yield Happening("Normal", "Profiled", f"the start scores {score} on {rows} select rows")
    if after.diagnosis is not None and before.diagnosis is None:
        unsure = after.diagnosis.verdict == "Inconclusive"
        yield Happening("Warning" if unsure else "Normal", "Diagnosed", after.diagnosis.message)
    reported = {record.iteration for record in before.history}
    for record in after.history:
        if record.iteration not in reported:
            score = "" if record.select is None else f", select {record.select:.3f}"
            best = " (best so far)" if record.best else ""
            work = f"{record.batch_size} examples in {record.seconds:.1f} s{score}{best}"
            yield Happening("Normal", "IterationDone", f"iteration {record.iteration + 1}: {work}")
    is_new = (after.iteration, after.batch_size) != (before.iteration, before.batch_size)
    if is_new and after.phase is Phase.LEARNING and after.batch_size:
        work = f"{after.batch_size} examples, {after.batch_reason}"
        yield Happening("Normal", "IterationPlanned", f"iteration {after.iteration + 1}: {work}")


def _troubled(before: RunStatus, after: RunStatus) -> Iterator[Happening]:
    for type in (ConditionType.PODS_PLACED, ConditionType.ENGINES_READY, ConditionType.QUOTA_RESERVED):
        old, new = _of(before, type), _of(after, type)
        if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
            continue
        if new.status == "False" and new.reason.value not in ("Suspended", "ScaledDown", "Starting"):
            yield Happening("Warning", new.reason.value, new.message)
        elif type is ConditionType.ENGINES_READY and new.reason.value == "Serving":
            yield Happening("Normal", "EnginesReady", new.message)
    old, new = _of(before, ConditionType.CONVERGING), _of(after, ConditionType.CONVERGING)
    if (
        new is not None
        and new.reason is Reason.PROPOSER_REPEATS
        and (old is None or old.reason != new.reason)
    ):
        yield Happening("Warning", new.reason.value, new.message)
    if after.state.get("mended", 0) > before.state.get("mended", 0):
        mends = "the step that wrote it makes it again from the memo"
        yield Happening(
            "Warning", "FileDamaged", f"{after.state['damaged']} in the store is damaged: {mends}"
        )
    for step, times in after.attempts.items():
        if times > before.attempts.get(step, 0):
            yield Happening("Warning", "StartedAgain", f"step {step} is started again, attempt {times}")


def _of(status: RunStatus, type: ConditionType) -> Condition | None:
    return next((condition for condition in status.conditions if condition.type is type), None)
