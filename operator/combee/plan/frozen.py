"""What of an iteration's plan follows from the spec and from how reflections are aggregated. Pure."""

from __future__ import annotations

from typing import Any

from combee.algo.retransmit import Redundancy
from combee.api.aggregation import Aggregation
from combee.api.run import RunSpec
from combee.plan.types import IterationPlan


def frozen(spec: RunSpec, aggregation: Aggregation, redundancy: Redundancy, **decided: Any) -> IterationPlan:
    """Return the plan of an iteration. ``decided``: its other fields, which were chosen for it alone."""
    return IterationPlan(
        seed=spec.seed,
        strategy=aggregation.strategy,
        merge=aggregation.merge,
        verify=spec.verify,
        redundancy=redundancy.mode,
        copies=redundancy.copies,
        max_rounds=redundancy.rounds,
        leaf_size=redundancy.leaf_size,
        max_fan_in=aggregation.max_fan_in,
        max_input_tokens=aggregation.max_input_tokens,
        subgroups=aggregation.subgroups or "",
        render_token_budget=spec.method.render_token_budget,
        reflection_rounds=spec.method.reflection_rounds,
        **decided,
    )
