"""How large the next batch is, and why, in words.

``Sequential`` is b = 1 in the data's order. ``Fixed`` obeys the manifest. ``Dynamic`` asks the
``Saving`` rule (algo.batch) of a T_iter fit; before enough is known it takes a stated fallback.
What is left of an epoch is dealt out evenly, so that no last batch is a stub.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.batch import Cap, choose_batch
from combee.algo.delay import Fit, Observation, fit_iteration_time
from combee.api.run import RunSpec
from combee.errors import BugError
from combee.plan.state import RunState

SPREAD = 1.5
"""Sizes closer than this ratio say nothing of a slope."""


@dataclass(frozen=True, slots=True)
class NextBatch:
    """``size`` examples and a sentence on why."""

    size: int
    reason: str


def delay_fit(state: RunState) -> tuple[Fit | None, str]:
    """The T_iter fit on whole iterations if their sizes differ enough, else on profile's waves.

    ``b_half = c0 / c1`` is a ratio, so waves of rollouts alone can stand in for whole iterations:
    both grow with the same slope per example relative to their floor, as far as is known then.
    """
    for pairs, name in ((state.observations, "iterations"), (state.waves, "profiling waves")):
        sizes = [size for size, _ in pairs]
        if len(sizes) > 1 and max(sizes) >= SPREAD * min(sizes):
            fit = fit_iteration_time([Observation(size, seconds) for size, seconds in pairs])
            if fit is not None:
                return fit, name
    return None, ""


def next_batch(spec: RunSpec, state: RunState, *, affordable: int | None) -> NextBatch:
    """The size of the next batch within what is left of the epoch and of the budget.

    ``affordable`` is the largest batch that the budget still pays for; None: no limit.
    """
    if state.facts is None:
        raise BugError("the batch size is chosen after profile")
    left = state.facts.train_rows - state.offset
    if spec.aggregation.strategy == "Sequential":
        return NextBatch(1, "Sequential learns from one example at a time")
    caps = [] if affordable is None else [Cap("budget", affordable)]
    if spec.batching.mode == "Fixed":
        size, reason = spec.batching.size or left, f"fixed at {spec.batching.size}: {spec.batching.reason}"
        if affordable is not None and affordable < size:
            size, reason = affordable, f"{reason}; cut to {affordable} by the budget"
        return NextBatch(max(1, min(size, left)), reason)
    fit, source = delay_fit(state)
    choice = choose_batch(
        fit=fit,
        share=spec.batching.share,
        sizes=spec.batching.sizes,
        fallback=_fallback(spec.batching.sizes),
        lower=1,
        upper_caps=caps,
    )
    reason = f"{choice.reason} (fit on {source})" if fit is not None else choice.reason
    return _evened(choice.size, left, reason)


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
