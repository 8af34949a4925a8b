"""When a run stops learning before its epochs are over."""

from __future__ import annotations

from pydantic import Field

from combee.api.common import LARGEST_INT, Float, Int, Model


class Stopping(Model):
    """When learning is over before the epochs are."""

    patience: Int = Field(
        default=3, ge=1, le=1000, description="Evaluations without a better score before stopping."
    )
    evaluate_every: Int | None = Field(
        default=None,
        ge=1,
        le=LARGEST_INT,
        description="Examples between two scorings of heldOut's select half; absent: a twentieth of the run.",
    )
    target_gain: Float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Gain aimed for; combee preview warns of a heldOut too small to show it.",
    )
    target_score: Float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Score on select at which learning stops, a soft target: gate decides as always. Absent: "
        "a point above the serial plateau, if one was found (diagnosis.md), else none.",
    )
