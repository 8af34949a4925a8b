"""The part of a run's spec that says how reflections become entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, Strict

from combee import extensions
from combee.api.common import Int, Model
from combee.api.extension import Names


@dataclass(frozen=True, slots=True)
class Traits:
    """What a strategy is like, as far as a manifest, a plan or a base method must know before it runs."""

    embeds: bool = False
    """it asks ``models.embedder``, and a run without one is refused."""
    one_call: bool = False
    """no call follows the one that is given reflections: there a method writes the text of its last call."""
    subgroups: bool = False
    """it deals reflections out to leaves, as ``aggregation.subgroups`` may say."""
    in_order: bool = False
    """it learns from one example at a time, in the data's order."""


STRATEGIES: Mapping[str, Traits] = {
    "ParallelScan": Traits(subgroups=True),
    "Naive": Traits(one_call=True),
    "Sequential": Traits(in_order=True),
    "TopK": Traits(embeds=True, one_call=True),
    "Summarize": Traits(one_call=True),
}
"""The product's own; ``combee.strategies`` has what each costs, ``work/aggregation/`` what each does."""
Merge = Literal["Structured", "Model"]
"""How what the leaves gave is brought together; ``combee.strategies.MERGES`` has what each costs."""
STRATEGY_NAMES = Names(extensions.STRATEGIES, tuple(STRATEGIES))
Strategy = Annotated[str, Strict(), Field(max_length=63), STRATEGY_NAMES]


def traits_of(strategy: str) -> Traits:
    """Return the traits of a strategy; a package's own strategy has them as ``traits``."""
    if strategy in STRATEGIES:
        return STRATEGIES[strategy]
    traits: Traits = extensions.load(extensions.STRATEGIES, strategy).traits
    return traits


class Redundancy(Model):
    """How a reflection survives an aggregator that drops it."""

    mode: Literal["Auto", "Duplicate", "Retransmit"] = Field(
        default="Auto",
        description="Duplicate sends every reflection to several leaves; Retransmit sends again those whose "
        "lesson was lost, until 95 % of the distinct lessons are kept; Auto: Retransmit, unless the method "
        "asks for Duplicate.",
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
        default=8,
        ge=1,
        le=1000,
        description="Most reflections of a leaf call; maxFanIn holds too. With Retransmit a leaf takes as "
        "few, down to one, as let the slots make all leaves in four turns.",
    )
    max_fan_in: Int = Field(default=32, ge=2, le=1000, description="Most inputs of any aggregator call.")
    max_input_tokens: Int = Field(
        default=24_000, ge=1000, le=2_000_000, description="Most tokens of inputs of any aggregator call."
    )
    subgroups: Literal["Sqrt"] | None = Field(
        default=None, description="Sqrt: floor(sqrt(n)) leaves, the paper's rule; absent: by leafSize."
    )
    merge: Merge = Field(
        default="Structured",
        description="Structured: one group-by, a call for each real cluster; Model: a call at every node.",
    )
    verify: Literal["Replay", "Support", "Off"] = Field(
        default="Replay",
        description="What an entry needs to be rendered: Replay, that it fixes its own example and harms no "
        "control, or two sources where nothing is to be fixed, and that it spoils no row of select; Support, "
        'two sources; "Off" (quoted: kubectl reads a bare Off as false), nothing.',
    )

    @property
    def traits(self) -> Traits:
        """The traits of its strategy."""
        return traits_of(self.strategy)
