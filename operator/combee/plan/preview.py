"""What a run would do and cost, before anything is spent. Pure arithmetic on the manifest.

Counts are exact where they follow from the manifest (rollouts of the map, leaves of a tree) and a
range where the models decide (rounds of retransmission, clusters to merge, replays).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from combee import strategies
from combee.algo.ranges import Range, total
from combee.algo.stats import detectable_gain
from combee.api.run import RunSpec
from combee.methods.protocol import Cost, Iteration
from combee.methods.registry import method_of
from combee.plan.batching import next_batch
from combee.plan.decide import EVALUATIONS_PER_RUN
from combee.plan.observed import Observed
from combee.plan.state import DataFacts, RunState
from combee.strategies import ENTRIES_PER_LEAF, ENTRY_TOKENS, REFLECTION_TOKENS

ANSWER_TOKENS = 150


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
class Preview:
    """What a run would do."""

    batches: tuple[Batch, ...]
    batch_reason: str
    rollouts: Range
    aggregator_calls: Range
    reflections: Range
    tokens: Range
    detectable_gain: float | None
    """the smallest gain that gate can show; None where nothing is scored."""
    held_out: tuple[int, int]
    """the rows of select and of gate."""
    warnings: tuple[str, ...] = ()
    refused: str = ""
    """why the plan would be refused; empty when it would not."""


@dataclass(frozen=True, slots=True)
class DataShape:
    """What a preview knows of the data."""

    facts: DataFacts
    input_tokens: float
    """the mean tokens of a model input, instructions included."""
    warnings: tuple[str, ...] = field(default=())
    components: int = 1
    """the number of texts that a method reduces separately."""


def preview(spec: RunSpec, shape: DataShape) -> Preview:
    """Return the whole run at the sizes it would take if nothing were measured."""
    facts = shape.facts
    batches, reason = _batches(spec, shape)
    calls = total([batch.aggregator_calls for batch in batches])
    rollouts, reflections = _work(spec, shape, batches)
    gain = detectable_gain(facts.gate_rows) if facts.gate_rows else math.inf
    return Preview(
        batches=tuple(batches),
        batch_reason=reason,
        rollouts=rollouts,
        aggregator_calls=calls,
        reflections=reflections,
        tokens=_tokens(spec, shape, rollouts, reflections, calls),
        detectable_gain=gain if spec.rolls_out else None,
        held_out=(facts.select_rows, facts.gate_rows),
        warnings=(*shape.warnings, *(_warnings(spec, facts, gain) if spec.rolls_out else ())),
        refused=facts.refusal if spec.rolls_out else "",
    )


def _work(spec: RunSpec, shape: DataShape, batches: Sequence[Batch]) -> tuple[Range, Range]:
    """Count rollouts and reflections; a recorded trajectory is reflected on once a part, at least once."""
    facts, rounds = shape.facts, spec.method.reflection_rounds
    learning = facts.train_rows * spec.method.epochs
    if not spec.rolls_out:
        return Range(0, 0), Range(learning, learning)
    every = spec.stopping.evaluate_every
    marks = math.ceil(learning / every) if every else EVALUATIONS_PER_RUN
    closing = 2 * (facts.gate_rows + facts.test_rows)
    fixed = learning + facts.select_rows * (1 + min(len(batches), marks)) + closing
    least = batches[: spec.stopping.patience]
    examples, cost = sum(batch.size for batch in least), _cost(spec, shape, 1, 1)
    scored = min(len(least), 1) if cost.knows_select else len(least)
    low = examples + facts.select_rows * (1 + scored)
    replays = total([batch.replays for batch in batches])
    rollouts = Range(min(low, fixed), fixed + replays.high + (rounds - 1) * learning)
    return rollouts, Range(examples, learning * rounds) if cost.reflects else Range(0, 0)


def _warnings(spec: RunSpec, facts: DataFacts, gain: float) -> list[str]:
    target = spec.stopping.target_gain
    if gain <= target:
        return []
    needed = math.ceil(2 * facts.gate_rows * (gain / target) ** 2) if target else 0
    advice = f"; about {needed:,} heldOut rows would show it" if needed else ""
    least = f"the smallest gain that {facts.gate_rows} gate rows can show is {gain:.3f}"
    return [f"{least}, larger than stopping.targetGain {target}{advice}"]


def _batches(spec: RunSpec, shape: DataShape) -> tuple[list[Batch], str]:
    facts = shape.facts
    state = RunState(phase="Learning", facts=facts)
    batches: list[Batch] = []
    reason = ""
    for epoch in range(spec.method.epochs):
        offset = 0
        state = replace(state, trial_examples=0)
        while offset < facts.train_rows:
            state = replace(state, epoch=epoch, offset=offset)
            choice = next_batch(spec, state, affordable=None)
            reason = reason or choice.reason
            batches.append(_batch(spec, shape, len(batches), choice.size))
            offset += choice.size
            if choice.trial:
                observations = (*state.observations, Observed(choice.size, 0.0))
                spent = state.trial_examples + choice.size
                state = replace(state, trial_examples=spent, observations=observations)
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
    alone, dealt = batch.aggregator_calls, total([share.aggregator_calls for share in shares])
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
        clusters=cost.clusters,
    )
    calls = strategies.cost_of(aggregation)(aggregation, batch)
    return Batch(
        iteration, size, calls.leaves, calls.leaf_inputs, calls.levels, calls.rounds, calls.calls, cost.tried
    )


def _tokens(spec: RunSpec, shape: DataShape, rollouts: Range, reflections: Range, calls: Range) -> Range:
    playbook = spec.method.render_token_budget
    low = (
        rollouts.low * (shape.input_tokens + ANSWER_TOKENS)
        + reflections.low * (shape.input_tokens + REFLECTION_TOKENS)
        + calls.low * spec.aggregation.leaf_size * REFLECTION_TOKENS
    )
    full = shape.input_tokens + playbook
    high = (
        rollouts.high * (full + ANSWER_TOKENS)
        + reflections.high * (full + ANSWER_TOKENS + REFLECTION_TOKENS)
        + calls.high
        * (playbook + spec.aggregation.leaf_size * REFLECTION_TOKENS + ENTRIES_PER_LEAF * ENTRY_TOKENS)
    )
    if spec.aggregation.traits.embeds:  # every reflection is embedded
        low += reflections.low * REFLECTION_TOKENS
        high += reflections.high * REFLECTION_TOKENS
    return Range(round(low), round(high))
