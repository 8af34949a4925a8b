"""What a run's models and GPUs cost, as the user states it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, field_validator

from combee.api.common import MAP_BY_NAME, Float, Form, Model, Str, distinct

MILLION = 1_000_000

CURRENCY = Form("Currency", "[A-Z]{3}", "not a currency", "Write its three letters, such as EUR or USD.")
Currency = Annotated[str, Strict(), Field(max_length=3), CURRENCY]


class ModelPrice(Model):
    """What the tokens of one model cost."""

    name: Str = Field(
        min_length=1, max_length=500, description="Model, as the endpoint or engine that serves it names it."
    )
    prompt_per_million_tokens: Float = Field(ge=0, le=1e9, description="Price of a million tokens in.")
    cached_per_million_tokens: Float | None = Field(
        default=None, ge=0, le=1e9, description="Of those that the server had cached; absent: the full price."
    )
    completion_per_million_tokens: Float = Field(ge=0, le=1e9, description="Price of a million tokens out.")

    def of(self, prompt: int, completion: int, cached: int = 0, lost: int = 0) -> float:
        """Return what so many tokens cost. ``lost`` tokens cost what those in and out do on average, none of
        them cached; alone, what the dearer do. Cost: O(1).

        >>> price = ModelPrice.model_validate(
        ...     {"name": "m", "promptPerMillionTokens": 1.0, "completionPerMillionTokens": 3.0}
        ... )
        >>> price.of(prompt=500_000, completion=500_000, lost=1_000_000)
        4.0
        """
        a_prompt, an_answer = self.prompt_per_million_tokens, self.completion_per_million_tokens
        full = prompt * a_prompt + completion * an_answer
        again = lost * (full / (prompt + completion) if prompt + completion else max(a_prompt, an_answer))
        saved = 0.0
        if self.cached_per_million_tokens is not None:
            saved = min(cached, prompt) * (a_prompt - self.cached_per_million_tokens)
        return (full - saved + again) / MILLION


class Prices(Model):
    """What models and GPUs cost: budget.money is held, and cost is told, by these."""

    currency: Currency = Field(description="Currency of all prices and of budget.money.")
    models: tuple[ModelPrice, ...] = Field(
        default=(),
        max_length=32,
        description="Prices by model. An engine of the run's own may be left out: its GPUs cost.",
        json_schema_extra=MAP_BY_NAME,
    )
    per_gpu_hour: Float = Field(
        default=0.0, ge=0, le=1e9, description="Price of an hour of one GPU of the run's own engines."
    )

    @field_validator("models")
    @classmethod
    def _model_names_differ(cls, value: tuple[ModelPrice, ...]) -> tuple[ModelPrice, ...]:
        return distinct(value, "models")

    def of_model(self, name: str) -> ModelPrice | None:
        """Return what the tokens of a model cost; None where nothing is said of it."""
        return next((row for row in self.models if row.name == name), None)
