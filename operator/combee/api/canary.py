"""``spec.canary`` of a Playbook: what a candidate must show on traffic, or why it need not show anything."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from combee.api.common import LARGEST_INT, Float, Int, Model, Words, refuse
from combee.api.parts import DataSource, Endpoint
from combee.api.prometheus import Prometheus


class Replay(Model):
    """Requests for a canary of mode Replay."""

    requests: DataSource | None = Field(
        default=None,
        description="JSON lines of chat requests (messages, and what else they ask for); absent: what the "
        "gateway captured.",
    )


class Canary(Model):
    """What a candidate must show on traffic before it is promoted, or why it need not show anything."""

    exactly_one: ClassVar[tuple[str, ...]] = ("mode", "waived")
    mode: Literal["Shadow", "Replay", "Prometheus", "Manual"] | None = Field(
        default=None,
        description="Shadow: requests mirrored by the gateway; Replay: captured ones; Prometheus: queries; "
        "Manual: somebody says so.",
    )
    waived: Words | None = Field(
        default=None,
        max_length=500,
        description="Why heldOut alone decides, in words; every status shows them. Instead of mode.",
    )
    traffic_percent: Float = Field(
        default=5.0, gt=0, le=100, description="Share of requests that is looked at, in percent."
    )
    duration_seconds: Int = Field(default=86_400, ge=0, le=LARGEST_INT, description="Shortest time it takes.")
    deadline_seconds: Int = Field(
        default=259_200,
        ge=1,
        le=LARGEST_INT,
        description="Longest time; then it is Inconclusive and the active version stays.",
    )
    min_samples: Int = Field(
        default=200,
        ge=1,
        le=LARGEST_INT,
        description="Least requests judged; with mode Prometheus, windows compared.",
    )
    epsilon: Float = Field(
        default=0.005, ge=0, lt=1, description="How much worse than the active version still passes."
    )
    max_latency_ratio: Float = Field(
        default=1.5,
        gt=0,
        le=100,
        description="How many times as long as the active version's its answers may take, on the geometric "
        "mean.",
    )
    max_cost_ratio: Float = Field(
        default=3.0,
        gt=0,
        le=100,
        description="How many times as much as the active version's its requests may cost, on the geometric "
        "mean: in tokens of prompt and answer, or as prometheus.cost says. It may change at any time.",
    )
    watch_seconds: Int = Field(
        default=86_400,
        ge=0,
        le=LARGEST_INT,
        description="How long after its promotion a version that the gates promoted is compared with the "
        "one before: as its canary did or, with mode Manual and a waived one, by mirrored requests, if "
        "there are a gateway and an evaluator. It is refused, and the one before is active again, once the "
        "upper end of the interval is under minus epsilon, or its answers are shown to take more than "
        "maxLatencyRatio times as long, or to cost more than maxCostRatio times as much. 0: not at all.",
    )
    evaluator: Endpoint | None = Field(
        default=None,
        description="Judges the answers, blind; needed for Shadow and Replay, and for a watch without.",
    )
    replay: Replay = Field(default_factory=Replay, description="With mode Replay only.")
    prometheus: Prometheus | None = Field(
        default=None, description="Whom to ask what; needed for mode Prometheus, and with it only."
    )
    expected_requests_per_day: Int | None = Field(
        default=None,
        ge=1,
        le=LARGEST_INT,
        description="Requests a day that the service gets; with it a deadline that epsilon cannot meet is "
        "warned of.",
    )

    @model_validator(mode="after")
    def _deadline_is_later(self) -> Self:
        if self.deadline_seconds < self.duration_seconds:
            raise refuse(
                "deadlineSeconds is shorter than durationSeconds",
                "Give a deadline at least as long as the duration.",
            )
        return self

    @model_validator(mode="after")
    def _judged_has_evaluator(self) -> Self:
        if self.mode in ("Shadow", "Replay") and self.evaluator is None:
            raise refuse(
                f"a canary of mode {self.mode} without evaluator",
                "Add evaluator: {url: ..., model: ...}, the model that judges the answers.",
            )
        return self

    @model_validator(mode="after")
    def _prometheus_goes_with_mode(self) -> Self:
        if self.mode == "Prometheus" and self.prometheus is None:
            raise refuse(
                "a canary of mode Prometheus without prometheus",
                "Add prometheus: {url: ..., score: {query: ..., unit: ...}}.",
            )
        if self.mode != "Prometheus" and self.prometheus is not None:
            given = f"with mode {self.mode}" if self.mode is not None else "without mode Prometheus"
            raise refuse(f"prometheus is given {given}", "Remove it, or set mode: Prometheus.")
        return self
