"""How large the next batch is, and why, in words.

``Sequential`` is b = 1 in the data's order. ``Fixed`` obeys the manifest. ``Dynamic`` is the controller:

1. A *trial* while a size of ``batching.sizes`` is unmeasured and trials are within a fifth of the epoch.
2. The rule (algo.batch) on the delay law that wins (algo.laws) on what was measured since the workload
   last changed (algo.drift) on this engine (plan.engine); on profile's waves while no two sizes were
   measured; the stated fallback without any.
3. Just after a change another size than the last is taken, half or twice it, since two sizes tell the new law.
4. Caps: bounds, budget, hardware, verified retention, reward variance.

What is left of an epoch is dealt out evenly, so that no last batch is a stub.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.batch import Cap, choose_batch, rule_size, tightest
from combee.algo.delay import Observation, usable
from combee.algo.drift import Today, spread, today
from combee.algo.laws import Law, fit_laws
from combee.api.run import Batching, RunSpec
from combee.errors import BugError
from combee.plan.engine import engine_digest, hardware_slots
from combee.plan.observed import Observed, of_engine, retention_cap, variance_cap
from combee.plan.state import RunState
from combee.plan.trials import allowance, next_trial

PROBE = 2
"""After a change the next size differs from the last by this factor."""
YOUNG = 5
"""A law that rests on fewer observations since a change moves the size by at most PROBE at once."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """``size`` examples and a sentence on why; ``trial``: the size was chosen to be measured."""

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
        """The law that the rule plans with."""
        return self.today.planned(lambda law: rule_size(law, batching.rule, batching.share, batching.sizes))


def measured(spec: RunSpec, state: RunState) -> tuple[Observed, ...]:
    """The run's observations on the engine it has now."""
    return of_engine(state.observations, engine_digest(spec))


def delay_of(spec: RunSpec, state: RunState) -> Delay:
    """Whole iterations where they tell a law, else the waves of profile's baseline evaluation.

    ``b_half = c0 / c1`` is a ratio, so waves of rollouts alone can stand in for whole iterations:
    both grow with the same slope per example relative to their floor, as far as is known then.
    """
    whole = tuple(one.timing for one in measured(spec, state))
    now = today(whole)
    if now.law is not None:
        return Delay(now, whole[now.start :], "iterations")
    waves = tuple(Observation(size, seconds) for size, seconds in state.waves)
    if state.wave_engine in ("", engine_digest(spec)) and spread(
        [one.batch_size for one in waves if usable([one])]
    ):
        laws = fit_laws(waves)
        if laws is not None:
            return Delay(Today(laws, laws.chosen, 0), waves, "profiling waves")
    return Delay(now, (), "")


def next_batch(spec: RunSpec, state: RunState, *, affordable: int | None) -> NextBatch:
    """The size of the next batch within what is left of the epoch and of the budget.

    ``affordable`` is the largest batch that the budget still pays for; None: no limit.
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
    """Every cap that knows a value now; the bounds are ``choose_batch``'s own."""
    seen = measured(spec, state)
    slots, said = hardware_slots(spec)
    caps = [Cap("hardware", slots, f"{slots} calls can be in flight at once, {said}")]
    if affordable is not None:
        caps.insert(0, Cap("budget", affordable))
    rewards = variance_cap(seen) if spec.rolls_out else None  # recorded ones say nothing of what is learned
    caps += [cap for cap in (retention_cap(seen), rewards) if cap is not None]
    return caps


def _trial(spec: RunSpec, state: RunState, left: int, caps: Sequence[Cap]) -> NextBatch | None:
    """The next trial iteration, if there is one to do."""
    rows = state.facts.train_rows if state.facts else 0
    cap = tightest(caps)
    size = next_trial(
        spec.batching.sizes,
        seen=[one.batch_size for one in measured(spec, state)],
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
    """The rule's size; just after a change one that tells the new law."""
    batching, delay = spec.batching, delay_of(spec, state)
    choice = choose_batch(
        fit=delay.law(batching),
        rule=batching.rule,
        share=batching.share,
        sizes=batching.sizes,
        fallback=_fallback(batching.sizes),
        lower=1,
        upper_caps=caps,
    )
    reason = f"{choice.reason} (fit on {delay.source})" if choice.fit is not None else choice.reason
    size, reason = _after_a_change(delay, choice.size, reason, batching.sizes)
    cap = tightest(caps)
    return _evened(max(1, math.floor(min(size, cap.value if cap else math.inf))), left, reason)


def _after_a_change(delay: Delay, size: int, reason: str, sizes: Sequence[int]) -> tuple[int, str]:
    """While the new law rests on one size: half the last size, or twice it where half is below the
    bounds. While it rests on few observations: at most twofold beyond what they were made at."""
    factor, known = delay.today.factor, [int(one.batch_size) for one in delay.observations]
    if factor is None or not known or len(known) >= YOUNG:
        return size, reason
    changed = f"iterations take {factor:.2g} times what was expected, so earlier ones count no more"
    if delay.today.borrowed:
        half = known[-1] // PROBE
        probe = half if half >= min(sizes) else min(known[-1] * PROBE, max(sizes))
        return probe, f"{changed}: {probe} examples, since another size than {known[-1]} tells the new law"
    low, high = math.ceil(min(known) / PROBE), max(known) * PROBE
    near = min(max(size, low), high)
    if near != size:
        reason = f"{reason}; {near} for now, at most twofold from what was measured since"
    return near, f"{changed}. {reason}"


def _fallback(sizes: Sequence[int]) -> int:
    """The middle candidate: neither the slowest nor the one that trusts an unknown server most."""
    return sorted(sizes)[len(sizes) // 2]


def _evened(size: int, left: int, reason: str) -> NextBatch:
    """``left`` examples in ceil(left / size) batches of nearly equal size."""
    batches = math.ceil(left / max(1, size))
    even = math.ceil(left / batches)
    if even == size:
        return NextBatch(size, reason)
    return NextBatch(
        even,
        f"{reason}; {left} examples left are dealt out as {batches} batch{'es' if batches > 1 else ''} of about {even}",
    )
