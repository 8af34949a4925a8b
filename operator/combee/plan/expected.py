"""How long an iteration of b examples is expected to take, before any was measured. Pure.

The iteration's calls are counted as a preview counts them, each as many tokens long as such calls are, and
scheduled stage by stage on the run's slots. A token takes what it took in profile's waves, or what it took on
an H200 where there were none. The level may be wrong by a factor; what a plan needs is the shape, and that
comes from the slots and from how long the calls are in comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from combee import strategies
from combee.algo.delay import Observation, fit_iteration_time
from combee.algo.latency import H200
from combee.algo.laws import T_ITER, Law
from combee.algo.parallelism import Load
from combee.api.run import RunSpec
from combee.methods.protocol import Iteration
from combee.methods.registry import method_of
from combee.plan.engine import engine_digest, hardware_slots
from combee.plan.state import RunState
from combee.strategies import ENTRIES_PER_LEAF, ENTRY_TOKENS, REFLECTION_TOKENS

ANSWER_TOKENS = 150
"""an answer of an agent who writes its steps first."""

Stage = tuple[float, float]
"""(chains of calls that may run side by side, tokens that each of them writes, one call after the other)"""


@dataclass(frozen=True, slots=True)
class Pace:
    """A token takes ``alone + beside * n`` seconds where n calls are in flight; an agent's answer has
    ``answer_tokens``, those of its verdict included. ``measured``: whether profile's waves say so."""

    answer_tokens: float = ANSWER_TOKENS
    alone: float = H200.decode_seconds
    beside: float = H200.decode_per_concurrent
    measured: bool = False

    def seconds(self, stage: Stage, slots: int) -> float:
        """Return what a stage takes: whole waves of calls where there are more chains than slots.

        >>> Pace(alone=0.01, beside=0.001).seconds((20, 100), slots=10)
        4.0
        """
        chains, _ = stage
        return self.chain_seconds(stage, slots) * max(1.0, chains / slots)

    def chain_seconds(self, stage: Stage, slots: int) -> float:
        """Return what one chain of a stage takes beside the others.

        >>> Pace(alone=0.01, beside=0.001).chain_seconds((20, 100), slots=10)
        2.0
        """
        chains, tokens = stage
        return tokens * (self.alone + self.beside * min(chains, slots))


def expected_law(spec: RunSpec, state: RunState) -> tuple[Law, bool]:
    """Return the law of iterations as expected, and whether profile's calls were there to tell their pace."""
    pace, (slots, _) = pace_of(spec, state), hardware_slots(spec)
    sizes = {*spec.batching.sizes, 2 * max(spec.batching.sizes)}
    line = fit_iteration_time(
        Observation(size, sum(pace.seconds(stage, slots) for stage in stages(spec, size, pace)))
        for size in sorted(sizes)
    )
    # Two sizes or more, and each takes some time, so there is a line.
    assert line is not None
    return Law(T_ITER, line.c0, 1.0, line.c1, 0), pace.measured


def expected_load(spec: RunSpec, state: RunState, size: int) -> tuple[Load, bool]:
    """Return what the calls of an iteration of ``size`` examples are expected to take, the scoring of select
    among them, and whether profile's calls were there to tell their pace."""
    pace, (slots, _) = pace_of(spec, state), hardware_slots(spec)
    select = state.facts.select_rows if state.facts is not None else 0
    scored = [(float(select), pace.answer_tokens)] if select else []
    load = Load()
    for stage in (*stages(spec, size, pace), *scored):
        chain = pace.chain_seconds(stage, slots)
        load += Load(stage[0] * chain, chain, pace.seconds(stage, slots))
    return load, pace.measured


def pace_of(spec: RunSpec, state: RunState) -> Pace:
    """Return the pace of profile's waves on this engine, else that of an H200."""
    slots, _ = hardware_slots(spec)
    task = state.usage.get("task")
    if state.wave_engine not in ("", engine_digest(spec)) or task is None or not task.completion_tokens:
        return Pace()
    # A wave's chain is an answer and, where an evaluator scores, its verdict.
    written = {role: one.completion_tokens / max(one.calls, 1) for role, one in state.usage.items()}
    waved, tokens = (written["task"] + written.get(role, 0.0) for role in ("evaluator", state.scored_by))
    # A wave larger than the slots is several of them, one after the other.
    waves = [
        Observation(min(size, slots), seconds * min(1.0, slots / size))
        for size, seconds in state.waves
        if size > 0 and seconds > 0
    ]
    if not waves:
        return Pace(tokens)
    line = fit_iteration_time(waves)
    alone, beside = (line.c0, line.c1) if line else (waves[0].seconds, 0.0)
    return Pace(tokens, alone / waved, beside / waved, measured=True)


def stages(spec: RunSpec, size: int, pace: Pace) -> Iterator[Stage]:
    """Yield the stages of an iteration of ``size`` examples: map, leaves, what is above them, replays."""
    cost = method_of(spec).cost(Iteration(size, 1, 1, 0, spec.verify))
    how = spec.method.stated.aggregation(spec.aggregation)
    slots, _ = hardware_slots(spec)
    calls = strategies.cost_of(how)(how, strategies.Batch(size, spec.seed, 0, 0, slots, cost.clusters))
    leaf_tokens = ENTRY_TOKENS * min(ENTRIES_PER_LEAF, calls.leaf_inputs)
    reflected = spec.method.reflection_rounds * REFLECTION_TOKENS if cost.reflects else 0
    learned = (pace.answer_tokens if spec.rolls_out else 0) + reflected
    yield size, learned + (leaf_tokens if calls.in_map else 0)
    if not calls.in_map:
        yield calls.leaves, leaf_tokens
    # What was lost is sent again: a few calls, but each round takes the time of one.
    if calls.rounds.high > 1:
        yield 1, leaf_tokens * (calls.rounds.high - 1) / 2
    above = sum(calls.levels)
    for nodes in calls.levels:
        yield nodes, ENTRIES_PER_LEAF * ENTRY_TOKENS
    merged = (calls.calls.low + calls.calls.high) / 2 - calls.leaves - above
    if merged > 0:
        yield merged, ENTRY_TOKENS
    if cost.tried.high:
        yield (cost.tried.low + cost.tried.high) / 2, pace.answer_tokens
        yield 1, pace.answer_tokens * (cost.rounds - 1)
