"""``PromptLearningRun.status``: what a run says about itself. Never prompts, data or secrets.

Values are immutable; a reducer makes the next one with ``model_copy(update=...)`` and the helpers
here, and ``bounded`` keeps its JSON under MAX_STATUS_BYTES. A status that a newer version wrote can be read:
fields and conditions that this one does not know are dropped, and a phase is kept as the word it is.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from combee.api.common import MAP_BY_TYPE, Model, one_line
from combee.api.conditions import Condition, ConditionType, Reason

MAX_STATUS_BYTES = 64 * 1024
MAX_HISTORY = 20
"""iterations kept; the store has all of them."""
MAX_OBSERVATIONS = 200
MAX_REASON = 300
"""bytes of a sentence; longer ones are cut."""


class Phase(StrEnum):
    """Where a run stands, in one word: the STATE column."""

    PENDING = "Pending"
    REFUSED = "Refused"
    PREPARING = "Preparing"
    LEARNING = "Learning"
    FINISHING = "Finishing"
    SUSPENDED = "Suspended"
    LEARNED = "Learned"
    UNSURE = "Unsure"
    NOTHING_BETTER = "NothingBetter"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self in _OVER

    @classmethod
    def _missing_(cls, value: object) -> Phase | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = word._value_ = value
        return word


_OVER = frozenset(
    {
        Phase.LEARNED,
        Phase.UNSURE,
        Phase.NOTHING_BETTER,
        Phase.BUDGET_EXHAUSTED,
        Phase.FAILED,
        Phase.STOPPED,
    }
)


class Part(Model):
    """The base of status parts: blind to fields it does not know; made with attribute or YAML names."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True)


class RoleUsage(Part):
    """What one model role has used."""

    calls: int = Field(default=0, ge=0, description="Calls answered by the model.")
    hits: int = Field(default=0, ge=0, description="Calls answered from the memo.")
    prompt_tokens: int = Field(default=0, ge=0, description="Tokens in.")
    completion_tokens: int = Field(default=0, ge=0, description="Tokens out.")
    cached_tokens: int = Field(default=0, ge=0, description="Tokens in that the server had cached.")
    lost_tokens: int = Field(
        default=0, ge=0, description="Tokens of requests whose answers came to nothing: broken off, or raced."
    )


class SpendStatus(Part):
    """What counts against the budget."""

    rollouts: int = Field(default=0, ge=0, description="Task-model calls.")
    tokens: int = Field(default=0, ge=0, description="Tokens in and out, all roles.")
    gpu_seconds: float = Field(default=0.0, ge=0, description="Seconds times GPUs.")
    wall_clock_seconds: float = Field(default=0.0, ge=0, description="Seconds since the start.")
    money: float | None = Field(
        default=None,
        ge=0,
        description="What models and GPUs cost, by the spec's prices; absent without them.",
    )
    currency: str = Field(default="", description="Its currency.")


class HeldOutStatus(Part):
    """Scores on heldOut."""

    digest: str = Field(default="", description="Digest that heldOut is pinned to.")
    select_rows: int = Field(default=0, ge=0, description="Rows that select.")
    gate_rows: int = Field(default=0, ge=0, description="Rows that gate.")
    baseline: float | None = Field(default=None, description="Score of the start on select.")
    current: float | None = Field(default=None, description="Latest score on select.")
    best: float | None = Field(default=None, description="Best score on select.")
    best_iteration: int | None = Field(default=None, description="Iteration of the best score.")
    evaluations_without_gain: int = Field(default=0, ge=0, description="What patience counts.")


class DiagnosisStatus(Part):
    """Whether serial learning converges, which was asked before anything was learned in parallel."""

    verdict: str = Field(
        description="Plateau, Rising, Inconclusive, NotAbove or NoHeadroom; the first three are a go."
    )
    message: str = Field(description="What was found; without a go, with the alternative.")
    level: float = Field(description="Score of the plateau, or of the later half of the curve.")
    low: float = Field(description="Lower end of its 95 % interval.")
    high: float = Field(description="Upper end of its 95 % interval.")
    plateau_rollouts: int | None = Field(default=None, description="What serial learning took to it.")
    examples: int = Field(default=0, ge=0, description="Examples learned from, one at a time.")
    rollouts: int = Field(default=0, ge=0, description="What the diagnosis took; in spend, too.")


class Parallelism(Part):
    """The shape of parallelism that fits the run, and what it can bring."""

    name: str = Field(
        description="Candidate: the calls of one run side by side. Task: several runs side by side, since no "
        "batch of this one fills the slots. Hybrid: both."
    )
    reason: str = Field(default="", description="Why it fits.")
    advice: str = Field(default="", description="What to do; empty where nothing is to be done.")
    iterations: int = Field(
        default=0, ge=0, description="Iterations that the figures were measured over; 0: they are expected."
    )
    slots: int = Field(ge=1, description="Calls that can be in flight at once.")
    utilisation: float = Field(
        ge=0, le=1, description="Share of the slots that was busy, by the recorded calls scheduled on them."
    )
    speed_up: float = Field(ge=0, description="Times as fast as the same calls one after the other.")
    ceiling: float = Field(
        ge=0,
        description="The same on any number of slots, at most: the seconds of all calls over those of the "
        "longest chain.",
    )
    beside: float = Field(
        ge=0,
        description="Times as fast as in turn that runs like this one can be side by side on these slots, at "
        "most.",
    )
    rejected: dict[str, str] = Field(default_factory=dict, description="Why each other shape does not fit.")
    invalidated_by: tuple[str, ...] = Field(default=(), description="When the figures do not hold.")


class GateStatus(Part):
    """The one look at the gate rows."""

    baseline: float = Field(description="Score of the start.")
    best: float = Field(description="Score of the best artifact.")
    gain: float = Field(description="Their difference.")
    low: float = Field(description="Lower end of its confidence interval.")
    high: float = Field(description="Upper end of its confidence interval.")
    rows: int = Field(ge=0, description="Examples compared.")
    discordant: int = Field(ge=0, description="Examples on which the two differ.")


class IterationStatus(Part):
    """One iteration, in short."""

    iteration: int = Field(ge=0, description="Number, from 0.")
    epoch: int = Field(default=0, ge=0, description="Epoch, from 0.")
    batch_size: int = Field(ge=0, description="Examples learned from.")
    batch_reason: str = Field(default="", description="Why that many.")
    seconds: float = Field(default=0.0, ge=0, description="Duration.")
    calls: int = Field(default=0, ge=0, description="Model calls.")
    tokens: int = Field(default=0, ge=0, description="Tokens in and out.")
    rollouts: int = Field(default=0, ge=0, description="Task-model calls.")
    train_score: float | None = Field(default=None, description="Score while learning.")
    select: float | None = Field(default=None, description="Score on select afterwards.")
    best: bool = Field(default=False, description="Whether it was the best so far.")
    artifact_digest: str = Field(default="", description="Artifact after it.")


class DelayObservation(Part):
    """How long an iteration of some size took; what the batch size is planned from."""

    batch_size: int = Field(ge=1, description="Examples.")
    seconds: float = Field(gt=0, description="Seconds.")


class Pinned(Part):
    """What was fixed when the plan was accepted, kept over an operator upgrade."""

    manifest_digest: str = Field(default="", description="Digest of the manifest.")
    data_digests: dict[str, str] = Field(default_factory=dict, description="Digest of each split.")
    image: str = Field(default="", description="Worker image, by digest.")
    algorithm: str = Field(default="", description="Version of the algorithm.")


class StepStatus(Part):
    """A step under way: one Job."""

    name: str = Field(description="Name of the Job.")
    kind: str = Field(description="Kind of the step.")
    shards: int = Field(default=1, ge=1, description="Pods it takes in all.")
    succeeded: int = Field(default=0, ge=0, description="Pods that are done.")
    failed: int = Field(default=0, ge=0, description="Pods that failed and were replaced.")
    since: str = Field(default="", description="When it was created.")


class Shown(Part):
    """Figures in words, for the columns of `kubectl get`; made by ``shown``."""

    iteration: str = Field(default="", description="Iterations done and planned, such as 3/6.")
    held_out: str = Field(default="", description="Best score on select, such as 0.861.")
    gain: str = Field(
        default="",
        description="Gain over the start, such as +0.221: on select, later on gate; ?: chance could make it.",
    )
    rollouts: str = Field(default="", description="Rollouts used and allowed, such as 312/4000.")
    cost: str = Field(default="", description="Cost and what is allowed, such as 1.84/25 EUR.")


class RunStatus(Part):
    """All that a run says about itself."""

    observed_generation: int = Field(default=0, ge=0, description="metadata.generation this speaks about.")
    phase: Phase = Field(default=Phase.PENDING, description="Where the run stands.")
    message: str = Field(default="", description="The same in a sentence.")
    conditions: tuple[Condition, ...] = Field(
        default=(), description="Conditions, one of a type.", json_schema_extra=MAP_BY_TYPE
    )
    start_time: str | None = Field(
        default=None, description="When work started; the spec is immutable since then."
    )
    completion_time: str | None = Field(default=None, description="When it ended.")
    epoch: int = Field(default=0, ge=0, description="Epoch under way, from 0.")
    iteration: int = Field(default=0, ge=0, description="Iterations done.")
    iterations_planned: int | None = Field(default=None, ge=0, description="Iterations expected in all.")
    examples_done: int = Field(default=0, ge=0, description="Examples learned from, over all epochs.")
    examples_planned: int = Field(default=0, ge=0, description="Examples to learn from, over all epochs.")
    eta_seconds: float | None = Field(default=None, ge=0, description="Seconds expected to the end.")
    batch_size: int | None = Field(default=None, ge=1, description="Examples of the iteration under way.")
    batch_reason: str = Field(default="", description="Why that many, in words.")
    held_out: HeldOutStatus = Field(default_factory=HeldOutStatus, description="Scores on heldOut.")
    gain: float | None = Field(default=None, description="Best score on select minus the start's.")
    diagnosis: DiagnosisStatus | None = Field(
        default=None, description="What serial learning showed; absent without spec.serialBaseline."
    )
    shape: Parallelism | None = Field(
        default=None, description="Shape of parallelism that fits; absent before the data is counted."
    )
    gate: GateStatus | None = Field(default=None, description="The one look at the gate rows.")
    test_score: float | None = Field(default=None, description="Score on test, at the very end.")
    usage: dict[str, RoleUsage] = Field(default_factory=dict, description="Usage by model role.")
    spend: SpendStatus = Field(default_factory=SpendStatus, description="What counts against the budget.")
    history: tuple[IterationStatus, ...] = Field(default=(), description="The last 20 iterations.")
    delay_observations: tuple[DelayObservation, ...] = Field(
        default=(), description="Sizes and seconds observed, newest last."
    )
    artifact_digest: str = Field(default="", description="The artifact learned so far.")
    best_digest: str = Field(default="", description="The best artifact.")
    resolved: dict[str, str] = Field(default_factory=dict, description="Effective values of what was Auto.")
    pinned: Pinned = Field(default_factory=Pinned, description="What was fixed at acceptance.")
    steps: tuple[StepStatus, ...] = Field(default=(), description="Steps under way.")
    attempts: dict[str, int] = Field(
        default_factory=dict, description="Steps that were started again, and how often."
    )
    published: str = Field(default="", description="ConfigMap that holds the best artifact.")
    shown: Shown = Field(default_factory=Shown, description="Figures as `kubectl get` shows them.")
    state: dict[str, Any] = Field(
        default_factory=dict,
        description="The operator's memory, in names of its own; internal, and read by it alone.",
    )

    @field_validator("conditions", mode="before")
    @classmethod
    def _known(cls, conditions: Any) -> Any:
        types, reasons = set(ConditionType), set(Reason)
        return [
            one
            for one in conditions
            if not isinstance(one, dict) or (one.get("type") in types and one.get("reason") in reasons)
        ]


def shown(status: RunStatus, rollouts_limit: int | None, money_limit: float | None = None) -> Shown:
    """Return the figures of ``status`` in words; what is not known yet is empty. The limits are the
    budget's."""
    best, gate, money = status.held_out.best, status.gate, status.spend.money
    gain, unsure = (
        (status.gain, "") if gate is None else (gate.gain, "?" if gate.low <= 0 < gate.gain else "")
    )
    allowed = "" if money_limit is None else f"/{money_limit:g}"
    return Shown(
        iteration=_of(status.iteration, status.iterations_planned),
        held_out="" if best is None else f"{best:.3f}",
        gain="" if gain is None else f"{gain:+.3f}{unsure}",
        rollouts=_of(status.spend.rollouts, rollouts_limit),
        cost="" if money is None else f"{money:.2f}{allowed} {status.spend.currency}",
    )


def _of(done: int, limit: int | None) -> str:
    return str(done) if limit is None else f"{done}/{limit}"


def status_json(status: RunStatus) -> str:
    """Return canonical JSON with YAML's names."""
    return json.dumps(status.dump(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def bounded(status: RunStatus) -> RunStatus:
    """Return ``status`` so that its JSON has at most MAX_STATUS_BYTES.

    Sentences are cut first, then the oldest iterations and observations go; phase, scores, spend and
    digests always stay.
    """
    short = [
        record.model_copy(update={"batch_reason": one_line(record.batch_reason, MAX_REASON)})
        for record in status.history
    ]
    status = status.model_copy(
        update={
            "message": one_line(status.message, MAX_REASON),
            "batch_reason": one_line(status.batch_reason, MAX_REASON),
            "diagnosis": status.diagnosis
            and status.diagnosis.model_copy(
                update={"message": one_line(status.diagnosis.message, MAX_REASON)}
            ),
            "history": tuple(short[-MAX_HISTORY:]),
            "delay_observations": status.delay_observations[-MAX_OBSERVATIONS:],
            "resolved": {k[:60]: one_line(v, 100) for k, v in list(status.resolved.items())[:30]},
        }
    )
    while _size(status) > MAX_STATUS_BYTES and (status.history or status.delay_observations):
        history, seen = status.history[1:], status.delay_observations
        seen = seen[(len(seen) + 1) // 2 :]
        status = status.model_copy(update={"history": history, "delay_observations": seen})
    return status


def _size(status: RunStatus) -> int:
    return len(status_json(status).encode("utf-8", "surrogatepass"))
