"""The part of a run's spec that says by which base method it learns."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
    model_validator,
)

from combee.api.common import NOT_FILLED_IN, Bool, Int, Model, Scalar, refuse

MethodType = Literal["ACE", "GEPA"]
Frontier = Literal["Instance", "Objective", "Hybrid", "Cartesian"]
CURRENT_TEXT, SIDE_INFO = "<curr_param>", "<side_info>"
"""What a template holds: the text of today, and the records or lessons to improve it by. gepa's own names."""


def _template(text: str) -> str:
    missing = [name for name in (CURRENT_TEXT, SIDE_INFO) if name not in text]
    if missing:
        raise refuse(
            f"the template lacks {' and '.join(missing)}",
            f"Write {CURRENT_TEXT} where the text of today goes, and {SIDE_INFO} where the records or lessons go.",
        )
    return text


Template = Annotated[str, Strict(), Field(max_length=20_000), AfterValidator(_template), Scalar("Template")]
"""a text with both placeholders."""


class AceOptions(Model):
    """Options of ACE."""

    render_token_budget: Int = Field(
        default=8000, ge=100, le=80_000, description="Tokens that the rendered playbook may take in a prompt."
    )
    reflection_rounds: Int = Field(
        default=1, ge=1, le=5, description="Rounds of reflect and retry on an example answered wrong."
    )


class GepaOptions(Model):
    """Options of GEPA."""

    render_token_budget: Int = Field(
        default=8000, ge=100, le=80_000, description="Tokens that a variant may take in a prompt."
    )
    frontier: Frontier = Field(
        default="Instance",
        description="What a variant must lead in to be built on: an example (Instance), an objective of the score "
        "(Objective), either (Hybrid), or a pair of both (Cartesian).",
    )
    merges: Int = Field(
        default=5, ge=0, le=1000, description="Most merges of two lines of variants in a run; 0: none."
    )
    variants_in_flight: Int = Field(
        default=1,
        ge=1,
        le=64,
        description="Most variants that an iteration builds on side by side, each on its share of the batch. The first "
        "iterations have fewer where the front does.",
    )
    map_template: Template | None = Field(
        default=None,
        description="How a call is asked about some records; it holds <curr_param> and <side_info>. Absent: ours.",
    )
    reduce_template: Template | None = Field(
        default=None,
        description="How the last call is asked to write a component anew; it holds <curr_param> and <side_info>. "
        "Absent: ours.",
    )
    paper_compat: Bool = Field(
        default=False,
        description="Aggregate as the gepa package does: every record twice, floor(sqrt(n)) calls that each propose "
        "a text, one call over all of them, no caps.",
    )

    @model_serializer(mode="wrap")
    def _digest_as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """One variant in flight is not written: a manifest from before there could be more keeps its digest."""
        data: dict[str, Any] = handler(self)
        if self.variants_in_flight == 1:
            data.pop("variantsInFlight", None)
            data.pop("variants_in_flight", None)
        return data


class Method(Model):
    """The base method."""

    type: MethodType = Field(description="ACE learns a playbook, GEPA a prompt of named components.")
    epochs: Int = Field(default=1, ge=1, le=100, description="Passes over the train rows.")
    ace: AceOptions = Field(
        default_factory=AceOptions,
        description="Options of ACE; with type ACE only.",
        json_schema_extra=NOT_FILLED_IN,
    )
    gepa: GepaOptions | None = Field(default=None, description="Options of GEPA; with type GEPA only.")

    @model_validator(mode="after")
    def _options_go_with_type(self) -> Self:
        other = {"ACE": "gepa", "GEPA": "ace"}[self.type]
        if other in self.model_fields_set and getattr(self, other) is not None:
            raise refuse(
                f"{other} is given with type {self.type}", f"Remove {other}, or set type: {other.upper()}."
            )
        return self

    @model_serializer(mode="wrap")
    def _own_options(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The other method's defaults are not written: read back, they would be refused."""
        data: dict[str, Any] = handler(self)
        if self.type != "ACE":
            data.pop("ace", None)
        return data

    @property
    def gepa_options(self) -> GepaOptions | None:
        """GEPA's options, defaults where none are stated; None for another method."""
        return (self.gepa or GepaOptions()) if self.type == "GEPA" else None

    @property
    def render_token_budget(self) -> int:
        """Tokens that what is learned may take in a prompt."""
        return (self.gepa_options or self.ace).render_token_budget

    @property
    def budget_field(self) -> str:
        """Where the manifest says ``render_token_budget``."""
        return f"spec.method.{self.type.lower()}.renderTokenBudget"

    @property
    def reflection_rounds(self) -> int:
        """Most reflections on one trajectory; with GEPA a trajectory is a record, and no call is made about it."""
        return 1 if self.type == "GEPA" else self.ace.reflection_rounds

    @property
    def variants_in_flight(self) -> int:
        """Most texts that an iteration works with side by side."""
        return self.gepa_options.variants_in_flight if self.gepa_options else 1

    @property
    def has_components(self) -> bool:
        """Whether it learns a prompt whose parts are improved by themselves."""
        return self.type == "GEPA"

    @property
    def paper_compat(self) -> bool:
        """Whether aggregation is gepa's own."""
        options = self.gepa_options
        return options is not None and options.paper_compat
