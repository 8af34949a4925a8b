"""The gateway's part of a Playbook: where requests go, who may send them, what is kept of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from combee.api.common import (
    LARGEST_INT,
    NOT_FILLED_IN,
    Bool,
    EndpointUrl,
    Float,
    Int,
    Line,
    Model,
    NameRef,
    SecretKeyRef,
    Str,
    refuse,
)
from combee.api.stores import Store, default_store

LONGEST_MODEL = 253
"""Characters of a model's name in a version; a longer one is cut."""


class Upstream(Model):
    """The OpenAI-compatible API that requests are passed on to."""

    url: EndpointUrl = Field(max_length=2000, description="Base address of the API, usually ending in /v1.")
    model: Str | None = Field(
        default=None,
        min_length=1,
        max_length=LONGEST_MODEL,
        description="The model that services ask, as this API names it. Chat requests that name another one "
        "are refused, and the condition ServedAsLearned compares it with the active version's task model. "
        "Absent: requests may name any.",
    )
    api_key_secret_ref: SecretKeyRef | None = Field(
        default=None, description="The API key; clients never see it. Absent: none is sent."
    )


class TokenReview(Model):
    """Tokens of service accounts, as the API server judges them."""

    audiences: tuple[Line, ...] = Field(
        default=("combee-gateway",),
        max_length=8,
        description="Audiences, one of which a token must be made for.",
    )
    service_accounts: tuple[Line, ...] = Field(
        default=(),
        max_length=100,
        description="Service accounts let in, as namespace/name; absent: all of the Playbook's namespace.",
    )


class GatewayKeys(Model):
    """Who may send requests: exactly one way."""

    exactly_one = ("secret_ref", "token_review")
    secret_ref: NameRef | None = Field(
        default=None, description="Secret of which each value is a key that is let in."
    )
    token_review: TokenReview | None = Field(
        default=None, description="Tokens of service accounts; the gateway's account must be allowed to ask."
    )


class GatewayLimits(Model):
    """What a request may take."""

    max_request_bytes: Int = Field(
        default=10_485_760, ge=1024, le=268_435_456, description="Largest body of a request."
    )
    deadline_seconds: Int = Field(
        default=600, ge=1, le=86_400, description="Longest time that a request takes, its answer included."
    )
    max_in_flight: Int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="Requests at once, eight ninths for one key; more are told to come again (429, 503).",
    )


class ShadowLimits(Model):
    """What mirrored requests may take. They wait for nobody: what has no room is left out, and counted."""

    concurrency: Int = Field(default=4, ge=1, le=64, description="Mirrored requests at once.")
    queue: Int = Field(default=100, ge=0, le=10_000, description="Mirrored requests that wait.")
    deadline_seconds: Int = Field(default=120, ge=1, le=3600, description="Longest time of one.")


class Capture(Model):
    """What is kept of traffic, redacted. Pairs of a canary in mode Shadow are kept there, too."""

    enabled: Bool = Field(
        default=False, description="Whether requests and answers are kept, for a canary in mode Replay."
    )
    percent: Float = Field(default=5.0, gt=0, le=100, description="Share of requests kept, in percent.")
    retention_seconds: Int = Field(
        default=604_800,
        ge=60,
        le=LARGEST_INT,
        description="What is kept is deleted after it, pairs of a canary included, by the gateway or a Job.",
    )
    store: Store = Field(
        default_factory=default_store, description="Where it is kept.", json_schema_extra=NOT_FILLED_IN
    )


class Page(Model):
    """What people see in a browser: versions, what changed, gates, canaries. Nobody can change anything
    there."""

    enabled: Bool = Field(
        default=True,
        description="Whether the gateway shows this Playbook to who has one of its keys, below /-/.",
    )


class Gateway(Model):
    """The reverse proxy that puts the active version in front of requests."""

    enabled: Bool = Field(default=False, description="Whether the namespace's gateway serves this Playbook.")
    upstream: Upstream | None = Field(default=None, description="Where requests go; needed when enabled.")
    keys: GatewayKeys | None = Field(
        default=None, description="Who may send requests; absent: service accounts of this namespace."
    )
    limits: GatewayLimits = Field(default_factory=GatewayLimits, description="What a request may take.")
    capture: Capture = Field(default_factory=Capture, description="What is kept of traffic.")
    shadow: ShadowLimits = Field(default_factory=ShadowLimits, description="What mirrored requests may take.")
    page: Page = Field(default_factory=Page, description="What people see in a browser.")

    @model_validator(mode="after")
    def _enabled_has_upstream(self) -> Self:
        if self.enabled and self.upstream is None:
            raise refuse(
                "the gateway is enabled without upstream",
                "Add upstream: {url: ...}, the API that requests are passed on to.",
            )
        return self
