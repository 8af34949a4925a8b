"""``serialBaseline``: what learning one example at a time achieves, measured, stated or waived."""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from pydantic import Field, field_validator, model_validator

from combee.api.common import LARGEST_INT, Bool, Float, Int, Model, Words, refuse
from combee.api.methods import MethodType
from combee.api.parts import Hardware


class CurvePoint(Model):
    """One point of a stated serial learning curve."""

    examples: Int = Field(ge=0, le=LARGEST_INT, description="Examples learned from so far.")
    seconds: Float = Field(ge=0, description="Seconds since the start.")
    score: Float = Field(ge=0, le=1, description="Held-out score there.")


class SerialBaseline(Model):
    """What learning one example at a time achieves: measured or stated."""

    method: MethodType = Field(description="The base method run serially.")
    measure: Bool = Field(
        default=False,
        description="Learn serially from a sample first: what does not converge is not learned in parallel.",
    )
    curve: tuple[CurvePoint, ...] = Field(default=(), max_length=1000, description="A curve known already.")
    source: Words | None = Field(
        default=None, max_length=500, description="Who measured the curve, on which rows, and when (curve)."
    )
    hardware: Hardware | None = Field(
        default=None, description="What the curve was measured on; one of other hardware compares nothing."
    )
    waived: Words | None = Field(
        default=None,
        max_length=500,
        description="Why there is none, so that no speed-up is claimed; shown in the run's condition.",
    )

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.measure and self.curve:
            raise refuse("measure and curve are both given", "Give exactly one of measure: true, curve.")
        return self

    @field_validator("curve")
    @classmethod
    def _forward(cls, value: tuple[CurvePoint, ...]) -> tuple[CurvePoint, ...]:
        if any(a.examples >= b.examples for a, b in pairwise(value)):
            raise refuse(
                "not ascending by examples", "Write the points in order, each number of examples once."
            )
        return value

    @model_validator(mode="after")
    def _waived_stands_alone(self) -> Self:
        if self.waived is not None and (self.measure or self.curve):
            raise refuse(
                "waived is given with measure or curve", "Remove waived, or what gives the baseline."
            )
        return self

    @model_validator(mode="after")
    def _origin_goes_with_curve(self) -> Self:
        named = next((name for name in ("source", "hardware") if getattr(self, name) is not None), None)
        if named is not None and not self.curve:
            raise refuse(f"{named} is given without curve", f"Remove {named}, or add the curve it is of.")
        return self
