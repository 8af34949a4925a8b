"""A plan of one iteration, for tests that need one and do not care what it says."""

from __future__ import annotations

from combee.plan.types import IterationPlan

PLAN = IterationPlan(
    iteration=1,
    epoch=0,
    offset=0,
    batch_size=84,
    batch_reason="further growth saves little",
    seed=7,
    in_order=False,
    shards=1,
    strategy="ParallelScan",
    merge="Structured",
    verify="Replay",
    redundancy="Duplicate",
    copies=2,
    max_rounds=4,
    leaf_size=8,
    max_fan_in=32,
    max_input_tokens=24_000,
    subgroups="",
    render_token_budget=8000,
    reflection_rounds=1,
    evaluate=True,
    token_factor=1.0,
)
