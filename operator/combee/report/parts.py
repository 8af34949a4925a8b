"""Parts of ``result.json``: the base model, the kinds of numbers, and
what one iteration says of its reduce, its verification and its delay curve. See ``result``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from combee.algo.parallelism import ShapeName
from combee.api.status import Parallelism
from combee.steps import WORK

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Difference = Annotated[float, Field(ge=-1, le=1)]


class Model(BaseModel):
    """The base of every part: frozen, strict about names, camelCase outside, without NaN and infinity."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @classmethod
    def of(cls, source: object, **values: Any) -> Self:
        """Return one with these values. The other fields are attributes of ``source``, where it has them."""
        others = (name for name in cls.model_fields if name not in values and hasattr(source, name))
        return cls(**{name: getattr(source, name) for name in others}, **values)


def first_wrong(error: ValidationError) -> str:
    """Return the first wrong field of a document, and what is wrong with it."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole document'}: {first['msg']}"


class DiversityRecord(Model):
    """What kept an iteration's proposals from being all alike, as its plan froze it."""

    temperature: Amount
    """The least that the proposer wrote at."""
    fresh: bool = False
    """Whether it built on what the run started from, and not on what led."""
    weights: dict[str, Share] = Field(default_factory=dict)
    """How likely each kind of edit was drawn; empty where all were as likely."""


class RetentionLevel(Model):
    """One level of the reduce: what went in and what was still there after it."""

    level: str
    """The level's name, such as ``leaf round 1`` or ``group``; levels are in the order of the reduce."""
    calls: Count
    """Aggregator calls; at the levels before a single call, the calls that embedded or summarized."""
    inputs: Count
    """Inputs of these calls, copies included."""
    lessons: Count
    """Distinct lesson clusters that went in."""
    carried: Count
    """Distinct lesson clusters still there after the level."""


class RarityBand(Model):
    """Retention of the lessons that a certain number of trajectories brought."""

    copies: str
    """Number of trajectories that brought the lesson: ``1``, ``2-3``, ``4+``."""
    distinct: Count
    carried: Count


class Retention(Model):
    """Where lessons were lost in one iteration, in distinct lesson clusters."""

    levels: tuple[RetentionLevel, ...] = ()
    distinct: Count = 0
    """Distinct lesson clusters of the iteration's reflections."""
    carried: Count = 0
    """Distinct clusters whose anchors are in the ledger."""
    rendered: Count = 0
    """Distinct clusters that are in the rendered playbook, under its token budget."""
    left_out: Count = 0
    """Reflections that no aggregator call was given: what ``TopK`` passed over, and what did not fit."""
    by_rarity: tuple[RarityBand, ...] = ()


class Proposals(Model):
    """How much of what the iteration proposed is new."""

    proposed: Count = 0
    """Different entries, or texts of a variant, that were proposed."""
    repeated: Count = 0
    """Those of them that were known, or tried and refused before."""


class Verification(Model):
    """What became of the iteration's new entries."""

    candidates: Count = 0
    """Entries that a replay could decide."""
    replayed: Count = 0
    """Entries tried again on their own example and on controls."""
    verified: Count = 0
    refused: Count = 0
    """All refusals, for whatever reason."""
    leaks: Count = 0
    """Refusals of private or copied text."""
    injections: Count = 0
    """Refusals of text that gives orders to the model."""


class Servers(Model):
    """What the servers themselves were seen to do during a stage: vLLM's metrics, looked at after an answer
    at most every five seconds. Others' requests are in them, too."""

    looks: Annotated[int, Field(ge=1)]
    waiting: Amount
    """Requests in the servers' queues, on average over the looks."""
    waiting_most: Count
    kv_use_most: Share | None = None
    """The largest share of the KV cache that was in use on a server; null where none says."""
    prompt_tokens: Count = 0
    """Prompt tokens that were looked for in the prefix caches from the first look to the last."""
    cached_tokens: Count = 0
    """Those that were found there."""


class StageTime(Model):
    """One stage of a step: its recorded calls, and how long they took. Seconds are the servers' latencies."""

    step: str = Field(description=f"The step: {WORK}.")
    stage: str
    """The stage's name, such as ``leaf round 1`` (earlier versions wrote ``reduce round 1``) or ``select``.
    Stages are in the order of the run."""
    calls: Count
    """Answered calls, memo hits included."""
    scheduled_seconds: Amount
    """What the stage adds to the critical path: its recorded calls list-scheduled on the run's slots. Leaves
    that the map makes run beside its rollouts, and may add nothing."""
    p50: Amount
    """Median latency of a call. The three quantiles are by nearest rank."""
    p90: Amount
    p99: Amount
    max: Amount
    prompt_tokens: Count = 0
    """Prompt tokens of all calls, as the server counted them."""
    cached_tokens: Count = 0
    """Prompt tokens that the server took from its prefix cache."""
    cut: Count = 0
    """Of the calls: the reply ended at its token limit and could not be used."""
    unparsable: Count = 0
    """Of the calls: the reply could not be read as it was."""
    in_flight: dict[str, Count] = Field(default_factory=dict)
    """The batches that its calls joined at their server: calls by how many of the same process were in flight
    when one went, itself included, by the power of two at or below ("64" is 64 to 127). Empty where memory
    answered all, and of earlier versions."""
    servers: Servers | None = None
    """null where no metrics were seen: memory or a task's own program answered, or the servers have none."""

    @property
    def used(self) -> int:
        """Of the calls: the reply was used as it was."""
        return self.calls - self.cut - self.unparsable


class LimitChange(Model):
    """A change of how many calls may be in flight at a server. ``role``: that of the call that told it; roles
    that ask one server share its limit. ``call``: the position of the answer or refusal, counted from the
    start of the process."""

    role: str
    call: Count
    before: Count
    after: Count
    reason: str = ""
    """The most frequent refusal (an HTTP status, ``timeout``), or ``queue`` where calls waited at the server;
    empty where the limit grew."""


class Faults(Model):
    """What went wrong on the way, mended or not. Answers from the memo met no fault."""

    asked_again: dict[str, Count] = Field(default_factory=dict)
    """Requests that had to be sent again, by reason: an HTTP status, ``timeout``, ``reset``,
    ``malformed``."""
    rollouts: dict[str, Count] = Field(default_factory=dict)
    """Rollouts of a container that misbehaved, by fault: ``TaskTimeout``, ``TaskCrashed``, ...
    (custom-tasks.md)."""
    repaired: Count = 0
    """Answers that could not be used as they were, and were asked for once more."""
    hedges: Count = 0
    """Slow calls raced by a second request."""
    lost: Count = 0
    """Calls that brought no usable answer in spite of all this."""
    cut: Count = 0
    """Of the lost: the answer ended at its token limit, and so did a shorter one."""
    unparsable: Count = 0
    """Of the lost: the answer could not be read, however often it was asked for. The rest got no answer."""
    limits: tuple[LimitChange, ...] = ()
    """Changes of how many calls of a role may be in flight, made as the server could take them."""

    @property
    def any(self) -> bool:
        """Whether anything happened."""
        return bool(self.asked_again or self.rollouts or self.repaired or self.hedges or self.lost)


class StepRecord(Model):
    """A step outside the iterations: profile at the start, evaluate at the end."""

    wall_seconds: Amount
    scheduled_seconds: Amount
    """Seconds of the recorded calls, list-scheduled on the run's slots."""
    stages: tuple[StageTime, ...] = ()
    faults: Faults = Faults()
    start: str = ""
    """Of a profile: how many entries of the start another model replayed; where its questions are all right
    or all wrong, what is probably the matter and what to do. ``start.md`` in the run's folder of the store
    shows three of these."""
    calibration: str = ""
    """Of a profile whose answers an evaluator scored: how its scores compare with people's or a referee's."""
    scorer: str = ""
    """Of a run whose evaluator has a ceiling: what a verdict takes, and who scores map, replay and select."""


class CurvePointRecord(Model):
    """A held-out score of serial learning."""

    at: Count
    """Rollouts of serial learning by then, or examples where the curve was stated; 0 is the start."""
    score: Share
    low: Share
    """Lower end of the 95 % interval."""
    high: Share
    n: Count
    """Rows that it was scored on, or is taken to be."""
    seconds: Amount | None = None
    """Seconds since the start, as stated; null where it was measured, and in results of older versions."""


class HeadroomRecord(Model):
    """Whether any playbook could help: train rows answered wrong, answered again with a lesson."""

    rows: Count
    """Train rows answered without a playbook."""
    wrong: Count
    tried: Count
    """Of the wrong: those that were answered again."""
    own: Count
    """Of the tried: right with a lesson made from their own answer."""
    other: Count
    """Of the tried: right with another row's lesson."""
    both: Count = 0
    """Of the tried: right with either; 0 in results of older versions."""


class DiagnosisRecord(Model):
    """Whether serial learning converges, which was asked before anything was learned in parallel."""

    verdict: Literal["Plateau", "Rising", "NotAbove", "NoHeadroom", "Inconclusive"]
    go: bool
    """Whether parallel learning was started."""
    words: str
    """What was found in a sentence or two; without a go, with the alternative."""
    measured: bool
    """Whether it was measured; else the manifest states the curve."""
    points: tuple[CurvePointRecord, ...]
    level: Share
    """Mean score of the plateau, or of the later half of the curve."""
    low: Share
    """Lower end of the level's 95 % interval, as of one evaluation."""
    high: Share
    plateau_at: Count | None = None
    """Where the plateau begins on the curve; null without one."""
    plateau_rollouts: Count | None = None
    """What serial learning took to its plateau; null without one."""
    headroom: HeadroomRecord | None = None
    """null for a stated curve."""
    examples: Count
    """Examples learned from, one at a time."""
    rollouts: Count = 0
    """What the diagnosis took, which is in the run's rollouts, too; 0 for a stated curve."""
    tokens: Count = 0
    """Likewise."""
    money: Amount | None = None
    """Likewise, in the currency of the manifest's prices, time of GPUs included; null without prices."""
    gpu_seconds: Amount | None = None
    """Its share, by its time, of the GPU seconds that the run held; null where it held none."""
    seconds_per_example: Amount = 0.0
    """Modelled seconds that serial learning takes for an example; of a stated curve, its seconds."""
    run_seconds_per_example: Amount | None = None
    """Modelled seconds that this run took for one; null before its first iteration."""
    speed_up: Amount | None = None
    """The one over the other, of learning alone: without scoring, and without this diagnosis."""
    target_score: Share | None = None
    """The soft target that the plateau gave; null where the manifest states one, or there is no plateau."""
    rollout_limit: Count | None = None
    """The rollouts of the whole run that the plateau gave; null likewise."""
    step: StepRecord | None = None
    """null for a stated curve."""


class ShapeRecord(Parallelism):
    """The shape of parallelism that fits the run, and what it can bring."""

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)
    name: ShapeName = Field(description=Parallelism.model_fields["name"].description)


class Replay(Model):
    """One replay of an entry: its own example is answered with the entry in the playbook, then controls."""

    example: str
    """The example that the entry was learned from, which was answered wrong before; empty where all of its
    examples had been answered right, so that it had controls only."""
    fixed: bool
    """Whether it came out right with the entry."""
    controls: tuple[str, ...] = ()
    """Examples that had been answered right, answered again with the entry."""
    harmed: Count = 0
    """Controls that went wrong once the entry was in the playbook."""


class DelayModel(Model):
    """One delay model that competed: T(b) = a b^(1 - alpha) + f b seconds."""

    name: Literal["T_iter", "power", "power+floor"]
    a: Amount
    alpha: Amount
    """The exponent above, which is 1 for T_iter."""
    f: Amount
    """Seconds that each further example costs; 0 for power."""
    aicc: float | None = None
    """The AICc, of which the lowest wins; null where there are too few observations."""
    relative_error: Amount = 0.0
    """Root mean squared log error: 0.2 is about 20 %."""


class DelayFit(Model):
    """The fitted seconds of an iteration by batch size b, T(b) = c0 + c1 b, and the models that competed."""

    c0: Amount
    """Seconds that every iteration costs."""
    c1: Amount
    """Seconds that each further example costs."""
    b_half: Amount | None = None
    """c0 / c1, the batch size at which half of the time is fixed cost; null when c1 is 0."""
    n: Count
    """Number of observations."""
    rmse: Amount | None = None
    """Root mean squared error in seconds."""
    model: DelayModel | None = None
    """The model that the batch size was planned with; null stands for T(b) = c0 + c1 b."""
    models: tuple[DelayModel, ...] = ()
    """All models that competed, by AICc on log errors of T(b)."""
    residuals: tuple[float, ...] = ()
    """ln(observed / fitted) of each observation."""
    source: str = ""
    """What was observed: ``iterations``; ``profiling waves`` in results of older versions."""
    changed_by: Amount | None = None
    """Factor by which iterations took longer after the workload last changed; null when it never did."""


class BudgetLine(Model):
    """One limit of the run and what was used of it."""

    name: Literal["rollouts", "tokens", "gpuSeconds", "wallClockSeconds", "money"]
    """``money`` only where the manifest has prices."""
    spent: Amount
    limit: Amount | None = None
    """The limit; null when none was set."""
    currency: str = ""
    """The currency of ``money``."""
