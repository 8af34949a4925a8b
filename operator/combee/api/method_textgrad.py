"""The options of TextGrad in a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, Strict

from combee.api.common import Int, refuse
from combee.api.method_components import ComponentOptions

if TYPE_CHECKING:
    from combee.api.run import RunSpec

Constraint = Annotated[str, Strict(), Field(min_length=1, max_length=500)]
LEARNED_TOKENS = 1000
"""What constraints leave of a call for the request itself and for criticism."""


class TextGradOptions(ComponentOptions):
    """Options of TextGrad."""

    momentum: Int = Field(
        default=0, ge=0, le=16, description="Earlier steps whose criticism a rewrite is shown again."
    )
    constraints: list[Constraint] = Field(
        default_factory=list, max_length=16, description="What a rewrite must keep to, a sentence each."
    )

    def accept(self, spec: RunSpec) -> None:
        """Refuse constraints that leave a rewrite's call no room. CEL counts no bytes: a cluster says so once
        the run is read."""
        super().accept(spec)
        tokens = sum(-(-len(one.encode()) // 4) for one in self.constraints)
        least, cap = self.render_token_budget + tokens + LEARNED_TOKENS, spec.aggregation.max_input_tokens
        if tokens and least > cap:
            raise refuse(
                f"textgrad.constraints have {tokens} tokens, which with renderTokenBudget "
                f"{self.render_token_budget} leave no room in aggregation.maxInputTokens {cap}",
                f"Shorten them, or raise maxInputTokens to {least}.",
            )
