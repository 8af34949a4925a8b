"""What the options of every base method have in common, as manifests, plans and previews read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from combee.api.aggregation import Aggregation
from combee.api.common import Bool, Int, Model, Rule, refuse
from combee.names import ARTIFACT_KEY, PROMPT_KEY

if TYPE_CHECKING:
    from combee.api.run import RunSpec


class Options(Model):
    """The options of a base method; each method's own derive from it."""

    tries_out: ClassVar[bool] = False
    """it believes nothing that it did not roll out, and so cannot learn from recorded traces."""
    has_components: ClassVar[bool] = False
    """it learns a prompt whose parts are improved by themselves."""
    start_file: ClassVar[str] = PROMPT_KEY
    """the file of a run that the next one starts from, where it is there; else ``prompt.md``."""
    render_token_budget: Int = Field(
        default=8000, ge=100, le=80_000, description="Tokens that what is learned may take in a prompt."
    )

    def accept(self, spec: RunSpec) -> None:
        """Refuse (``api.common.refuse``) what else the run says and cannot be had with these options."""

    @classmethod
    def rules(cls, spec: type[Model]) -> tuple[Rule, ...]:
        """Return the CEL rules of what ``accept`` refuses; ``spec`` is the model of a run's spec."""
        return ()

    def aggregation(self, stated: Aggregation) -> Aggregation:
        """Return how a run with these options aggregates when it says ``stated``."""
        return stated


class Retrieval(Model):
    """How much of a playbook one question is shown: a core that is the same for all, and a tail for it."""

    core_tokens: Int = Field(
        ge=0,
        le=80_000,
        description="Tokens of the entries with the best votes, which every prompt begins with.",
    )
    tail_tokens: Int = Field(
        ge=50, le=80_000, description="Tokens of the other entries that are most alike to the question."
    )

    @property
    def tokens(self) -> int:
        """The tokens of both."""
        return self.core_tokens + self.tail_tokens


MOST_TEST_SECONDS = 60
"""Most processor seconds of a program's own test, and those of each inherited one's."""


class Programs(Model):
    """Which programs a playbook may take in: functions in Python, each with its own test."""

    max_tokens: Int = Field(
        default=400, ge=50, le=2000, description="Tokens of a program with its test; longer ones are refused."
    )
    test_seconds: Int = Field(
        default=5,
        ge=1,
        le=MOST_TEST_SECONDS,
        description="Processor seconds that a program's own test may take.",
    )


class AceOptions(Options):
    """Options of ACE."""

    start_file: ClassVar[str] = ARTIFACT_KEY
    render_token_budget: Int = Field(
        default=8000, ge=100, le=80_000, description="Tokens that the rendered playbook may take in a prompt."
    )
    reflection_rounds: Int = Field(
        default=1, ge=1, le=5, description="Rounds of reflect and retry on an example answered wrong."
    )
    reasoning: Bool = Field(
        default=True,
        description="Whether an agent writes its steps before its answer. `false`: it answers at once, for "
        "models that think by themselves and for small ones that their own steps lead astray.",
    )
    tell_refused: Bool = Field(
        default=False,
        description="Tell calls that distil lessons which entries lost their replays, and why, so that "
        "these are not stated again.",
    )
    retrieval: Retrieval | None = Field(
        default=None,
        description="Show a core of the playbook and what is most alike to the question, here and where a "
        "gateway serves it. Absent: the whole playbook.",
    )

    programs: Programs | None = Field(
        default=None,
        description="Learn programs, too: functions whose own test passes in a sandbox. Absent: none.",
    )

    @model_validator(mode="after")
    def _leaves_something_out(self) -> Self:
        chosen = self.retrieval
        if chosen is not None and chosen.tokens >= self.render_token_budget:
            raise refuse(
                f"retrieval chooses up to {chosen.tokens} tokens of a playbook of at most "
                f"{self.render_token_budget}, which is all of it",
                "Lower coreTokens or tailTokens, or raise renderTokenBudget.",
            )
        return self

    @classmethod
    def rules(cls, spec: type[Model]) -> tuple[Rule, ...]:
        """Return the CEL rule of a choice that leaves nothing out."""
        return (
            Rule(
                cls,
                "!has(self.retrieval) || self.retrieval.coreTokens + self.retrieval.tailTokens"
                " < self.renderTokenBudget",
                "retrieval chooses all of a playbook of renderTokenBudget: lower coreTokens or tailTokens, "
                "or raise renderTokenBudget",
                "method_options.AceOptions._leaves_something_out",
                ".retrieval",
            ),
        )

    @model_serializer(mode="wrap")
    def _digest_as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what manifests from before this field mean, so that they keep their digest."""
        data: dict[str, Any] = handler(self)
        if not self.tell_refused:
            data.pop("tellRefused", None)
            data.pop("tell_refused", None)
        for name in ("retrieval", "programs"):
            if getattr(self, name) is None:
                data.pop(name, None)
        return data
