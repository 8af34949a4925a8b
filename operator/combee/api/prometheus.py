"""The Prometheus part of a canary: whom to ask, two queries, and what their numbers are measured in."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from combee.api.common import EndpointUrl, Float, Form, Int, Model, Scalar, SecretKeyRef, refuse

SIDE = Form(
    "Side",
    "[A-Za-z0-9]([-_.:A-Za-z0-9]{0,61}[A-Za-z0-9])?",
    "not a label's value",
    "Use 1 to 63 of letters, digits, '-', '_', '.' and ':'.",
)
PLACES = ("$(digest)", "$(version)", "$(side)")
"""what tells the two versions apart in a query: one of them must be in it."""
WINDOW = "$(window)"
"""in a query: the length of a window, such as 60s."""
LARGEST_SCORE = 1e12


def _query(value: str) -> str:
    if not any(place in value for place in PLACES):
        raise refuse(
            f"the query holds none of {', '.join(PLACES)}",
            'Select one version\'s answers, such as {version="$(version)"}: it is asked of both versions.',
        )
    return value


PromQL = Annotated[
    str, Strict(), Field(min_length=1, max_length=2000), AfterValidator(_query), Scalar("PromQL")
]
"""a query that is asked of both versions, with what tells them apart filled in."""
Side = Annotated[str, Strict(), Field(max_length=63), SIDE]


class ScoreQuery(Model):
    """How good a version's answers were in one window: one number."""

    query: PromQL = Field(
        description="An expression that gives one number for one version and one window. $(version): the "
        "first 12 digits of the version's digest; $(digest): all 64; $(side): its name in sides; $(window): "
        "a window's length, such as 60s."
    )
    unit: Literal["Ratio", "Percent", "Points"] = Field(
        description="Ratio: 0 to 1; Percent: 0 to 100; Points: lowest to highest."
    )
    lowest: Float | None = Field(
        default=None, ge=-LARGEST_SCORE, le=LARGEST_SCORE, description="Least number; with unit Points only."
    )
    highest: Float | None = Field(
        default=None,
        ge=-LARGEST_SCORE,
        le=LARGEST_SCORE,
        description="Greatest number; with unit Points only.",
    )
    better: Literal["Higher", "Lower"] = Field(
        default="Higher", description="Which numbers are good ones; Lower for a share of errors."
    )

    @model_validator(mode="after")
    def _points_have_ends(self) -> Self:
        given = [end for end in (self.lowest, self.highest) if end is not None]
        if self.unit != "Points":
            if given:
                raise refuse(
                    f"lowest or highest is given with unit {self.unit}", "Remove it, or set unit: Points."
                )
        elif len(given) != 2 or given[0] >= given[1]:
            raise refuse(
                "unit Points without lowest below highest", "Give both, such as lowest: 1, highest: 5."
            )
        return self


class LatencyQuery(Model):
    """How long a version's answers took in one window: one number."""

    query: PromQL = Field(description="As the score's query.")
    unit: Literal["Seconds", "Milliseconds"] = Field(description="What the number is measured in.")


class CostQuery(Model):
    """What a version's answers cost on average in one window: one number, in tokens or any other unit."""

    query: PromQL = Field(description="As the score's query; the number is 0 or more.")


class Sides(Model):
    """What $(side) stands for in a query, where labels do not tell versions but roles."""

    active: Side = Field(default="active", description="For the active version.")
    candidate: Side = Field(default="candidate", description="For the candidate.")


class Prometheus(Model):
    """A Prometheus-compatible API that knows how both versions fare, and what to ask it."""

    url: EndpointUrl = Field(
        max_length=2000,
        description="Base address; its API is at /api/v1 below it, such as "
        "http://prometheus.monitoring:9090.",
    )
    token_secret_ref: SecretKeyRef | None = Field(
        default=None, description="A bearer token; absent: none is sent."
    )
    score: ScoreQuery = Field(description="How good answers were; epsilon is a share of its scale.")
    latency: LatencyQuery | None = Field(
        default=None, description="How long they took; absent: maxLatencyRatio is not looked at."
    )
    cost: CostQuery | None = Field(
        default=None, description="What they cost; absent: maxCostRatio is not looked at."
    )
    window_seconds: Int = Field(
        default=60, ge=10, le=86_400, description="Length of a window; minSamples counts windows."
    )
    delay_seconds: Int = Field(
        default=60,
        ge=0,
        le=86_400,
        description="How long after its end a window is asked for: scrapes and remote writes take a while.",
    )
    label_delay_seconds: Int = Field(
        default=0,
        ge=0,
        le=2_592_000,
        description="How long after an answer the latest word on it comes, such as a complaint. Windows that "
        "end sooner after the comparison began are not asked for, and durationSeconds begins after it: the "
        "candidate's bad answers would be missing in them.",
    )
    sides: Sides = Field(default_factory=Sides, description="What $(side) stands for.")
