"""How large the next batch is, and why, in words.

``Sequential`` is b = 1 in the data's order. ``Fixed`` obeys the manifest. ``Dynamic`` is the controller:

1. Where calls take no longer than this client needs to make them, times say nothing of the batch: the
   largest size is taken.
2. Else the rule (algo.batch) on the delay law that wins (algo.laws) on what was measured since the workload
   last changed (algo.drift) on this engine (plan.engine); while no two sizes were measured, on the law that
   is expected (plan.expected) of the slots and of profile's calls.
3. Just after a change, half or twice the last size is taken, since two sizes tell the new law.
4. A *trial* of another size where it pays on the rows that are left.
5. Caps: bounds, budget, verified retention, reward variance.

What is left of an epoch is dealt out evenly, so that no last batch is a stub.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from combee.algo.batch import Cap, choose_batch, rule_size, tightest
from combee.algo.delay import Observation
from combee.algo.drift import SPREAD, Today, today
from combee.algo.laws import Law, levelled
from combee.api.run import Batching, RunSpec
from combee.errors import BugError
from combee.plan.engine import engine_digest, hardware_slots
from combee.plan.expected import expected_law
from combee.plan.observed import Observed, of_engine, own_seconds, retention_cap, variance_cap
from combee.plan.state import RunState

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


ITERATIONS, EXPECTED, PUBLISHED = "iterations", "profile's calls", "calls of an H200"


@dataclass(frozen=True, slots=True)
class Delay:
    """What the controller believes of iteration times: ``today`` on ``observations``. ``source`` is what the
    law's shape rests on."""

    today: Today
    observations: tuple[Observation, ...]
    source: str

    def law(self, batching: Batching) -> Law:
        """Return the law that the rule plans with, at the level of what the iterations took."""
        law = self.today.planned(lambda law: rule_size(law, batching.rule, batching.share, batching.sizes))
        if law is None:
            raise BugError("a delay has a law, expected or measured", where="Delay.law")
        return levelled(law, self.observations)


def measured(spec: RunSpec, state: RunState) -> tuple[Observed, ...]:
    """Return the run's observations on the engine it has now."""
    return of_engine(state.observations, engine_digest(spec))


def delay_of(spec: RunSpec, state: RunState) -> Delay:
    """Return the delay by whole iterations where they tell a law, else as it is expected.

    A size counts where it was measured, so one size has no shape of its own and takes the expected one.
    """
    whole = tuple(observation.timing for observation in measured(spec, state))
    now = today(whole)
    if now.law is not None:
        return Delay(now, whole[now.start :], ITERATIONS)
    law, by_profile = expected_law(spec, state)
    return Delay(Today(None, law, now.start), whole, EXPECTED if by_profile else PUBLISHED)


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
    cap = tightest(_caps(spec, state, affordable))
    most = max(1, math.floor(min(left, max(spec.batching.sizes), cap.value if cap else math.inf)))
    waves = state.waves if state.wave_engine in ("", engine_digest(spec)) else ()
    own = own_seconds(waves, measured(spec, state))
    if own is not None:
        return _largest(most, left, cap, own)
    return _planned(spec, state, left, cap, most)


def _caps(spec: RunSpec, state: RunState, affordable: int | None) -> list[Cap]:
    """Return every cap that has a value now; ``choose_batch`` applies the bounds itself."""
    observations = measured(spec, state)
    # The rewards of recorded traces say nothing about what is learned.
    rewards = variance_cap(observations) if spec.rolls_out else None
    caps = (retention_cap(observations), rewards)
    budget = [] if affordable is None else [Cap("budget", affordable)]
    return [*budget, *(cap for cap in caps if cap is not None)]


def _largest(size: int, left: int, cap: Cap | None, own: float) -> NextBatch:
    """Return the largest size that carries lessons, since there is no time that a smaller one could win."""
    reason = (
        f"An answer came every {1000 * own:.2g} ms, as fast as this client makes and reads calls, so times "
        "say nothing of the batch"
    )
    by = "what is left of the epoch" if size == left else "the largest of batching.sizes"
    if cap is not None and size == max(1, math.floor(cap.value)):
        by = f"the most that {cap.name} allows" + (f" ({cap.why})" if cap.why else "")
    return _evened(size, left, f"{reason}: {size}, {by}")


def _planned(spec: RunSpec, state: RunState, left: int, cap: Cap | None, most: int) -> NextBatch:
    """Return the rule's size; just after a change, a size that tells the new law; or a trial that pays."""
    batching, delay = spec.batching, delay_of(spec, state)
    sizes, law = batching.sizes, delay.law(batching)
    choice = choose_batch(
        fit=law,
        rule=batching.rule,
        share=batching.share,
        sizes=sizes,
        # The middle candidate is neither the slowest nor the one that trusts an unknown server most.
        fallback=sorted(sizes)[len(sizes) // 2],
        upper_caps=() if cap is None else (cap,),
    )
    size, reason = _held_near(delay, choice.size, f"{choice.reason} ({_basis(spec, delay)})", sizes)
    planned = _evened(max(1, min(size, most)), left, reason)
    if delay.today.factor is not None:
        return planned
    seen = [int(observation.batch_size) for observation in delay.observations]
    candidates = [size for size in sizes if size <= most]
    trial = next_trial(
        law,
        candidates,
        seen=seen or [planned.size],
        planned=planned.size,
        left=left,
        share=batching.share,
    )
    if trial is None and delay.source != ITERATIONS:
        return replace(planned, reason=f"{planned.reason}; no trial would pay")
    if trial is None or not seen or not _near(planned.size, seen):
        return planned
    return trial


def _basis(spec: RunSpec, delay: Delay) -> str:
    """Return in words what the law rests on."""
    if delay.source == ITERATIONS:
        return f"fit on {ITERATIONS}"
    slots, why = hardware_slots(spec)
    return f"expected from {slots} slots, {why}, and {delay.source}"


def _held_near(delay: Delay, size: int, reason: str, sizes: Sequence[int]) -> tuple[int, str]:
    """Return the size and the reason while few iterations were measured. Just after a change the new law
    rests on one size: half the last size, or twice it where half is below the bounds. Else a size within a
    factor of two of those measured."""
    factor, measured_sizes = delay.today.factor, [int(seen.batch_size) for seen in delay.observations]
    if not measured_sizes or len(measured_sizes) >= YOUNG or delay.source != ITERATIONS:
        return size, reason
    changed = (
        factor and f"iterations take {factor:.2g} times what was expected, so earlier ones count no more"
    )
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
        reason = f"{reason}; {near} for now, at most twofold from what was measured"
    return near, f"{changed}. {reason}" if changed else reason


def _evened(size: int, left: int, reason: str) -> NextBatch:
    """Return the first of ceil(left / size) batches of nearly equal size that hold ``left`` examples."""
    batches = math.ceil(left / max(1, size))
    even = math.ceil(left / batches)
    if even == size:
        return NextBatch(size, reason)
    dealt = f"{batches} batch{'es' if batches > 1 else ''} of about {even}"
    return NextBatch(even, f"{reason}; {left} examples left are dealt out as {dealt}")


def _near(size: float, seen: Sequence[int]) -> bool:
    return any(max(size, other) < SPREAD * min(size, other) for other in seen)


def saving(share: float, seen: int) -> float:
    """Return the share of the seconds left that another trial can save after ``seen`` sizes were measured.

    Rule Saving minimises ln t(b) + share ln b, with t(b) the time of an example by T_iter. Off its size by a
    factor of exp(x) that is share (1 - share) x^2 / 2 more, to second order. So a size that is off by a
    factor of two loses share (1 - share) ln(2)^2 / 2, 6 % at share .45. Measuring another size is taken to
    halve that, and each further one to halve less.

    >>> round(saving(0.45, 1), 3), round(saving(0.1, 1), 3), round(saving(0.45, 3), 3)
    (0.03, 0.011, 0.01)
    """
    return share * (1 - share) * math.log(2) ** 2 / 4 / seen


def next_trial(
    law: Law, candidates: Sequence[int], *, seen: Sequence[int], planned: int, left: int, share: float
) -> NextBatch | None:
    """Return the trial that tells most for its price, or None where none pays.

    Its price is how far, in seconds, its examples are from what they would take at the planned size; it can
    save ``saving`` of the seconds of the rows left. It tells how much of an iteration is fixed: by the square
    of the difference of that share between the two sizes. A candidate within a factor of 1.5 of a size seen
    counts as seen. Source: docs/method.md ("Trials"). Cost: O(candidates).

    >>> law = Law("T_iter", a=48.0, alpha=1.0, f=1.0, n=0)
    >>> trials = [next_trial(law, (5, 25), seen=[60], planned=60, left=n, share=0.45) for n in (250, 4000)]
    >>> [trial and trial.size for trial in trials]
    [None, 5]
    """
    an_example = law.predict(planned) / planned
    affordable = saving(share, len(set(seen))) * left * an_example
    best: tuple[float, int, float] | None = None
    for size in candidates:
        price = abs(law.predict(size) - size * an_example)
        if size > left or _near(size, (*seen, planned)) or not 0 < price <= affordable < math.inf:
            continue
        tells = (law.growing_share(size) - law.growing_share(planned)) ** 2 / price
        if best is None or tells > best[0]:
            best = tells, size, price
    if best is None:
        return None
    _, size, price = best
    reason = (
        f"trial: {size} examples instead of {planned}, to see how the time of an iteration grows: "
        f"{_seconds(price)} s off the plan, and it can save {_seconds(affordable)} s on the {left} left"
    )
    return NextBatch(size, reason, trial=True)


def _seconds(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"
