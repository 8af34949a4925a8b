"""Conditions of a run: the types, the reasons, and which reason may go with which status.

Writers merge by type, set observedGeneration, and never overwrite a condition of a newer generation
(``merge``). Ready, Reconciling and Stalled read as kstatus has it; reasons are never renamed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from combee.api.common import Int, Model, one_line

MAX_MESSAGE = 1000
"""bytes of a condition's message; longer ones are cut."""


class ConditionType(StrEnum):
    """What a condition speaks about."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    COMPLETE = "Complete"
    FAILED = "Failed"
    PLAN_ACCEPTED = "PlanAccepted"
    QUOTA_RESERVED = "QuotaReserved"
    PODS_PLACED = "PodsPlaced"
    ENGINES_READY = "EnginesReady"
    EVALUATOR_CALIBRATED = "EvaluatorCalibrated"
    PROXY_CALIBRATED = "ProxyCalibrated"
    CONVERGING = "Converging"
    BUDGET_EXHAUSTED = "BudgetExhausted"


class Reason(StrEnum):
    """The reason why a condition has its status."""

    PENDING = "Pending"
    """nothing has started yet."""
    PREPARING = "Preparing"
    """data are pinned, engines come up, the start is scored."""
    LEARNING = "Learning"
    """iterations run."""
    FINISHING = "Finishing"
    """the best artifact is gated and written."""
    IN_PROGRESS = "InProgress"
    """neither complete nor failed."""
    SUSPENDED = "Suspended"
    """spec.suspend is true."""
    LEARNED = "Learned"
    """a better artifact than the start was found, or, without heldOut, something was learned."""
    UNSURE = "Unsure"
    """an artifact scored above the start by a gain that chance could make."""
    NOTHING_BETTER = "NothingBetter"
    """no artifact was better than the start."""
    ALREADY_LEARNED = "AlreadyLearned"
    """an equal run's results are in the store; nothing was called."""
    BUDGET_SPENT = "BudgetSpent"
    """ended by its budget, with the best artifact so far."""
    STOPPED = "Stopped"
    """ended by a person."""
    INVALID_MANIFEST = "InvalidManifest"
    """a field is wrong; the message has its path."""
    NOT_AVAILABLE = "NotAvailable"
    """this installation cannot do it, such as read an address without a package for it."""
    MISSING_INPUT = "MissingInput"
    """discipline is Strict, and the run does not say what it must; the message has the questions."""
    UNSOUND = "Unsound"
    """discipline is Strict, and what the run would show means nothing; the message says why."""
    CHANGE_UNEXPLAINED = "ChangeUnexplained"
    """heldOut was changed after a look that passed nothing, and the Playbook does not say why."""
    INVALID_DATA = "InvalidData"
    """a row or file cannot be read; the message has the line."""
    DATA_OVERLAP = "DataOverlap"
    """heldOut shares examples with train."""
    HELD_OUT_MOVED = "HeldOutMoved"
    """heldOut changed after it was pinned."""
    HELD_OUT_TOO_SMALL = "HeldOutTooSmall"
    """heldOut can never show the gain aimed for."""
    EVALUATOR_NOT_CALIBRATED = "EvaluatorNotCalibrated"
    """the evaluator orders answers otherwise than people or the referee do; or it, or the referee, gives no
    verdicts."""
    PROXY_NOT_CALIBRATED = "ProxyNotCalibrated"
    """the evaluator's proxy orders answers otherwise than the evaluator does, or gives no verdicts."""
    CALIBRATED = "Calibrated"
    """it orders them as they do."""
    WITHIN_CEILING = "WithinCeiling"
    """a verdict takes no more than its ceiling: the evaluator scores, and its proxy is not asked."""
    INCONCLUSIVE = "Inconclusive"
    """too few answers were compared to tell."""
    SECRET_NOT_ALLOWED = "SecretNotAllowed"  # noqa: S105
    """the requester may not read a named Secret."""
    PODS_NOT_ALLOWED = "PodsNotAllowed"
    """the requester may not create pods, or use the named service account."""
    ADDRESS_NOT_ALLOWED = "AddressNotAllowed"
    """a host leads to where pods may go only with the chart's permission; the message has both."""
    ENDPOINT_REFUSED = "EndpointRefused"
    """a model endpoint said no for good."""
    STORE_UNUSABLE = "StoreUnusable"
    """the store is read-only, full, or held by another run."""
    TOO_MANY_FAILURES = "TooManyFailures"
    """a step failed more often than it is repeated."""
    INTERNAL_ERROR = "InternalError"
    """ours."""
    ACCEPTED = "Accepted"
    """the plan is good."""
    RESERVED = "Reserved"
    """the queue admitted the run."""
    NO_QUEUE = "NoQueue"
    """no queue is used, or not any more: the run is over."""
    WAITING_FOR_QUOTA = "WaitingForQuota"
    """the queue has not admitted it yet."""
    PLACED = "Placed"
    """every pod has a node."""
    UNSCHEDULABLE = "Unschedulable"
    """no node takes a pod."""
    IMAGE_PULL_FAILED = "ImagePullFailed"
    """a pod's image cannot be pulled."""
    NOT_STARTED = "NotStarted"
    """none was asked for yet."""
    SERVING = "Serving"
    """every engine answers."""
    NO_ENGINES = "NoEngines"
    """the run has none of its own."""
    STARTING = "Starting"
    """an engine loads its weights."""
    SCALED_DOWN = "ScaledDown"
    """taken down while idle."""
    LOAD_FAILED = "LoadFailed"
    """an engine cannot load its model."""
    NOT_READY = "NotReady"
    """a server that the run refers to is missing or not ready."""
    CRASHING = "Crashing"
    """an engine keeps ending."""
    IMPROVING = "Improving"
    """the score on select rose within the patience."""
    PLATEAU = "Plateau"
    """no better score within the patience."""
    PROPOSER_REPEATS = "ProposerRepeats"
    """nothing that was proposed last was new."""
    NOT_CONVERGING = "NotConverging"
    """serial learning does not rise above the start, so nothing is learned in parallel."""
    NOT_EVALUATED = "NotEvaluated"
    """no score yet."""
    ROLLOUTS_SPENT = "RolloutsSpent"
    """budget.rollouts is spent."""
    TOKENS_SPENT = "TokensSpent"
    """budget.tokens is spent."""
    GPU_SECONDS_SPENT = "GpuSecondsSpent"
    """budget.gpuSeconds is spent."""
    WALL_CLOCK_SPENT = "WallClockSpent"
    """budget.wallClockSeconds is spent."""
    MONEY_SPENT = "MoneySpent"
    """budget.money is spent."""
    WITHIN_BUDGET = "WithinBudget"
    """no limit is reached."""


Status = Literal["True", "False", "Unknown"]
R, T = Reason, ConditionType
_WORKING = (R.PENDING, R.PREPARING, R.LEARNING, R.FINISHING)
_DONE = (R.LEARNED, R.UNSURE, R.NOTHING_BETTER, R.ALREADY_LEARNED)
_COMPLETE = (*_DONE, R.BUDGET_SPENT, R.STOPPED)
_UNFIT = (R.INVALID_MANIFEST, R.NOT_AVAILABLE, R.INVALID_DATA, R.DATA_OVERLAP, R.HELD_OUT_MOVED)
_FAILED = (
    *_UNFIT,
    R.HELD_OUT_TOO_SMALL,
    R.EVALUATOR_NOT_CALIBRATED,
    R.PROXY_NOT_CALIBRATED,
    R.ADDRESS_NOT_ALLOWED,
    R.ENDPOINT_REFUSED,
    R.STORE_UNUSABLE,
    R.TOO_MANY_FAILURES,
    R.INTERNAL_ERROR,
)
_REFUSED = (
    *_UNFIT,
    R.HELD_OUT_TOO_SMALL,
    R.SECRET_NOT_ALLOWED,
    R.PODS_NOT_ALLOWED,
    R.MISSING_INPUT,
    R.UNSOUND,
    R.CHANGE_UNEXPLAINED,
)

TABLE: dict[tuple[ConditionType, Status], tuple[Reason, ...]] = {
    (T.READY, "True"): _DONE,
    (T.READY, "False"): tuple(
        dict.fromkeys((*_WORKING, R.SUSPENDED, R.BUDGET_SPENT, R.STOPPED, *_FAILED, *_REFUSED))
    ),
    (T.RECONCILING, "True"): _WORKING,
    (T.RECONCILING, "False"): tuple(dict.fromkeys((R.SUSPENDED, *_COMPLETE, *_FAILED, *_REFUSED))),
    (T.STALLED, "True"): tuple(dict.fromkeys((R.BUDGET_SPENT, R.STOPPED, *_REFUSED, *_FAILED))),
    (T.STALLED, "False"): (*_WORKING, R.SUSPENDED, *_DONE),
    (T.COMPLETE, "True"): _COMPLETE,
    (T.COMPLETE, "False"): (R.IN_PROGRESS, R.SUSPENDED),
    (T.FAILED, "True"): _FAILED,
    (T.FAILED, "False"): (R.IN_PROGRESS, R.SUSPENDED, *_COMPLETE),
    (T.PLAN_ACCEPTED, "True"): (R.ACCEPTED,),
    (T.PLAN_ACCEPTED, "False"): _REFUSED,
    (T.QUOTA_RESERVED, "True"): (R.RESERVED, R.NO_QUEUE),
    (T.QUOTA_RESERVED, "False"): (R.WAITING_FOR_QUOTA, R.SUSPENDED),
    (T.PODS_PLACED, "True"): (R.PLACED,),
    (T.PODS_PLACED, "False"): (R.UNSCHEDULABLE, R.IMAGE_PULL_FAILED, R.WAITING_FOR_QUOTA, R.SUSPENDED),
    (T.PODS_PLACED, "Unknown"): (R.NOT_STARTED,),
    (T.ENGINES_READY, "True"): (R.SERVING, R.NO_ENGINES),
    (T.ENGINES_READY, "False"): (
        R.STARTING,
        R.SCALED_DOWN,
        R.LOAD_FAILED,
        R.NOT_READY,
        R.CRASHING,
        R.WAITING_FOR_QUOTA,
    ),
    (T.ENGINES_READY, "Unknown"): (R.NOT_STARTED,),
    (T.EVALUATOR_CALIBRATED, "True"): (R.CALIBRATED,),
    (T.EVALUATOR_CALIBRATED, "False"): (R.EVALUATOR_NOT_CALIBRATED,),
    (T.EVALUATOR_CALIBRATED, "Unknown"): (R.INCONCLUSIVE, R.NOT_EVALUATED),
    (T.PROXY_CALIBRATED, "True"): (R.CALIBRATED,),
    (T.PROXY_CALIBRATED, "False"): (R.PROXY_NOT_CALIBRATED,),
    (T.PROXY_CALIBRATED, "Unknown"): (R.INCONCLUSIVE, R.NOT_EVALUATED, R.WITHIN_CEILING),
    (T.CONVERGING, "True"): (R.IMPROVING,),
    (T.CONVERGING, "False"): (R.PLATEAU, R.PROPOSER_REPEATS, R.NOT_CONVERGING),
    (T.CONVERGING, "Unknown"): (R.NOT_EVALUATED, R.INCONCLUSIVE),
    (T.BUDGET_EXHAUSTED, "True"): (
        R.ROLLOUTS_SPENT,
        R.TOKENS_SPENT,
        R.GPU_SECONDS_SPENT,
        R.WALL_CLOCK_SPENT,
        R.MONEY_SPENT,
    ),
    (T.BUDGET_EXHAUSTED, "False"): (R.WITHIN_BUDGET,),
}


class Condition(Model):
    """One condition, as Kubernetes has them. Times are RFC 3339, handed in by the writer."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, validate_by_alias=True)

    type: ConditionType = Field(description="What it speaks about.")
    status: Status = Field(description="True, False or Unknown.")
    reason: Reason = Field(description="Why, in one stable word.")
    message: str = Field(description="Why, for people.")
    observed_generation: Int = Field(default=0, ge=0, description="metadata.generation it speaks about.")
    last_transition_time: str = Field(default="", description="When status last changed.")

    @field_validator("message")
    @classmethod
    def _cut(cls, value: str) -> str:
        return one_line(value, MAX_MESSAGE)


def merge(conditions: Iterable[Condition], new: Iterable[Condition]) -> tuple[Condition, ...]:
    """Merge ``new`` into ``conditions`` by type, in the order of ConditionType.

    A condition of an older generation than the existing one is ignored, and the transition time is kept while
    the status stays the same.
    """
    merged = {condition.type: condition for condition in conditions}
    for condition in new:
        before = merged.get(condition.type)
        if before is not None and before.observed_generation > condition.observed_generation:
            continue
        if before is not None and before.status == condition.status and before.last_transition_time:
            kept = {"last_transition_time": before.last_transition_time}
            condition = condition.model_copy(update=kept)
        merged[condition.type] = condition
    return tuple(merged[type] for type in ConditionType if type in merged)
