"""How answers are scored where a task's own way is not wanted: the metrics, and what some of them need."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from combee.api.common import Float, Int, Model, Str, Words, refuse

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

    def __str__(self) -> str:
        return f"{self.absolute} or {self.relative} of the target"


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


class PassK(Model):
    """The share of rows that are right in all of ``k`` rollouts, estimated from more of each."""

    k: Int = Field(ge=1, le=32, description="So many rollouts of a row are all to be right.")
    rollouts: Int = Field(
        ge=2,
        le=32,
        description="Rollouts of each row of gate and test: k or more, of which the chance is told.",
    )

    @model_validator(mode="after")
    def _enough_rollouts(self) -> Self:
        if self.rollouts < self.k:
            raise refuse(f"rollouts {self.rollouts} is under k {self.k}", "Set rollouts to k or more.")
        return self

    def __str__(self) -> str:
        return f"pass^{self.k} of {self.rollouts} rollouts"


class Scored(Model):
    """How rollouts are scored, and what scores are put together how: the fields of a task that say it."""

    metric: Metric = Field(
        default=OWN,
        description="How answers are scored. accuracy: as the type does; rubric: by models.evaluator; the "
        "others compare an answer with its row's target.",
    )
    rubric: Rubric | None = Field(default=None, description="With metric rubric only.")
    tolerance: Tolerance | None = Field(default=None, description="With metric numeric only.")
    cluster_by: Str | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Field of the rows of heldOut and test that names the cluster each belongs to, such as "
        "customer: scores and intervals are then over clusters, each of which counts once.",
    )
    pass_k: PassK | None = Field(
        default=None,
        description="Roll each row of gate and test out several times, and score it by the chance that k of "
        "its rollouts are all right. Absent: once, by its score.",
    )
    right_from: Float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Score from which an answer counts as right, in reflections and replays; with a "
        "metric of fractions only. Absent: 0.75.",
    )

    @property
    def right_score(self) -> float:
        """The score from which an answer counts as right."""
        if self.metric in FRACTIONS:
            return RIGHT_FROM if self.right_from is None else self.right_from
        return 1.0

    @property
    def scored_by(self) -> str:
        """How answers are scored, and what scores are put together how, in words; what is as it is where a
        manifest says nothing is not said. The criteria of a rubric are a version's ``spec.origin.rubric``."""
        parts: list[str] = [self.metric]
        if self.tolerance not in (None, Tolerance()):
            parts[0] += f" within {self.tolerance}"
        if self.right_from not in (None, RIGHT_FROM):
            parts.append(f"right from {self.right_from}")
        parts += [str(self.pass_k)] if self.pass_k is not None else []
        parts += [f"clustered by {self.cluster_by}"] if self.cluster_by else []
        return ", ".join(parts)

    @property
    def repeats(self) -> int:
        """How often the closing look rolls a row out with each playbook."""
        return 1 if self.pass_k is None else self.pass_k.rollouts

    @property
    def is_evaluated(self) -> bool:
        """Whether the evaluator scores answers."""
        return self.metric == RUBRIC
