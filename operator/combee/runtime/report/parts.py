"""Words of ``result.json`` that other parts of it are made of: the base model, the kinds of numbers, and
what one iteration says of its reduce, its verification and its delay curve. See ``result``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Difference = Annotated[float, Field(ge=-1, le=1)]


class Model(BaseModel):
    """Frozen, strict about names, camelCase outside; no NaN and no infinity."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class RetentionLevel(Model):
    """One level of the reduce: what went in and what was still there after it."""

    level: str
    """Such as ``leaf round 1`` or ``group``, in the order of the reduce."""
    calls: Count
    """Aggregator calls."""
    inputs: Count
    """Inputs of these calls (copies counted)."""
    lessons: Count
    """Distinct lesson clusters that went in."""
    carried: Count
    """Distinct lesson clusters still there after the level."""


class RarityBand(Model):
    """Retention of the lessons that a certain number of trajectories brought."""

    copies: str
    """How many trajectories brought the lesson: ``1``, ``2-3``, ``4+``."""
    distinct: Count
    carried: Count


class Retention(Model):
    """Where lessons were lost in one iteration, in distinct lesson clusters."""

    levels: tuple[RetentionLevel, ...] = ()
    distinct: Count = 0
    """Distinct lesson clusters of the iteration's reflections."""
    carried: Count = 0
    """Of these, in the ledger with their anchors."""
    rendered: Count = 0
    """Of these, in the rendered playbook under its token budget."""
    by_rarity: tuple[RarityBand, ...] = ()


class Verification(Model):
    """What became of the iteration's new entries."""

    candidates: Count = 0
    """Entries with a single source."""
    replayed: Count = 0
    """Entries tried again on their own example and on controls."""
    verified: Count = 0
    refused: Count = 0
    """All refusals, for whatever reason."""
    leaks: Count = 0
    """Of the refusals: private or copied text."""
    injections: Count = 0
    """Of the refusals: text that gives orders to the model."""


class DelayFit(Model):
    """Fitted seconds of an iteration by batch size b: T(b) = c0 + c1 b."""

    c0: Amount
    """Seconds that every iteration costs."""
    c1: Amount
    """Seconds that each further example costs."""
    b_half: Amount | None = None
    """c0 / c1, the batch size at which half of the time is fixed cost; null when c1 is 0."""
    n: Count
    """Observations."""
    rmse: Amount | None = None
    """Root mean squared error, seconds."""
