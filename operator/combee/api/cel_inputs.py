"""CEL rules of what a manifest states for its claims. Each mirrors a validator of the model."""

from __future__ import annotations

from combee.api.baseline import SerialBaseline
from combee.api.common import Rule
from combee.api.playbook import HeldOutGate


def _with_curve(field: str) -> Rule:
    return Rule(
        SerialBaseline,
        f"!has(self.{field}) || (has(self.curve) && size(self.curve) > 0)",
        f"{field} is given without curve: remove {field}, or add the curve it is of",
        "baseline.SerialBaseline._origin_goes_with_curve",
        f".{field}",
    )


RULES: tuple[Rule, ...] = (
    Rule(
        SerialBaseline,
        "!has(self.waived) || (!self.measure && (!has(self.curve) || size(self.curve) == 0))",
        "waived is given with measure or curve: remove waived, or what gives the baseline",
        "baseline.SerialBaseline._waived_stands_alone",
        ".waived",
    ),
    Rule(
        HeldOutGate,
        "!has(self.reason) || has(self.digest)",
        "reason is given without digest: add digest, of the new rows, or remove reason",
        "playbook.HeldOutGate._reason_goes_with_digest",
        ".reason",
    ),
    _with_curve("source"),
    _with_curve("hardware"),
)
