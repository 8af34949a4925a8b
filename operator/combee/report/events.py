"""The lines of ``combee run --json``: one model per event; the schema and docs/events.md come from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from combee.report.parts import Model, Share
from combee.report.result import Outcome, Paired


class Event(Model):
    """The fields of every line."""

    seconds: Annotated[float, Field(ge=0)]
    """Seconds since the run started in this process."""


class StartedEvent(Event):
    """The run begins, or goes on after it was stopped."""

    event: Literal["started"] = "started"
    run: str
    folder: str
    """Where the results will lie, as given."""
    resumed: bool
    """Whether finished work was found there."""


class PlanEvent(Event):
    """An iteration's decisions are frozen."""

    event: Literal["plan"] = "plan"
    iteration: int
    """The number of the iteration, from 1."""
    epoch: int
    batch_size: int
    batch_reason: str
    strategy: str
    merge: str
    redundancy: str
    copies: int


class ProgressEvent(Event):
    """The standing of the run. Counts are of the whole run so far."""

    event: Literal["progress"] = "progress"
    run: str
    phase: str
    iteration: int
    """The number of the iteration, from 1; 0 before the first."""
    iterations_expected: int | None
    batch_size: int
    batch_reason: str
    stage: str
    stage_done: int
    stage_total: int
    """Units of the stage; 0 when not stated."""
    examples_done: int
    examples_total: int
    calls_done: int
    """Answered calls, memo hits included."""
    calls_hit: int
    calls_in_flight: int
    calls_retrying: int
    tokens: int
    rollouts: int
    heldout_baseline: Share | None
    heldout_best: Share | None
    heldout_last: Share | None
    elapsed_seconds: float
    """Seconds of the run, earlier processes included."""
    eta_seconds: float | None
    budget: str
    notes: tuple[str, ...]
    simulated: bool
    """Whether any model says of itself that it is simulated."""


class IterationEvent(Event):
    """An iteration is finished. Counts are of the whole run so far; result.json has the iteration's own."""

    event: Literal["iteration"] = "iteration"
    iteration: int
    """The number of the iteration, from 1."""
    batch_size: int
    examples_done: int
    heldout_last: Share | None
    """Select score after the iteration, or the newest score where it was not evaluated."""
    heldout_best: Share | None
    tokens: int
    rollouts: int
    simulated: bool


class FinishedEvent(Event):
    """The run is over; this is the last line."""

    event: Literal["finished"] = "finished"
    run: str
    outcome: Outcome
    exit_code: int
    reason: str
    gate: Paired | None
    """Scores before and after on the gate half; null when it was not looked at."""
    simulated: bool
    folder: str


class WarningEvent(Event):
    """Something a person should know; the run goes on."""

    event: Literal["warning"] = "warning"
    text: str


class ErrorEvent(Event):
    """An error: what went wrong, where, and what to do."""

    event: Literal["error"] = "error"
    code: str
    """A stable word for the class of the error."""
    what: str
    where: str
    fix: str


EVENTS: TypeAdapter[Event] = TypeAdapter(
    Annotated[
        StartedEvent | PlanEvent | ProgressEvent | IterationEvent | FinishedEvent | WarningEvent | ErrorEvent,
        Field(discriminator="event"),
    ]
)
KINDS: dict[str, type[Event]] = {kind.model_fields["event"].default: kind for kind in Event.__subclasses__()}
"""The kinds of events by their ``event``."""
