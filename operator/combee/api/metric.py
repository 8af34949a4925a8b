"""How answers are scored where a task's own way is not wanted: the metrics, and what some of them need."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from combee.api.common import Float, Model

Metric = Literal["accuracy", "exact", "numeric", "tokenF1", "setF1"]
OWN: Metric = "accuracy"
"""The task's own score."""
FRACTIONS: tuple[Metric, ...] = ("tokenF1", "setF1")
"""Metrics whose scores lie anywhere in [0, 1], so that it must be said which are right."""
RIGHT_FROM = 0.75
"""The score from which an answer counts as right, where a manifest says nothing."""


class Tolerance(Model):
    """How far a number may be from its target: the larger of the two, inclusive."""

    absolute: Float = Field(
        default=0.005, ge=0, le=1e12, description="In the target's unit; 0.005 is two decimals."
    )
    relative: Float = Field(default=0.0001, ge=0, le=1, description="As a share of the target.")
