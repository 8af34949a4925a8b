"""When a run stops learning: an ordered chain of checks, the first that speaks decides.

Order matters and is read top to bottom: given plans are obeyed before anything else, a finished
epoch count before patience, patience before the budget (a run that has converged is not reported
as one that ran out of money).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from combee.api.run import RunSpec
from combee.plan.state import RunState
from combee.plan.types import Outcome, Snapshot


@dataclass(frozen=True, slots=True)
class StopFacts:
    """What the checks look at."""

    spec: RunSpec
    state: RunState
    snapshot: Snapshot


Check = Callable[[StopFacts], Outcome | None]


def given_plans_done(facts: StopFacts) -> Outcome | None:
    """With given plans the run does exactly their iterations."""
    given = facts.snapshot.given_iterations
    if given is None or facts.state.iteration < given:
        return None
    return Outcome("Done", f"all {given} given iteration plans are done")


def epochs_done(facts: StopFacts) -> Outcome | None:
    """Every example was seen ``epochs`` times."""
    epochs = facts.spec.method.epochs
    if facts.state.epoch < epochs:
        return None
    return Outcome(
        "Done",
        f"{epochs} epoch{'s' if epochs > 1 else ''} of {facts.state.examples_done // epochs} examples done",
    )


def patience_spent(facts: StopFacts) -> Outcome | None:
    """No better select score in ``patience`` evaluations. Never the train score."""
    patience = facts.spec.stopping.patience
    if facts.snapshot.given_iterations is not None or facts.state.evaluations_since_best < patience:
        return None
    return Outcome("Done", f"select has not improved in {patience} evaluations")


STOP_CHECKS: tuple[Check, ...] = (given_plans_done, epochs_done, patience_spent)


def stop_reason(facts: StopFacts) -> Outcome | None:
    """The first check that speaks, or None: go on learning."""
    return next((outcome for check in STOP_CHECKS if (outcome := check(facts)) is not None), None)
