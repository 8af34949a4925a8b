"""Everything that ``decide`` remembers of a run, as plain data derived from step summaries.

RunState is a fold over plans and summaries and nothing else, so a resumed run derives it again and
an operator keeps it in the object's status. It holds counts, scores and digests; never ids of
examples, prompts or texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

from combee.algo.budget import Limits, Spend
from combee.algo.calibration import PROXY, Calibration, read_figures
from combee.algo.parallelism import Load
from combee.algo.stats import can_ever_detect
from combee.api.run import RunSpec
from combee.errors import BugError
from combee.plan.diagnosis import Diagnosis
from combee.plan.observed import Observed, observed
from combee.plan.types import EDIT, IterationPlan, Outcome, Scorer, StepSummary, Usage, add_usage

MAX_OBSERVATIONS = 64
ENOUGH_EXAMPLES = 8
"""Examples without a new proposal from which the proposer is said to repeat itself."""
SPLITS = ("train", "heldOut", "test")
VERDICT_COST = "verdictCost"
"""The name in profile's scores of what a verdict took on average."""


@dataclass(frozen=True, slots=True)
class DataFacts:
    """What ``profile`` found and pinned."""

    train_rows: int
    """with the places of rows that are forgotten."""
    select_rows: int
    gate_rows: int
    test_rows: int
    digests: dict[str, str]
    """split -> content digest."""
    gate_clusters: int = 0
    """the clusters of gate's rows; 0 where each row stands for itself."""
    repeats: int = 1
    """how often the closing look rolls a row out with each playbook."""

    @property
    def held_out_rows(self) -> int:
        return self.select_rows + self.gate_rows

    @property
    def gate_units(self) -> int:
        """What gate's interval is over: clusters, where rows have them, else rows."""
        return self.gate_clusters or self.gate_rows

    @property
    def look_rollouts(self) -> int:
        """The rollouts of the closing look at gate and test: of the best artifact and of the start."""
        return 2 * self.repeats * (self.gate_rows + self.test_rows)

    @property
    def refusal(self) -> str:
        """Why heldOut cannot judge any gain, however large; empty when it can."""
        if can_ever_detect(self.gate_units, 0.05):
            return ""
        cause = "even if every one of them went from wrong to right, chance could not be ruled out at 5 %"
        what = "clusters" if self.gate_clusters else "rows"
        return f"heldOut has {self.gate_units} gate {what}: {cause}; give at least 12 heldOut {what}"


def limits_of(spec: RunSpec) -> Limits:
    """Return the manifest's budget; an absent figure is no limit."""
    stated = {limit.name: getattr(spec.budget, limit.name) for limit in fields(Limits)}
    return Limits(**stated | {"primary": spec.budget.first})


@dataclass(frozen=True, slots=True)
class Best:
    """The artifact that scored highest on select so far. Of those that scored the same it is the one with the
    fewest tokens, and of those the earliest; the start is kept until one scores higher."""

    artifact: str
    select: float
    iteration: int
    """-1 for the artifact that the run started from."""
    findings: str = ""
    """the digest of findings in its text that need the training rows to be made; empty without any."""
    tokens: int = 0
    """tokens of its text as rendered; 0 where they are not known."""

    def gives_way_to(self, other: Best) -> bool:
        """Return whether ``other``, a later one, is chosen in its place.

        >>> start, first = Best("a", 0.5, -1), Best("b", 0.6, 0, tokens=900)
        >>> start.gives_way_to(first), first.gives_way_to(Best("c", 0.6, 1, tokens=700))
        (True, True)
        >>> first.gives_way_to(Best("c", 0.6, 1, tokens=900)), start.gives_way_to(Best("c", 0.5, 1, tokens=9))
        (False, False)
        """
        shorter = self.iteration >= 0 and 0 < other.tokens < self.tokens
        return other.select > self.select or (other.select == self.select and shorter)


@dataclass(frozen=True, slots=True)
class RunState:
    """The position of a run. ``iteration`` is the next one to do."""

    phase: str = "Profiling"
    facts: DataFacts | None = None
    iteration: int = 0
    epoch: int = 0
    offset: int = 0
    examples_done: int = 0
    evaluated_at: int = 0
    """the number of examples done when heldOut was last evaluated."""
    artifact: str = ""
    baseline_select: float = 0.0
    last_select: float | None = None
    best: Best | None = None
    evaluations_since_best: int = 0
    spend: Spend = field(default_factory=Spend)
    usage: Usage = field(default_factory=dict)
    waves: tuple[tuple[int, float], ...] = ()
    """(rollouts in flight, modelled seconds) of profile's waves."""
    wave_engine: str = ""
    """the digest of the engine that the waves were measured on."""
    observations: tuple[Observed, ...] = ()
    """whole iterations as measured, the newest last."""
    per_example: Spend | None = None
    """what one example of the last iteration cost; None before the first."""
    profile_seconds: float = 0.0
    scored_seconds: float = 0.0
    """of profile's seconds those until select was scored."""
    iteration_seconds: float = 0.0
    """how long profile and the last iteration took; 0 where they are not done, or an earlier version did not
    say."""
    token_factor: float = 1.0
    load: Load = field(default_factory=Load)
    """what the calls of all iterations took that say so: an earlier version did not."""
    load_iterations: int = 0
    """how many these are."""
    repeating: int = 0
    """iterations in a row, up to the last one, in which nothing that was proposed was new."""
    repeating_examples: int = 0
    """the examples that these learned from."""
    edit_weights: tuple[tuple[str, float], ...] = ()
    """(kind of edit, how likely the next is of it), as the last iteration left them."""
    diagnosis: Diagnosis | None = None
    """whether serial learning converges; None where that was not asked, or not yet."""
    calibration: Calibration | None = None
    """what the evaluator's calibration found; None where no evaluator scores."""
    verdict_cost: float | None = None
    """what a verdict of the evaluator took on average, in the unit of its ceiling; None without one."""
    proxy: Calibration | None = None
    """what comparing the proxy with the evaluator found; None where no verdict took more than the ceiling."""
    stop: Outcome | None = None
    """why learning stopped; the gate is looked at afterwards."""
    outcome: Outcome | None = None

    @property
    def scored_by(self) -> Scorer:
        """Who scores map, replays and select by a rubric."""
        return scorer(self.proxy)

    @property
    def unasked(self) -> frozenset[str]:
        """The roles that no step to come asks, as profile found: a proxy that is not needed."""
        return frozenset() if self.facts is None or self.proxy is not None else frozenset({"proxy"})

    @property
    def scoring_seconds(self) -> float:
        """What scoring select took in profile; an earlier version says only how long profile took."""
        return self.scored_seconds or self.profile_seconds

    @property
    def look_seconds(self) -> float:
        """How long the closing look is expected to take, at the pace of profile's rollouts."""
        if self.facts is None or not self.facts.select_rows:
            return 0.0
        return self.scoring_seconds / self.facts.select_rows * self.facts.look_rollouts


def after_profile(state: RunState, summary: StepSummary) -> RunState:
    """Return the state once the data is pinned and the untouched artifact is scored on select."""
    counts = summary.counts
    facts = DataFacts(
        train_rows=counts["train"],
        select_rows=counts["select"],
        gate_rows=counts["gate"],
        test_rows=counts.get("test", 0),
        digests={split: summary.outputs[split] for split in SPLITS if split in summary.outputs},
        gate_clusters=counts.get("gateClusters", 0),
        repeats=counts.get("repeats", 1),
    )
    select = summary.scores["select"]
    return replace(
        charge(state, summary),
        phase="Learning",
        profile_seconds=spend_of(summary).wall_clock_seconds,
        scored_seconds=summary.seconds.get("scored", 0.0),
        facts=facts,
        artifact=summary.outputs["artifact"],
        baseline_select=select,
        last_select=select if facts.select_rows else None,
        best=Best(summary.outputs["artifact"], select, -1),
        waves=summary.observations,
        wave_engine=summary.outputs.get("engine", ""),
        token_factor=summary.scores.get("tokenFactor", 1.0),
        calibration=read_figures(summary.scores),
        verdict_cost=summary.scores.get(VERDICT_COST),
        proxy=read_figures(summary.scores, PROXY),
    )


def scorer(compared: Calibration | None) -> Scorer:
    """Return who scores map, replays and select. A proxy that was compared does: one that was shown to
    disagree ended the run."""
    return "evaluator" if compared is None else "proxy"


def after_iteration(state: RunState, plan: IterationPlan, summary: StepSummary) -> RunState:
    """Return the state once iteration ``plan.iteration`` is finished and rolled up."""
    if state.facts is None:
        raise BugError("an iteration cannot precede the profile")
    offset = plan.offset + plan.batch_size
    over = offset >= state.facts.train_rows
    done = state.examples_done + plan.batch_size
    rolled = charge(state, summary)
    used = rolled.spend - state.spend
    learning = max(used.rollouts - summary.counts.get("evaluated", 0), 1 if state.facts.select_rows else 0)
    per_example = Spend(
        rollouts=math.ceil(learning / plan.batch_size), tokens=math.ceil(used.tokens / plan.batch_size)
    )
    state = replace(
        rolled,
        iteration=plan.iteration + 1,
        epoch=plan.epoch + 1 if over else plan.epoch,
        offset=0 if over else offset,
        examples_done=done,
        artifact=summary.outputs["artifact"],
        observations=(*state.observations, *observed(summary))[-MAX_OBSERVATIONS:],
        per_example=per_example,
        iteration_seconds=used.wall_clock_seconds,
        token_factor=summary.scores.get("tokenFactor", state.token_factor),
    )
    if "busy" in summary.seconds:
        seconds = (summary.seconds[name] for name in ("busy", "path", "modelled"))
        state = replace(state, load=state.load + Load(*seconds), load_iterations=state.load_iterations + 1)
    if weights := edit_weights(summary):
        state = replace(state, edit_weights=weights)
    return _ranked(_repeated(state, plan, summary), plan, summary)


def edit_weights(summary: StepSummary) -> tuple[tuple[str, float], ...]:
    """Return the weights of edits that an iteration left, by kind in order; nothing where it left none."""
    named = summary.scores.items()
    return tuple(sorted((name.removeprefix(EDIT), value) for name, value in named if name.startswith(EDIT)))


def _repeated(state: RunState, plan: IterationPlan, summary: StepSummary) -> RunState:
    """Return the state with one iteration more, or none, in which nothing proposed was new. One in which
    nothing was proposed says nothing of that."""
    proposed, repeated = (summary.counts.get(name, 0) for name in ("proposed", "repeated"))
    if not proposed:
        return state
    if repeated < proposed:
        return replace(state, repeating=0, repeating_examples=0)
    examples = state.repeating_examples + plan.batch_size
    return replace(state, repeating=state.repeating + 1, repeating_examples=examples)


def repeats(state: RunState) -> str:
    """Return the sentence that says that the proposer repeats itself; empty while it does not, or while too
    few examples speak for it: two in a row may just teach what is known."""
    if state.repeating_examples < ENOUGH_EXAMPLES:
        return ""
    what = "iteration" if state.repeating == 1 else f"{state.repeating} iterations"
    return (
        f"the proposer repeats itself: in the last {what} with proposals ({state.repeating_examples:,} "
        "examples) each of them was known, or tried and refused"
    )


def _ranked(state: RunState, plan: IterationPlan, summary: StepSummary) -> RunState:
    """Return the state with the best artifact: the one that scored highest on select. An iteration without an
    evaluation changes nothing. Without heldOut the latest artifact is best once any of it is rendered."""
    findings = summary.outputs.get("findings", "")
    if state.facts is not None and not state.facts.select_rows and summary.counts.get("rendered", 0):
        return replace(state, best=Best(state.artifact, 0.0, plan.iteration, findings))
    if "select" not in summary.scores:
        return state
    select = summary.scores["select"]
    state = replace(state, last_select=select, evaluated_at=state.examples_done)
    latest = Best(state.artifact, select, plan.iteration, findings, summary.counts.get("playbookTokens", 0))
    if state.best is None or select > state.best.select:
        return replace(state, best=latest, evaluations_since_best=0)
    best = latest if state.best.gives_way_to(latest) else state.best
    return replace(state, best=best, evaluations_since_best=state.evaluations_since_best + 1)


def spend_of(summary: StepSummary) -> Spend:
    return Spend(
        rollouts=summary.counts.get("rollouts", 0),
        tokens=sum(usage.tokens for usage in summary.usage.values()),
        gpu_seconds=0.0,
        wall_clock_seconds=summary.seconds.get("wall", 0.0),
    )


def charge(state: RunState, summary: StepSummary) -> RunState:
    """Return ``state`` with what a step spent added."""
    return replace(state, spend=state.spend + spend_of(summary), usage=add_usage(state.usage, summary.usage))
