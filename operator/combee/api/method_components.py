"""What the options have in common of methods that learn a prompt of named components."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from combee.api.aggregation import Aggregation
from combee.api.common import Int, refuse
from combee.api.method_options import Options
from combee.names import COMPONENTS_KEY

if TYPE_CHECKING:
    from combee.api.run import RunSpec


class ComponentOptions(Options):
    """Options of a method that learns a prompt of named components; it tries out each text it proposes."""

    tries_out: ClassVar[bool] = True
    has_components: ClassVar[bool] = True
    start_file: ClassVar[str] = COMPONENTS_KEY
    uncapped_by: ClassVar[str] = ""
    """the option, as a manifest spells it, under which calls have no cap; empty where there is none."""
    render_token_budget: Int = Field(
        default=8000, ge=100, le=80_000, description="Tokens that a variant may take in a prompt."
    )

    @property
    def capped(self) -> bool:
        """Whether its calls keep to the caps of ``aggregation``."""
        return True

    def accept(self, spec: RunSpec) -> None:
        """Refuse another verification than its own, and texts that leave its calls no room."""
        if spec.aggregation.verify != "Replay":
            raise refuse(
                f"aggregation.verify {spec.aggregation.verify} with method {spec.method.type}, which tries "
                "out every proposal",
                "Remove verify.",
            )
        if self.capped:
            self._has_room(spec.aggregation, spec.method.type.lower())

    def _has_room(self, how: Aggregation, field: str) -> None:
        budget, cap = self.render_token_budget, how.max_input_tokens
        if 2 * budget > cap:
            raise refuse(
                f"{field}.renderTokenBudget {budget} is over half of aggregation.maxInputTokens {cap}: a "
                "call that improves such a text has no room for what it is to learn from",
                f"Lower renderTokenBudget, or raise maxInputTokens to {2 * budget}.",
            )
