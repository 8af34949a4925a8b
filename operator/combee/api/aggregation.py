"""The part of a run's spec that says how reflections become entries."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from combee.api.common import Int, Model

Strategy = Literal["ParallelScan", "Naive", "Sequential", "TopK", "Summarize"]


class Redundancy(Model):
    """How a reflection survives an aggregator that drops it."""

    mode: Literal["Auto", "Duplicate", "Retransmit"] = Field(
        default="Auto",
        description="Duplicate sends every reflection to several leaves; Retransmit sends again what was not carried; "
        "Auto: Duplicate below 64 reflections and with GEPA, else Retransmit.",
    )
    copies: Int = Field(
        default=2, ge=1, le=16, description="Different leaves each reflection goes to (Duplicate)."
    )
    max_rounds: Int = Field(default=4, ge=1, le=16, description="Most rounds of sending (Retransmit).")


class Aggregation(Model):
    """How reflections become entries of the artifact."""

    strategy: Strategy = Field(
        default="ParallelScan", description="ParallelScan is Combee's; the others are there to compare with."
    )
    redundancy: Redundancy = Field(
        default_factory=Redundancy, description="Protection against dropped reflections."
    )
    leaf_size: Int = Field(
        default=8, ge=1, le=1000, description="Reflections of a leaf call; maxFanIn holds too."
    )
    max_fan_in: Int = Field(default=32, ge=2, le=1000, description="Most inputs of any aggregator call.")
    max_input_tokens: Int = Field(
        default=24_000, ge=1000, le=2_000_000, description="Most tokens of inputs of any aggregator call."
    )
    subgroups: Literal["Sqrt"] | None = Field(
        default=None, description="Sqrt: floor(sqrt(n)) leaves, the paper's rule; absent: by leafSize."
    )
    merge: Literal["Structured", "Model"] = Field(
        default="Structured",
        description="Structured: one group-by, a call for each real cluster; Model: a call at every node.",
    )
    verify: Literal["Replay", "Support", "Off"] = Field(
        default="Replay",
        description="What an entry of one source needs before it is rendered: Replay, that it fixes its own example "
        'and harms no control; Support, a second source; "Off" (quoted: kubectl reads a bare Off as false), nothing.',
    )
