"""How a role's model draws its answers, and how many tokens it may use for them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from combee.api.common import Float, Int, Model

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""The values of ``reasoning_effort`` in the chat API; which of them a model knows is its own affair."""


class Sampling(Model):
    """How a role's model samples."""

    temperature: Float = Field(default=0.0, ge=0, le=2, description="Temperature; 0: the most likely token.")
    top_p: Float = Field(default=1.0, gt=0, le=1, description="Nucleus mass.")
    max_tokens: Int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Most tokens of an answer, without reasoning; absent: what each prompt asks for.",
    )
    reasoning_tokens: Int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Most tokens that a reasoning model may think before its answer, on top of the answer's; "
        "absent: thinking shares the answer's room.",
    )
    reasoning_effort: Effort | None = Field(
        default=None, description="How hard a reasoning model thinks; absent: the server's default."
    )

    def warmed(self, least_temperature: float) -> Sampling:
        """Return the sampling with a temperature of at least this."""
        if self.temperature >= least_temperature:
            return self
        return self.model_copy(update={"temperature": least_temperature})

    @property
    def stated(self) -> dict[str, object]:
        """By name, what the manifest sets of the fields without a default; an absent one changes nothing."""
        return self.model_dump(exclude={"temperature", "top_p"}, exclude_none=True)

    def output_tokens(self, answer_tokens: int) -> int:
        """Return the most tokens of a reply, thinking included, whose answer may have ``answer_tokens``."""
        return answer_tokens + (self.reasoning_tokens or 0)


DEFAULT = Sampling()
"""What a role samples with where its manifest says nothing."""
