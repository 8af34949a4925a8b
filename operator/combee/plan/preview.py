"""What a run would do and cost, before anything is spent. Pure arithmetic on the manifest.

Counts are exact where they follow from the manifest (rollouts of the map, leaves of a tree) and a
range where the models decide (rounds of retransmission, clusters to merge, replays).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from combee import strategies
from combee.algo.budget import Spend, fits
from combee.algo.calibration import sample_sizes
from combee.algo.gates import CONFIDENCE, POWER, examples_needed
from combee.algo.ranges import NONE, Range
from combee.algo.stats import detectable_gain, discordance_of, gate_power
from combee.api import evaluation
from combee.api.discipline import advice, hardware, refusal
from combee.api.run import RunSpec
from combee.api.status import Parallelism
from combee.methods.protocol import Cost, Iteration
from combee.methods.registry import method_of
from combee.plan.batching import next_batch
from combee.plan.decide import EVALUATIONS_PER_RUN
from combee.plan.diagnosis import NO_GO_SHARE, Shape, shape_of
from combee.plan.engine import hardware_slots
from combee.plan.expected import ANSWER_TOKENS
from combee.plan.lengths import (
    ALL,
    LITTLE,
    MUCH,
    USUAL,
    VERDICT_TOKENS,
    Counts,
    Writing,
    tokens,
    usage,
    verdict_prompt,
)
from combee.plan.money import money_of
from combee.plan.parallelism import parallelism_of
from combee.plan.spending import least_spend
from combee.plan.state import DataFacts, RunState, limits_of
from combee.plan.types import RoleUsage


@dataclass(frozen=True, slots=True)
class Batch:
    """One planned iteration. ``levels``: the calls of each level above the leaves (merge Model)."""

    iteration: int
    size: int
    leaves: int
    leaf_inputs: int
    levels: tuple[int, ...]
    rounds: Range
    aggregator_calls: Range
    replays: Range


@dataclass(frozen=True, slots=True)
class Outlook:
    """Which outcome a run may have whose true gain is ``target_gain``, stopping.targetGain."""

    gate_rows: int
    target_gain: float
    power: float
    """the probability that it ends as Learned; otherwise it ends as Unsure or NothingBetter."""
    detectable_gain: float | None
    """the smallest gain with which it does so with probability POWER; None where no gain has that."""
    rows_needed: int | None
    """the heldOut rows, half of them gate, that would do so for the target; None for a target of 0."""
    clustered: bool = False
    """whether rows stand for clusters of them."""

    @property
    def shown(self) -> bool:
        """Whether the rows are enough for the target; for a target of 0, whether they are for any gain."""
        return self.power >= POWER if self.target_gain else self.detectable_gain is not None

    def __str__(self) -> str:
        gain, least = f"{self.target_gain:g}", self.detectable_gain
        what = "clusters" if self.clustered else "rows"
        given = f"with {self.gate_rows} gate {what} a true gain of {gain} (stopping.targetGain)"
        ends = f"ends as Learned in {100 * self.power:.0f} % of runs, else as Unsure or NothingBetter"
        enough = "no gain" if least is None else f"one of {least:.3f}"
        rows = f"; about {self.rows_needed:,} heldOut {what} would do for {gain}" if self.rows_needed else ""
        return f"{given} {ends}; {enough} does in {100 * POWER:.0f} %{rows}"


@dataclass(frozen=True, slots=True)
class TokenCost:
    """What the tokens of a run cost, from models that write little to those that write much."""

    low: float
    high: float
    currency: str
    per_gpu_hour: float
    """what an hour of a GPU costs, which comes on top."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a run would do."""

    batches: tuple[Batch, ...]
    batch_reason: str
    rollouts: Range
    aggregator_calls: Range
    reflections: Range
    tokens: Range
    """from what models that write little take to what models that write much do."""
    likely_tokens: int
    most_tokens: int
    """with all that may be tried, and the playbook at its budget from the first call on."""
    token_limit: int | None
    """budget.tokens, which ends the run."""
    cost: TokenCost | None
    """None without prices."""
    outlook: Outlook | None
    """what gate can show; None where nothing is scored."""
    held_out: tuple[int, int]
    """the rows of select and of gate."""
    look_rollouts: int = 0
    """of the look at gate and test at the end; learning leaves what they take of each limit."""
    diagnosis: Shape | None = None
    """what the diagnosis of serial learning may take on top; None where it is not measured."""
    warnings: tuple[str, ...] = ()
    refused: str = ""
    """why the plan would be refused; empty when it would not."""
    unstated: tuple[str, ...] = ()
    """what discipline Strict would refuse, in sentences."""
    hardware: str = ""
    """what the task model and the proposer run on, and whether they share it."""
    shape: Parallelism | None = None
    """the shape that is expected to fit; None without rows to learn from."""

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """What can go wrong, and what was not stated."""
        return (*self.warnings, *self.unstated)


@dataclass(frozen=True, slots=True)
class DataShape:
    """What a preview knows of the data."""

    facts: DataFacts
    input_tokens: float
    """the mean tokens of a rollout's prompt, without an artifact."""
    warnings: tuple[str, ...] = field(default=())
    components: int = 1
    """the number of texts that a method reduces separately."""
    start_tokens: int = 0
    """the tokens of the artifact that the run starts from."""
    labelled: int = 0
    """the answers in train that people scored."""


def preview(spec: RunSpec, shape: DataShape) -> Preview:
    """Return the whole run at the sizes it would take if nothing were measured."""
    facts = shape.facts
    batches, reason = _batches(spec, shape)
    rollouts, reflections = _work(spec, shape, batches)
    counts = _counts(spec, shape, batches, rollouts, reflections)
    target = spec.stopping.target_gain
    outlook = outlook_of(facts.gate_units, target, bool(facts.gate_clusters)) if spec.rolls_out else None
    short = outlook is not None and not outlook.shown
    small = f"heldOut is small: {outlook}" if short else ""
    shortfall = _shortfall(spec, shape, batches[0].size) if spec.rolls_out and batches else ""
    refused = refusal(spec, "Advisory")
    measured = _diagnosis(spec, facts)
    return Preview(
        look_rollouts=facts.look_rollouts if spec.rolls_out else 0,
        diagnosis=measured,
        batches=tuple(batches),
        batch_reason=reason,
        rollouts=rollouts,
        aggregator_calls=counts.aggregator_calls,
        reflections=reflections,
        tokens=Range(tokens(counts, LITTLE), tokens(counts, MUCH)),
        likely_tokens=tokens(counts, USUAL),
        most_tokens=tokens(counts, ALL),
        token_limit=spec.budget.tokens,
        cost=_token_cost(spec, counts),
        outlook=outlook,
        held_out=(facts.select_rows, facts.gate_rows),
        warnings=(
            *shape.warnings,
            *evaluation.sentences(spec),
            *filter(None, (small, shortfall, _over(measured))),
        ),
        unstated=() if refused else advice(spec),
        refused=str(refused[1]) if refused is not None else facts.refusal if spec.rolls_out else "",
        hardware=hardware(spec),
        shape=parallelism_of(spec, RunState(phase="Learning", facts=facts)),
    )


def _diagnosis(spec: RunSpec, facts: DataFacts) -> Shape | None:
    baseline = spec.serial_baseline
    if baseline is None or not baseline.measure:
        return None
    return shape_of(spec, facts.train_rows, facts.select_rows, facts.gate_rows + facts.test_rows)


def _over(measured: Shape | None) -> str:
    """Return that a diagnosis takes more than its share of so small a run; empty where it does not."""
    if measured is None or not measured.over_share:
        return ""
    return (
        f"serialBaseline.measure takes up to {measured.no_go_rollouts:,} rollouts before it can say no, over "
        f"{100 * NO_GO_SHARE:.0f} % of this run's: state a curve, or leave it out of a run so small"
    )


def _work(spec: RunSpec, shape: DataShape, batches: Sequence[Batch]) -> tuple[Range, Range]:
    """Count rollouts and reflections; a recorded trajectory is reflected on once a part, at least once."""
    facts, rounds = shape.facts, spec.method.reflection_rounds
    learning = facts.train_rows * spec.method.epochs
    if not spec.rolls_out:
        return NONE, Range(learning, learning)
    every = spec.stopping.evaluate_every
    marks = math.ceil(learning / every) if every else EVALUATIONS_PER_RUN
    fixed = learning + facts.select_rows * (1 + min(len(batches), marks)) + facts.look_rollouts
    least = batches[: 1 if spec.stopping.target_score is not None else spec.stopping.patience]
    examples, cost = sum(batch.size for batch in least), _cost(spec, shape, 1, 1)
    scored = min(len(least), 1) if cost.knows_select else len(least)
    low = examples + facts.select_rows * (1 + scored)
    replays = sum((batch.replays for batch in batches), NONE)
    checks = spec.method.epochs * cost.dropping.high
    rollouts = Range(min(low, fixed), fixed + replays.high + checks + (rounds - 1) * learning)
    rollouts += _calibration(spec, shape).rollouts
    return rollouts, Range(examples, learning * rounds) if cost.reflects else NONE


@dataclass(frozen=True, slots=True)
class _Calibration:
    """What it takes to calibrate an evaluator, beside what a run does anyway."""

    rollouts: Range = NONE
    evaluations: Range = NONE
    referee_calls: Range = NONE


def _calibration(spec: RunSpec, shape: DataShape) -> _Calibration:
    facts = shape.facts
    rows = facts.train_rows + facts.select_rows
    sizes = sample_sizes(rows, shape.labelled or rows)
    if not spec.task.is_evaluated or not sizes:
        return _Calibration()
    compared = Range(sizes[0], sizes[-1])
    if shape.labelled:
        return _Calibration(evaluations=compared)
    made = Range(*(max(0, size - facts.select_rows) for size in (sizes[0], sizes[-1])))
    return _Calibration(rollouts=made, referee_calls=compared)


def _shortfall(spec: RunSpec, shape: DataShape, first: int) -> str:
    """Return which limit of the budget pays for no iteration, and what would do; empty where all of them do.
    It is decided as after profile, with calls as long as they are expected to be."""
    rows = shape.facts.select_rows
    used = {"task": RoleUsage(rows, 0, round(rows * shape.input_tokens), rows * ANSWER_TOKENS)}
    if spec.task.is_evaluated:
        read = round(rows * verdict_prompt(shape.input_tokens, ANSWER_TOKENS))
        used["evaluator"] = RoleUsage(rows, 0, read, rows * VERDICT_TOKENS)
    spent = Spend(rollouts=rows, tokens=sum(one.tokens for one in used.values()))
    state = RunState("Learning", shape.facts, spend=spent, usage=used)
    least, batch = (least_spend(spec, state, examples) for examples in (1, first))
    limits = limits_of(spec)
    exceeded = fits(Spend(), least, limits)
    if exceeded is None:
        return ""
    (place,) = (place for place, name, _ in limits.by_name if name == exceeded.name)
    ends = (
        "which pays for no iteration: the run would end as BudgetExhausted (exit code 4) with nothing learned"
    )
    one = f"One example takes about {_figure(least.amounts[place])}, with the scores on select and gate"
    useful = (
        f"the smallest useful value is about {_figure(batch.amounts[place])}, for a first batch of {first:,}"
    )
    return f"spec.budget.{exceeded.name} is {exceeded.limit:,.10g}, {ends}. {one}; {useful}"


def _figure(value: float) -> str:
    """Return a whole number, or three figures of a smaller amount of money."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def outlook_of(gate_rows: int, target_gain: float, clustered: bool = False) -> Outlook:
    """Return what ``gate_rows`` examples, or clusters of them, can show of a true gain of ``target_gain``, in
    [0, 1]."""
    discordance, least = discordance_of(target_gain), detectable_gain(gate_rows, power=POWER)
    needed = None
    if target_gain:
        needed = 2 * examples_needed(target_gain, discordance=discordance, confidence=CONFIDENCE)
    return Outlook(
        gate_rows=gate_rows,
        target_gain=target_gain,
        power=gate_power(gate_rows, target_gain, discordance=discordance),
        detectable_gain=least if math.isfinite(least) else None,
        rows_needed=needed,
        clustered=clustered,
    )


def _batches(spec: RunSpec, shape: DataShape) -> tuple[list[Batch], str]:
    facts = shape.facts
    state = RunState(phase="Learning", facts=facts)
    batches: list[Batch] = []
    reason = ""
    for epoch in range(spec.method.epochs):
        offset = 0
        while offset < facts.train_rows:
            state = replace(state, epoch=epoch, offset=offset)
            choice = next_batch(spec, state, affordable=None)
            reason = reason or choice.reason
            batches.append(_batch(spec, shape, len(batches), choice.size))
            offset += choice.size
    return batches, reason


def _cost(spec: RunSpec, shape: DataShape, size: int, texts: int) -> Cost:
    """Return what the base method asks for in an iteration."""
    rows, parts = shape.facts.select_rows, shape.components
    return method_of(spec).cost(Iteration(size, texts, parts, rows, spec.verify))


def _batch(spec: RunSpec, shape: DataShape, iteration: int, size: int) -> Batch:
    """Return a batch with the shape of a lone variant in flight, and calls for one to the most variants."""
    most = min(spec.method.variants_in_flight, size)
    cost = _cost(spec, shape, size, most)
    batch = _of_one_part(spec, iteration, size, cost)
    shares = [_of_one_part(spec, iteration, len(range(place, size, most)), cost) for place in range(most)]
    alone, dealt = batch.aggregator_calls, sum((share.aggregator_calls for share in shares), NONE)
    low, high = min(alone.low, dealt.low), max(alone.high, dealt.high)
    return replace(batch, aggregator_calls=Range(low * shape.components, high * shape.components))


def _of_one_part(spec: RunSpec, iteration: int, size: int, cost: Cost) -> Batch:
    aggregation = spec.method.stated.aggregation(spec.aggregation)
    overhead_tokens = spec.method.render_token_budget // 2
    batch = strategies.Batch(
        size=size,
        seed=spec.seed,
        iteration=iteration,
        overhead_tokens=overhead_tokens,
        slots=hardware_slots(spec)[0],
        clusters=cost.clusters,
    )
    calls = strategies.cost_of(aggregation)(aggregation, batch)
    return Batch(
        iteration, size, calls.leaves, calls.leaf_inputs, calls.levels, calls.rounds, calls.calls, cost.tried
    )


def _counts(
    spec: RunSpec, shape: DataShape, batches: Sequence[Batch], rollouts: Range, reflections: Range
) -> Counts:
    cost, calibration = _cost(spec, shape, 1, 1), _calibration(spec, shape)
    return Counts(
        rollouts=rollouts,
        reflections=reflections,
        aggregator_calls=sum((batch.aggregator_calls for batch in batches), NONE),
        examples=shape.facts.train_rows * spec.method.epochs,
        input_tokens=shape.input_tokens,
        start_tokens=shape.start_tokens,
        budget_tokens=spec.method.render_token_budget,
        shown_tokens=spec.method.shown_token_budget,
        leaf_inputs=max((batch.leaf_inputs for batch in batches), default=0),
        kept=cost.kept,
        reflects=cost.reflects,
        embeds=spec.aggregation.traits.embeds,
        evaluations=rollouts + calibration.evaluations if spec.task.is_evaluated else NONE,
        referee_calls=calibration.referee_calls,
        proxy_calls=Range(0, shape.facts.select_rows) if "proxy" in spec.roles_in_use() else NONE,
    )


def _token_cost(spec: RunSpec, counts: Counts) -> TokenCost | None:
    """Return what tokens cost: from little, with all prompts cached, to much, with none."""
    if spec.prices is None:
        return None

    def cost(writing: Writing, *, cached: bool) -> float:
        used = {
            role: RoleUsage(0, 0, round(read), round(written), round(read) if cached else 0)
            for role, (read, written) in usage(counts, writing).items()
        }
        return money_of(spec, used)

    low, high = cost(LITTLE, cached=True), cost(MUCH, cached=False)
    return TokenCost(low, high, spec.prices.currency, spec.prices.per_gpu_hour)
