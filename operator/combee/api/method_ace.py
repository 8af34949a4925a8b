"""The options of ACE in a manifest."""

from __future__ import annotations

from pydantic import Field

from combee.api.common import Int
from combee.api.method_options import Options


class AceOptions(Options):
    """Options of ACE."""

    render_token_budget: Int = Field(
        default=8000, ge=100, le=80_000, description="Tokens that the rendered playbook may take in a prompt."
    )
    reflection_rounds: Int = Field(
        default=1, ge=1, le=5, description="Rounds of reflect and retry on an example answered wrong."
    )
