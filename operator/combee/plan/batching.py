"""How large the next batch is, and why, in words.

``Sequential`` is b = 1 in the data's order. ``Fixed`` obeys the manifest. ``Dynamic`` is the controller:

1. A *trial* while a size of ``batching.sizes`` is unmeasured and trials are within a fifth of the epoch.
2. The rule (algo.batch) on the delay law that wins (algo.laws) on what was measured since the workload
   last changed (algo.drift) on this engine (plan.engine); on profile's waves while no two sizes were
   measured; the stated fallback without any.
3. Just after a change, half or twice the last size is taken, since two sizes tell the new law.
4. Caps: bounds, budget, hardware, verified retention, reward variance.

What is left of an epoch is dealt out evenly, so that no last batch is a stub.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.batch import Cap, choose_batch, rule_size, tightest
from combee.algo.delay import Observation, usable
from combee.algo.drift import SPREAD, Today, spread, today
from combee.algo.laws import Law, fit_laws
from combee.api.run import Batching, RunSpec
from combee.errors import BugError
from combee.plan.engine import engine_digest, hardware_slots
from combee.plan.observed import Observed, of_engine, retention_cap, variance_cap
from combee.plan.state import RunState

EPOCH_SHARE = 0.2
"""All trials of an epoch together take at most this share of its examples."""
PROBE = 2
"""After a change the next size differs from the last by this factor."""
YOUNG = 5
"""A law that rests on fewer observations since a change moves the size by at most PROBE at once."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """The size of a batch and a sentence on why. ``trial``: whether the size was chosen to be measured."""

    size: int
    reason: str
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """What the controller believes of iteration times: ``today`` on ``observations``, which are of
    ``source`` ("iterations", "profiling waves", or "" when there is nothing to believe)."""

    today: Today
    observations: tuple[Observation, ...]
    source: str

    def law(self, batching: Batching) -> Law | None:
        """Return the law that the rule plans with."""
        return self.today.planned(lambda law: rule_size(law, batching.rule, batching.share, batching.sizes))


def measured(spec: RunSpec, state: RunState) -> tuple[Observed, ...]:
    """Return the run's observations on the engine it has now."""
    return of_engine(state.observations, engine_digest(spec))


def delay_of(spec: RunSpec, state: RunState) -> Delay:
    """Return the delay by whole iterations where they tell a law, else by the waves of profile's baseline.

    ``b_half = c0 / c1`` is a ratio, so waves of rollouts alone can stand in for whole iterations:
    both grow with the same slope per example relative to their floor, as far as is known then.
    """
    whole = tuple(observation.timing for observation in measured(spec, state))
    now = today(whole)
    if now.law is not None:
        return Delay(now, whole[now.start :], "iterations")
    waves = tuple(Observation(size, seconds) for size, seconds in state.waves)
    sizes = [wave.batch_size for wave in waves if usable([wave])]
    if state.wave_engine in ("", engine_digest(spec)) and spread(sizes):
        laws = fit_laws(waves)
        if laws is not None:
            return Delay(Today(laws, laws.chosen, 0), waves, "profiling waves")
    return Delay(now, (), "")


def next_batch(spec: RunSpec, state: RunState, *, affordable: int | None) -> NextBatch:
    """Return the size of the next batch within what is left of the epoch and of the budget.

    ``affordable`` is the largest batch that the budget still pays for; None means no limit.
    """
    if state.facts is None:
        raise BugError("the batch size is chosen after profile")
    left = state.facts.train_rows - state.offset
    if spec.aggregation.traits.in_order:
        return NextBatch(1, f"{spec.aggregation.strategy} learns from one example at a time")
    if spec.batching.mode == "Fixed":
        size, reason = spec.batching.size or left, f"fixed at {spec.batching.size}: {spec.batching.reason}"
        if affordable is not None and affordable < size:
            size, reason = affordable, f"{reason}; cut to {affordable} by the budget"
        return NextBatch(max(1, min(size, left)), reason)
    caps = _caps(spec, state, affordable)
    return _trial(spec, state, left, caps) or _planned(spec, state, left, caps)


def _caps(spec: RunSpec, state: RunState, affordable: int | None) -> list[Cap]:
    """Return every cap that has a value now; ``choose_batch`` applies the bounds itself."""
    observations = measured(spec, state)
    slots, source = hardware_slots(spec)
    caps = [Cap("hardware", slots, f"{slots} calls can be in flight at once, {source}")]
    if affordable is not None:
        caps.insert(0, Cap("budget", affordable))
    # The rewards of recorded traces say nothing about what is learned.
    rewards = variance_cap(observations) if spec.rolls_out else None
    caps += [cap for cap in (retention_cap(observations), rewards) if cap is not None]
    return caps


def _trial(spec: RunSpec, state: RunState, left: int, caps: Sequence[Cap]) -> NextBatch | None:
    """Return the next trial iteration, or None when there is none to do."""
    rows = state.facts.train_rows if state.facts else 0
    cap = tightest(caps)
    size = next_trial(
        spec.batching.sizes,
        seen=[observation.batch_size for observation in measured(spec, state)],
        train_rows=rows,
        spent=state.trial_examples,
        at_most=min(left, cap.value if cap else math.inf),
    )
    if size is None:
        return None
    spent = state.trial_examples + size
    return NextBatch(
        size,
        f"trial: {size} examples, learned from like any others, to see how the time of an iteration grows; "
        f"trials take {spent} of at most {allowance(rows)} examples, a fifth of the epoch.",
        trial=True,
    )


def _planned(spec: RunSpec, state: RunState, left: int, caps: list[Cap]) -> NextBatch:
    """Return the rule's size, or, just after a change, a size that tells the new law."""
    batching, delay = spec.batching, delay_of(spec, state)
    sizes = batching.sizes
    choice = choose_batch(
        fit=delay.law(batching),
        rule=batching.rule,
        share=batching.share,
        sizes=sizes,
        # The middle candidate is neither the slowest nor the one that trusts an unknown server most.
        fallback=sorted(sizes)[len(sizes) // 2],
        lower=1,
        upper_caps=caps,
    )
    reason = f"{choice.reason} (fit on {delay.source})" if choice.fit is not None else choice.reason
    size, reason = _after_a_change(delay, choice.size, reason, sizes)
    cap = tightest(caps)
    return _evened(max(1, math.floor(min(size, cap.value if cap else math.inf))), left, reason)


def _after_a_change(delay: Delay, size: int, reason: str, sizes: Sequence[int]) -> tuple[int, str]:
    """Return the size and the reason after a change. While the new law rests on one size: half the last size,
    or twice it where half is below the bounds. With few observations: within a factor of two of theirs."""
    factor, measured_sizes = delay.today.factor, [int(seen.batch_size) for seen in delay.observations]
    if factor is None or not measured_sizes or len(measured_sizes) >= YOUNG:
        return size, reason
    changed = f"iterations take {factor:.2g} times what was expected, so earlier ones count no more"
    if delay.today.borrowed:
        half = measured_sizes[-1] // PROBE
        probe = half if half >= min(sizes) else min(measured_sizes[-1] * PROBE, max(sizes))
        return (
            probe,
            f"{changed}: {probe} examples, since another size than {measured_sizes[-1]} tells the new law",
        )
    low, high = math.ceil(min(measured_sizes) / PROBE), max(measured_sizes) * PROBE
    near = min(max(size, low), high)
    if near != size:
        reason = f"{reason}; {near} for now, at most twofold from what was measured since"
    return near, f"{changed}. {reason}"


def _evened(size: int, left: int, reason: str) -> NextBatch:
    """Return the first of ceil(left / size) batches of nearly equal size that hold ``left`` examples."""
    batches = math.ceil(left / max(1, size))
    even = math.ceil(left / batches)
    if even == size:
        return NextBatch(size, reason)
    dealt = f"{batches} batch{'es' if batches > 1 else ''} of about {even}"
    return NextBatch(even, f"{reason}; {left} examples left are dealt out as {dealt}")


def allowance(train_rows: int) -> int:
    """Return how many examples the trials of an epoch may take.

    >>> allowance(250)
    50
    """
    return int(EPOCH_SHARE * train_rows + 1e-9)


def trial_order(sizes: Sequence[int], examples: int) -> tuple[int, ...]:
    """Return the candidates to try with ``examples`` to spend: the largest that leaves room for the smallest,
    the smallest, the largest of the rest, and so on, so that size and time of day are not confounded.

    The result is empty where not even two fit: one size tells no slope.

    >>> trial_order((5, 10, 25, 50, 100), 200)
    (100, 5, 50, 10, 25)
    >>> trial_order((5, 10, 25, 50, 100), 50)
    (25, 5, 10)
    >>> trial_order((5, 10, 25), 14)
    ()
    """
    untried, order = sorted(set(sizes)), list[int]()
    while untried:
        smallest = untried[0]
        if len(order) % 2:
            pick = smallest
        else:
            room = examples - (smallest if not order else 0)
            pick = max((size for size in untried if size <= room and (order or size > smallest)), default=0)
        if not pick or pick > examples:
            break
        order.append(pick)
        untried.remove(pick)
        examples -= pick
    return tuple(order) if len(order) > 1 else ()


def next_trial(
    sizes: Sequence[int], *, seen: Sequence[int], train_rows: int, spent: int, at_most: float
) -> int | None:
    """Return the next size to try, or None when nothing is left to try or to spend.

    ``seen``: sizes observed (a candidate within a factor of 1.5 of one counts as observed); ``spent``:
    examples that trials took in this epoch; ``at_most``: the largest size that the caps and the epoch allow.

    >>> next_trial((5, 10, 25, 50), seen=[25], train_rows=250, spent=25, at_most=64)
    5
    """
    room = min(at_most, allowance(train_rows) - spent)
    for size in trial_order([size for size in sizes if size <= at_most], allowance(train_rows)):
        if size <= room and not any(max(size, other) < SPREAD * min(size, other) for other in seen):
            return size
    return None
