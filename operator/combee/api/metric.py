"""How answers are scored where a task's own way is not wanted: the metrics, and what some of them need."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from combee.api.common import Float, Int, Model, Words

Metric = Literal["accuracy", "exact", "numeric", "tokenF1", "setF1", "rubric"]
OWN: Metric = "accuracy"
"""The task's own score."""
RUBRIC: Metric = "rubric"
"""The evaluator's score, by the manifest's criteria."""
FRACTIONS: tuple[Metric, ...] = ("tokenF1", "setF1", RUBRIC)
"""Metrics whose scores lie anywhere in [0, 1], so that it must be said which are right."""
RIGHT_FROM = 0.75
"""The score from which an answer counts as right, where a manifest says nothing."""


class Tolerance(Model):
    """How far a number may be from its target: the larger of the two, inclusive."""

    absolute: Float = Field(
        default=0.005, ge=0, le=1e12, description="In the target's unit; 0.005 is two decimals."
    )
    relative: Float = Field(default=0.0001, ge=0, le=1, description="As a share of the target.")


class Ceiling(Model):
    """What a verdict of the evaluator may take on average, as profile measures it."""

    exactly_one = ("tokens", "money")
    tokens: Int | None = Field(
        default=None, ge=1, le=1_000_000, description="In tokens of its prompt and its reply."
    )
    money: Float | None = Field(
        default=None, gt=0, le=1e9, description="In money, at the price of the evaluator's tokens."
    )

    @property
    def most(self) -> float:
        """The figure that is given."""
        return float(self.tokens or 0) if self.money is None else self.money


class Rubric(Model):
    """What the evaluator judges an answer by."""

    criteria: tuple[Annotated[Words, Field(max_length=500)], ...] = Field(
        min_length=1,
        max_length=12,
        description="What a good answer does, each in a sentence that is true of an answer or not.",
    )
