"""The only reader of the environment."""

from __future__ import annotations

import os

from combee.errors import UserError


def environment_value(variable: str, *, wanted_for: str) -> str:
    """The value of ``variable``. UserError naming it (never a value) when it is unset or empty."""
    value = os.environ.get(variable, "")
    if not value:
        raise UserError(
            f"the environment variable {variable} is not set",
            where=wanted_for,
            fix=f"export {variable}=... and run again",
        )
    return value
