"""``result.json`` version 1: what a run leaves for people and programs, as frozen models.

The models are the contract: ``result.schema.json`` and ``docs/result.md`` are generated from them
(``python -m combee.generate.schemas --write``). Names are camelCase in JSON and snake_case in Python;
unknown names are refused. Scores are shares in [0, 1], a *point* is 0.01 of them; seconds are wall-clock
unless the name says otherwise; tokens are those the servers charged. A part that a run never reached is
``null`` or empty, never invented. No prompt, row of data or secret has a place here, but what was learned
has.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from combee.errors import DataError
from combee.methods.protocol import VariantKind
from combee.plan.types import EXIT_CODES
from combee.report.parts import Amount, Count, Difference, Model, Share, first_wrong
from combee.report.parts import BudgetLine as BudgetLine
from combee.report.parts import DelayFit as DelayFit
from combee.report.parts import DelayModel as DelayModel
from combee.report.parts import DiagnosisRecord as DiagnosisRecord
from combee.report.parts import DiversityRecord as DiversityRecord
from combee.report.parts import Faults as Faults
from combee.report.parts import Proposals as Proposals
from combee.report.parts import RarityBand as RarityBand
from combee.report.parts import Replay as Replay
from combee.report.parts import Retention as Retention
from combee.report.parts import RetentionLevel as RetentionLevel
from combee.report.parts import ShapeRecord as ShapeRecord
from combee.report.parts import StageTime as StageTime
from combee.report.parts import StepRecord as StepRecord
from combee.report.parts import Verification as Verification
from combee.report.parts_cost import AcceptedPrompt as AcceptedPrompt
from combee.report.parts_cost import CostPerPoint as CostPerPoint
from combee.report.parts_cost import Durations as Durations
from combee.report.parts_cost import EnergyUsed as EnergyUsed
from combee.report.parts_cost import SerialBaseline as SerialBaseline
from combee.report.parts_cost import SerialPoint as SerialPoint
from combee.report.parts_cost import Setup as Setup
from combee.report.parts_cost import TaskTokens as TaskTokens

Outcome = Literal["Learned", "Unsure", "NothingBetter", "BudgetExhausted", "Failed", "Stopped"]
Role = Literal["task", "proposer", "evaluator", "proxy", "referee", "embedder"]
Verified = Literal["replay", "support", "initial", "no"]
RefusalKind = Literal["leak", "injection", "program", "replay", "support"]


class ModelInfo(Model):
    """The model that answered for one role."""

    model: str
    """The model's name, as it was asked for."""
    endpoint_host: str
    """Host and port of its endpoint; never a path, a user or a key."""
    simulated: bool = False
    """Whether the server says of itself that it is no real model."""
    served_by: str = ""
    """The server's own words about itself (``owned_by`` of /v1/models), verbatim."""


class SplitInfo(Model):
    """One split of the data."""

    rows: Count
    """Distinct examples."""
    digest: str
    """sha256 of its canonical content."""


class HeldOutInfo(SplitInfo):
    """The heldOut split and its two halves."""

    select: Count = 0
    """Examples used to choose the best iteration."""
    gate: Count = 0
    """Examples looked at once, for the final verdict."""


class DataInfo(Model):
    """The data, pinned by digest."""

    train: SplitInfo
    held_out: HeldOutInfo | None = None
    test: SplitInfo | None = None
    warnings: tuple[str, ...] = ()
    """What was found while reading: merged rows, small splits; no row is quoted."""


class Baseline(Model):
    """The untouched start (initial playbook, or none) on the select half."""

    select: Share


class Best(Model):
    """The best iteration on the select half. It was chosen there, so this number is optimistic."""

    select: Share
    iteration: Count
    """The iteration whose playbook it is; 0 is the untouched start."""


class Paired(Model):
    """Before and after on the same examples, with the interval of the difference (paired bootstrap, 95 %)."""

    baseline: Share
    """Score of the untouched start."""
    best: Share
    """Score of the chosen playbook, as rendered under its token budget."""
    gain: Difference
    """best - baseline."""
    low: Difference
    """Lower end of the 95 % interval of the gain."""
    high: Difference
    """Upper end of the 95 % interval of the gain."""
    n: Count
    discordant: Count
    """Examples whose verdict changed, either way."""
    partial_baseline: Share | None = None
    """Mean partial credit of the untouched start; null where the task has none. Nothing is decided by it."""
    partial_best: Share | None = None
    """Mean partial credit of the chosen playbook."""
    whole_baseline: Share | None = None
    """Share of clusters whose rows are all right, of the untouched start; null without clusters. Nothing is
    decided by it."""
    whole_best: Share | None = None
    """Share of clusters whose rows are all right, of the chosen playbook."""


class HeldOut(Model):
    """Scores on heldOut."""

    baseline: Baseline | None = None
    best: Best | None = None
    gate: Paired | None = None
    """The one look at the gate half; null when the run ended before it."""
    smallest_detectable_gain: Share | None = None
    """Smallest gain that the gate half can show with power 0.8 at 5 %."""


class IterationRecord(Model):
    """One iteration. Counts are of this iteration alone, except ``examples``."""

    iteration: Annotated[int, Field(ge=1)]
    epoch: Count
    examples: Count
    """Examples learned from so far, this iteration included."""
    batch_size: Count
    batch_reason: str
    """The reason for this batch size, in one sentence."""
    wall_seconds: Amount
    modelled_seconds: Amount | None = None
    """Seconds of the recorded call graph, replayed through the latency law on the run's slots."""
    critical_path_seconds: Amount | None = None
    """Seconds of the recorded calls, list-scheduled on the run's slots."""
    calls: Count
    """Model calls, memo hits included."""
    tokens: Count
    """Tokens of these calls, in and out, evaluation included."""
    rollouts: Count
    """Task-model calls: map, replay and heldOut."""
    train_score: Share | None = None
    """Score of the batch's rollouts, before learning from them."""
    select: Share | None = None
    """Score of the rendered playbook on the select half after the iteration; null when not evaluated."""
    partial_train: Share | None = None
    """Mean partial credit of the batch's rollouts; null where the task has none. Nothing is decided by it."""
    partial_select: Share | None = None
    """Mean partial credit of the rendered playbook on the select half."""
    best: bool = False
    """Whether this is the iteration that was kept."""
    retention: Retention | None = None
    verification: Verification | None = None
    proposals: Proposals | None = None
    diversity: DiversityRecord | None = None
    """The kinds of edits that were asked for; null where none were."""
    built_on: tuple[str, ...] = ()
    """Ids of the variants that the iteration built on side by side, where there were several."""
    delay_fit: DelayFit | None = None
    """The fit that the batch size was chosen with."""
    observations: tuple[tuple[Amount, Amount], ...] = ()
    """(batch size, seconds) pairs behind the fit."""
    trial: bool = False
    """Whether the batch size was chosen in order to measure it."""
    prompt_tokens: Count = 0
    """Prompt tokens of the learning calls, a covariate of the iteration's time."""
    cached_tokens: Count = 0
    """Prompt tokens of these calls that the server took from its prefix cache."""
    failed: Count = 0
    """Examples of the batch that got no answer; they count as wrong."""
    step_seconds: dict[str, Amount] = Field(default_factory=dict)
    """Wall-clock seconds of map (its longest shard), reduce and finish."""
    stages: tuple[StageTime, ...] = ()
    """The critical path by stage, in the order of the stages."""
    faults: Faults = Faults()

    @property
    def repeats(self) -> bool:
        """Whether something was proposed, and nothing of it was new."""
        return self.proposals is not None and 0 < self.proposals.proposed == self.proposals.repeated


class Usage(Model):
    """Calls and tokens of one model role."""

    calls: Count = 0
    """Answered calls, memo hits included."""
    hits: Count = 0
    """Calls that were answered from the memo."""
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    cached_tokens: Count = 0
    """Prompt tokens that the server served from its prefix cache."""
    lost_tokens: Count = 0
    """Tokens of requests whose answers came to nothing: broken off, or raced."""


class PlaybookInfo(Model):
    """The rendered playbook."""

    digest: str
    tokens: Count
    entries: Count
    """Entries rendered."""
    left_out: Count = 0
    """Entries of the ledger that are not rendered: over the token budget, or not verified."""
    over_budget: Count = 0
    """Admitted entries that were left out because they did not fit the token budget."""
    components: dict[str, str] = Field(default_factory=dict)
    """A prompt's parts by name; empty for a playbook of entries."""
    text: str = ""
    """What models are shown, to the byte."""
    path: str = "prompt.md"
    """The file that holds ``text``, relative to result.json."""


class Entry(Model):
    """One entry of the ledger."""

    id: str
    section: str
    text: str
    """Its text; of one that was refused for private or copied text only that it was (``leftOut``: leak)."""
    sources: tuple[str, ...] = ()
    """Trajectories (``<example id>@<epoch>``) that it was learned from."""
    helpful: Count = 0
    """Distinct examples that voted it helpful."""
    harmful: Count = 0
    """Distinct examples that voted it harmful."""
    verified: Verified
    """Why it may be rendered: it passed a replay, has a second source, came with the initial playbook; or
    ``no``."""
    contested: bool = False
    """Whether other sources say otherwise."""
    rendered: bool = False
    parents: tuple[str, ...] = ()
    """Ids of the entries that it replaced or was merged from."""
    replaced_by: tuple[str, ...] = ()
    """Ids of the entries that replaced it or took it in."""
    replays: tuple[Replay, ...] = ()
    """The replays of the entry."""
    left_out: str = ""
    """Why it is not in the playbook, in one word; empty where it is."""


class RefusalRecord(Model):
    """An entry that was not let in. Its text is kept out; its digest identifies it."""

    kind: RefusalKind
    reason: str
    text_digest: str


class VariantRecord(Model):
    """A variant of a prompt that got into the pool."""

    id: str
    """The first digits of its digest."""
    kind: VariantKind
    """``start``: it was given; ``rewrite``: as a model wrote it; ``lessons``: the same, with what was learned
    below it word for word; ``merge``: of two lines of variants."""
    parents: tuple[str, ...] = ()
    """Ids of the variants that it came out of."""
    iteration: Count
    """The iteration that made it; 0 for a variant that was given."""
    changed: tuple[str, ...] = ()
    """Components whose text differs from the first parent's."""
    gain: float | None = None
    """Margin by which the sum of its scores beat its parent's when it was let in."""
    examples: Count = 0
    """Number of examples in that sum."""
    score: Share | None = None
    """Mean score on the select half."""
    scored: Count = 0
    """Rows of select that it has a score for."""
    leads: bool = False
    """Whether it is the prompt of this result."""


class Result(Model):
    """The whole of result.json."""

    version: Literal[1] = 1
    run: str
    manifest_digest: str
    outcome: Outcome
    exit_code: int
    """0 Learned, 3 NothingBetter, 4 BudgetExhausted, 5 Failed, 6 Unsure, 130 Stopped."""
    reason: str
    """The reason why the run ended, in one sentence."""
    setup: Setup = Setup()
    models: dict[Role, ModelInfo] = Field(default_factory=dict)
    data: DataInfo | None = None
    """The data; null when the run ended before its data was read."""
    held_out: HeldOut | None = None
    test: Paired | None = None
    """The test split, scored once at the very end; null when there is none or the run ended before it."""
    iterations: tuple[IterationRecord, ...] = ()
    usage: dict[Role, Usage] = Field(default_factory=dict)
    rollouts: Count = 0
    """Task-model calls of the whole run."""
    wall_seconds: Amount = 0.0
    faults: Faults = Faults()
    """Faults of the whole run, profile and evaluation included."""
    profile: StepRecord | None = None
    """The baseline evaluation before the first iteration."""
    diagnosis: DiagnosisRecord | None = None
    """Whether serial learning converges; null where the manifest has no serialBaseline."""
    evaluation: StepRecord | None = None
    """The one look at gate and test after the last iteration."""
    shape: ShapeRecord | None = None
    """The shape of parallelism that fits; null in results of older versions, and before data was counted."""
    task_tokens: TaskTokens | None = None
    """null where the task model was asked nothing, and in results of older versions."""
    durations: tuple[Durations, ...] = ()
    """How long calls and steps took, by kind of step; empty in results of older versions."""
    energy: EnergyUsed | None = None
    """null where no page of GPUs is named or could be read, and with ``setup.sharedEngines``."""
    budget: tuple[BudgetLine, ...] = ()
    cost_per_point: CostPerPoint | None = None
    """The cost of a point on the gate half; null when there is no gain to divide by."""
    accepted: tuple[AcceptedPrompt, ...] = ()
    """The prompts that took the lead on select, in order."""
    serial_baseline: SerialBaseline | None = None
    """The curve that the manifest states, filled from ``diagnosis`` for readers of earlier versions; null
    without one, and where it was measured."""
    playbook: PlaybookInfo | None = None
    entries: tuple[Entry, ...] = ()
    variants: tuple[VariantRecord, ...] = ()
    """With GEPA, TextGrad and MIPRO the variants that got into the pool, best first; empty with ACE."""
    refusals: tuple[RefusalRecord, ...] = ()

    @model_validator(mode="after")
    def _exit_code_says_the_outcome(self) -> Self:
        if self.exit_code != EXIT_CODES[self.outcome]:
            raise ValueError(
                f"exitCode of {self.outcome} is {EXIT_CODES[self.outcome]}, not {self.exit_code}"
            )
        return self

    @property
    def gate(self) -> Paired | None:
        """The scores before and after on the gate half, if it was looked at."""
        return self.held_out.gate if self.held_out else None

    @property
    def smallest_detectable_gain(self) -> float | None:
        """The smallest gain that the gate half can show, if it is known."""
        return self.held_out.smallest_detectable_gain if self.held_out else None

    @property
    def simulated(self) -> bool:
        """Whether any role was answered by a simulated model."""
        return any(model.simulated for model in self.models.values())

    @property
    def tokens(self) -> int:
        """Tokens of all roles, those of lost requests included."""
        return sum(u.prompt_tokens + u.completion_tokens + u.lost_tokens for u in self.usage.values())


def to_bytes(result: Result) -> bytes:
    """Return the file's bytes: UTF-8 JSON, two-space indent, keys in the models' order, a final newline."""
    return (result.model_dump_json(indent=2) + "\n").encode()


def read_result(data: bytes, *, where: str = "result.json") -> Result:
    """Parse the bytes of a result.json; a `DataError` names the first wrong field."""
    try:
        return Result.model_validate_json(data, strict=True)
    except ValidationError as error:
        fix = (
            "result.json is written by `combee run` (version 1); run the same command again to write it anew"
        )
        raise DataError(first_wrong(error), where=where, fix=fix) from None
