"""The options of GEPA in a manifest, and what a run with them may not say beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, Strict, model_serializer

from combee.api.aggregation import STRATEGIES, Aggregation
from combee.api.common import Bool, Int, Model, Rule, Scalar, refuse
from combee.api.method_components import ComponentOptions

if TYPE_CHECKING:
    from combee.api.run import RunSpec

Frontier = Literal["Instance", "Objective", "Hybrid", "Cartesian"]
NO_CAP = 1_000_000_000
CURRENT_TEXT, SIDE_INFO = "<curr_param>", "<side_info>"
"""What a template holds: the text of today, and the records or lessons to improve it by. gepa's own names."""


def _template(text: str) -> str:
    missing = [name for name in (CURRENT_TEXT, SIDE_INFO) if name not in text]
    if missing:
        raise refuse(
            f"the template lacks {' and '.join(missing)}",
            f"Write {CURRENT_TEXT} where the text of today goes, and {SIDE_INFO} where the records or "
            "lessons go.",
        )
    return text


Template = Annotated[str, Strict(), Field(max_length=20_000), AfterValidator(_template), Scalar("Template")]
"""a text with both placeholders."""

_PLACEHOLDERS = Rule(
    "Template",
    f"self.contains('{CURRENT_TEXT}') && self.contains('{SIDE_INFO}')",
    f"the template lacks a placeholder: write {CURRENT_TEXT} where the text of today goes, "
    f"and {SIDE_INFO} where the records or lessons go",
    "method_gepa._template",
)
_DEALT = [name for name, traits in STRATEGIES.items() if traits.subgroups]
_GEPA, _HOW = "self.method.gepa", "self.aggregation"
_OWN = (
    " || ".join((f"(!has({_HOW}.strategy)", *(f"{_HOW}.strategy == '{name}'" for name in _DEALT))) + ")"
    f" && (!has({_HOW}.merge) || {_HOW}.merge == 'Structured')"
    f" && (!has({_HOW}.redundancy) || !has({_HOW}.redundancy.mode) || {_HOW}.redundancy.mode != 'Retransmit')"
)
"""What gepa's own aggregation leaves to be said, in CEL."""


class GepaOptions(ComponentOptions):
    """Options of GEPA."""

    uncapped_by: ClassVar[str] = "paperCompat"
    frontier: Frontier = Field(
        default="Instance",
        description="What a variant must lead in to be built on: an example (Instance), an objective of "
        "the score (Objective), either (Hybrid), or a pair of both (Cartesian).",
    )
    merges: Int = Field(
        default=5, ge=0, le=1000, description="Most merges of two lines of variants in a run; 0: none."
    )
    variants_in_flight: Int = Field(
        default=1,
        ge=1,
        le=64,
        description="Most variants that an iteration builds on side by side, each on its share of the "
        "batch. The first iterations have fewer where the front does.",
    )
    diversity: Bool = Field(
        default=False,
        description="Ask for one kind of edit a proposal (rephrase, reorder, examples, channel, insert, "
        "delete), drawn by what each has lifted on select from iteration 5 on; raise the proposer's "
        "temperature while nothing improves; tell it which changes lost; start from the given prompt anew "
        "when a run is stuck.",
    )
    map_template: Template | None = Field(
        default=None,
        description="How a call is asked about some records; it holds <curr_param> and <side_info>. "
        "Absent: ours.",
    )
    reduce_template: Template | None = Field(
        default=None,
        description="How the last call is asked to write a component anew; it holds <curr_param> and "
        "<side_info>. Absent: ours.",
    )
    paper_compat: Bool = Field(
        default=False,
        description="Aggregate as the gepa package does: every record twice, floor(sqrt(n)) calls that "
        "each propose a text, one call over all of them, no caps.",
    )

    @model_serializer(mode="wrap")
    def _digest_as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what manifests from before these fields mean, so that they keep their digest."""
        data: dict[str, Any] = handler(self)
        if not self.diversity:
            data.pop("diversity", None)
        if self.variants_in_flight == 1:
            data.pop("variantsInFlight", None)
            data.pop("variants_in_flight", None)
        return data

    @classmethod
    def rules(cls, spec: type[Model]) -> tuple[Rule, ...]:
        """Return the CEL rules of what ``accept`` refuses, and of a template without its placeholders."""
        return (
            _PLACEHOLDERS,
            Rule(
                spec,
                f"!has({_GEPA}) || !has({_GEPA}.paperCompat) || !{_GEPA}.paperCompat"
                f" || !has({_HOW}) || ({_OWN})",
                "gepa.paperCompat with a strategy, merge or redundancy that is not gepa's: remove strategy, "
                "merge and redundancy.mode, or paperCompat",
                "method_gepa.GepaOptions._aggregates",
                ".aggregation",
            ),
            Rule(
                spec,
                f"!has({_GEPA}) || !has({_GEPA}.frontier) || {_GEPA}.frontier == 'Instance'"
                " || self.task.type != 'Formula'",
                "gepa.frontier needs a score by objectives, and type Formula has none: remove frontier",
                "method_gepa.GepaOptions.accept",
                ".method.gepa",
            ),
        )

    def accept(self, spec: RunSpec) -> None:
        """Refuse what its minibatches, its own aggregation, its calls and its frontier have no place for."""
        super().accept(spec)
        self._aggregates(spec.aggregation)
        if self.frontier != "Instance" and spec.task.type == "Formula":
            raise refuse(
                f"gepa.frontier {self.frontier} needs a score by objectives, and type Formula has none",
                "Remove frontier.",
            )

    def _aggregates(self, how: Aggregation) -> None:
        own = how.strategy not in _DEALT or how.merge == "Model" or how.redundancy.mode == "Retransmit"
        if self.paper_compat and own:
            raise refuse(
                "gepa.paperCompat with a strategy, merge or redundancy that is not gepa's",
                "Remove strategy, merge and redundancy.mode, or paperCompat.",
            )

    @property
    def capped(self) -> bool:
        return not self.paper_compat

    def aggregation(self, stated: Aggregation) -> Aggregation:
        """Return it as stated, or as the gepa package does, which has two levels and no caps.

        ``Auto`` is ``Duplicate`` at any size: what is sent are records, and one that holds no lesson looks
        like one whose lesson was dropped, so retransmission would always go to its last round.
        """
        redundancy = stated.redundancy
        if self.paper_compat or redundancy.mode == "Auto":
            redundancy = redundancy.model_copy(update={"mode": "Duplicate"})
        if not self.paper_compat:
            return stated.model_copy(update={"redundancy": redundancy})
        caps = {"subgroups": "Sqrt", "max_fan_in": NO_CAP, "max_input_tokens": NO_CAP}
        return stated.model_copy(update={"redundancy": redundancy, **caps})
