"""The options of TextGrad in a manifest."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict

from combee.api.common import Int
from combee.api.method_components import ComponentOptions

Constraint = Annotated[str, Strict(), Field(min_length=1, max_length=500)]


class TextGradOptions(ComponentOptions):
    """Options of TextGrad."""

    momentum: Int = Field(
        default=0, ge=0, le=16, description="Earlier steps whose criticism a rewrite is shown again."
    )
    constraints: list[Constraint] = Field(
        default_factory=list, max_length=16, description="What a rewrite must keep to, a sentence each."
    )
