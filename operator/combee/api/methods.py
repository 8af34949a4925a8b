"""The part of a run's spec that says by which base method it learns.

``OPTIONS`` is the only place of the api that lists the product's methods: a CRD's schema is closed, so the
options of each stand in it under the method's name. Those of a method that a package adds are free-form
there, and checked by the model that the method brings.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationError,
    model_serializer,
    model_validator,
)

from combee import extensions
from combee.api.common import NOT_FILLED_IN, Int, Model, refuse
from combee.api.extension import Names
from combee.api.method_gepa import GepaOptions
from combee.api.method_mipro import MiproOptions
from combee.api.method_options import AceOptions, Options, Programs, Retrieval
from combee.api.method_textgrad import TextGradOptions
from combee.names import ARTIFACT_KEY, PROMPT_KEY

OPTIONS: Mapping[str, type[Options]] = {
    "ACE": AceOptions,
    "GEPA": GepaOptions,
    "TextGrad": TextGradOptions,
    "MIPRO": MiproOptions,
}
"""The product's own methods; ``methods.registry`` makes them."""
METHOD_NAMES = Names(extensions.METHODS, tuple(OPTIONS))
MethodType = Annotated[str, Strict(), Field(max_length=63), METHOD_NAMES]


def budget_field(type: str) -> str:
    """Return where the manifest says ``render_token_budget`` for a method."""
    return f"spec.method.{type.lower() if type in OPTIONS else 'options'}.renderTokenBudget"


class Method(Model):
    """The base method."""

    type: MethodType = Field(description="ACE learns a playbook, the others a prompt of named components.")
    epochs: Int = Field(default=1, ge=1, le=100, description="Passes over the train rows.")
    ace: AceOptions = Field(
        default_factory=AceOptions,
        description="Options of ACE; with type ACE only.",
        json_schema_extra=NOT_FILLED_IN,
    )
    gepa: GepaOptions | None = Field(default=None, description="Options of GEPA; with type GEPA only.")
    textgrad: TextGradOptions | None = Field(
        default=None, description="Options of TextGrad; with type TextGrad only."
    )
    mipro: MiproOptions | None = Field(default=None, description="Options of MIPRO; with type MIPRO only.")
    options: dict[str, Any] | None = Field(
        default=None, description="Options of a method that a package adds, as that method documents them."
    )

    @model_validator(mode="after")
    def _options_go_with_type(self) -> Self:
        for name in OPTIONS:
            field = name.lower()
            if name != self.type and field in self.model_fields_set and getattr(self, field) is not None:
                raise refuse(
                    f"{field} is given with type {self.type}", f"Remove {field}, or set type: {name}."
                )
        if self.options is not None and self.type in OPTIONS:
            raise refuse(f"options is given with type {self.type}", f"Write them under {self.type.lower()}.")
        if self.type not in OPTIONS:
            self._own_stated()
        return self

    def _own_stated(self) -> Options:
        """Return the options of a package's method, read by the model that the method brings."""
        model: type[Options] = getattr(extensions.load(extensions.METHODS, self.type), "Options", Options)
        try:
            return model.model_validate(self.options or {})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(("options", *map(str, first["loc"])))
            raise refuse(
                f"{where} of method {self.type}: {first['msg']}", "See what the method's package documents."
            ) from None

    @model_serializer(mode="wrap")
    def _own_options(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out another method's defaults: read back, they would be refused."""
        data: dict[str, Any] = handler(self)
        for name in OPTIONS:
            if name != self.type:
                data.pop(name.lower(), None)
        return data

    @property
    def stated(self) -> Options:
        """The options, with defaults where none are stated."""
        if self.type not in OPTIONS:
            return self._own_stated()
        stated: Options | None = getattr(self, self.type.lower())
        return stated or OPTIONS[self.type]()

    @property
    def render_token_budget(self) -> int:
        """The tokens that what is learned may take in a prompt."""
        return self.stated.render_token_budget

    @property
    def retrieval(self) -> Retrieval | None:
        """How much of what is learned one question is shown; None: all of it."""
        stated = getattr(self.stated, "retrieval", None)
        return stated if isinstance(stated, Retrieval) else None

    @property
    def programs(self) -> Programs | None:
        """Which programs may be learned; None: none."""
        stated = getattr(self.stated, "programs", None)
        return stated if isinstance(stated, Programs) else None

    @property
    def shown_token_budget(self) -> int:
        """The tokens of what is learned that the prompt of one example may have."""
        return self.render_token_budget if self.retrieval is None else self.retrieval.tokens

    @property
    def budget_field(self) -> str:
        """The path of ``render_token_budget`` in the manifest."""
        return budget_field(self.type)

    @property
    def reflection_rounds(self) -> int:
        """The most reflections on one trajectory; 1 for a method that does not offer more."""
        return int(getattr(self.stated, "reflection_rounds", 1))

    @property
    def reasoning(self) -> bool:
        """Whether an agent writes its steps before its answer."""
        return bool(getattr(self.stated, "reasoning", True))

    @property
    def tell_refused(self) -> bool:
        """Whether calls that distil lessons are told which entries lost their replays."""
        return getattr(self.stated, "tell_refused", False) is True

    @property
    def variants_in_flight(self) -> int:
        """The most texts that an iteration works with side by side."""
        return int(getattr(self.stated, "variants_in_flight", 1))

    @property
    def diversity(self) -> bool:
        """Whether each of its proposals is an edit of some kind, and a run that is stuck starts afresh."""
        return getattr(self.stated, "diversity", False) is True

    @property
    def start_file(self) -> str:
        """The file of a run that the next one starts from, where it is there; else ``prompt.md``."""
        return self.stated.start_file

    def start_in(self, files: Container[str], *, own: bool) -> str:
        """Return which of a run's files the next one starts from. ``own``: whether that run had this method,
        for an artifact says nothing to another one."""
        fits = self.start_file in files and (own or self.start_file != ARTIFACT_KEY)
        return self.start_file if fits else PROMPT_KEY

    @property
    def has_components(self) -> bool:
        """Whether it learns a prompt whose parts are improved by themselves."""
        return self.stated.has_components
