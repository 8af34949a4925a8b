"""The options of MIPRO in a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from combee.api.common import Int, Model, Rule, refuse
from combee.api.method_components import ComponentOptions

if TYPE_CHECKING:
    from combee.api.run import RunSpec

_MIPRO, _CUSTOM = "self.method.mipro", "self.task.custom"


class MiproOptions(ComponentOptions):
    """Options of MIPRO."""

    proposals: Int = Field(
        default=3,
        ge=1,
        le=6,
        description="New instructions that are proposed for each component in an iteration, and sets of "
        "demonstrations.",
    )
    demonstrations: Int = Field(
        default=0,
        ge=0,
        le=16,
        description="Train rows that a set quotes, question and answer, in the prompt that is published; "
        "0: instructions alone are learned.",
    )
    probes: Int = Field(
        default=10,
        ge=1,
        le=100,
        description="Combinations that are tried on a minibatch in an iteration; of five the best is scored "
        "on all of select.",
    )
    minibatch: Int = Field(default=35, ge=1, le=1000, description="Rows of select that a probe is asked.")

    @classmethod
    def rules(cls, spec: type[Model]) -> tuple[Rule, ...]:
        """Return the CEL rule of what ``accept`` refuses."""
        return (
            Rule(
                spec,
                f"!has({_MIPRO}) || !has({_MIPRO}.demonstrations) || {_MIPRO}.demonstrations == 0"
                f" || !has({_CUSTOM}) || !has({_CUSTOM}.adapter)",
                "mipro.demonstrations with an adapter, which has no place for them: remove demonstrations",
                "method_mipro.MiproOptions.accept",
                ".method.mipro",
            ),
        )

    def accept(self, spec: RunSpec) -> None:
        """Refuse demonstrations where an adapter puts the components of a prompt in their places."""
        super().accept(spec)
        custom = spec.task.custom
        if self.demonstrations and custom is not None and custom.adapter is not None:
            raise refuse(
                "mipro.demonstrations with an adapter, which has no place for them", "Remove demonstrations."
            )
