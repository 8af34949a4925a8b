"""CEL rules of the serial baseline: what can be measured, what can be read, and what goes with it."""

from __future__ import annotations

from combee.api.baseline import SerialBaseline
from combee.api.common import Rule
from combee.api.run import RunSpec

_BASELINE = "self.serialBaseline"
_READ = f"{_BASELINE}.measure || (has({_BASELINE}.curve) && size({_BASELINE}.curve) > 0)"
_SILENT = f"!has({_BASELINE}) || !({_READ})"


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
        "!self.measure || !has(self.curve) || size(self.curve) == 0",
        "measure and curve are both given: give exactly one of measure: true, curve",
        "baseline.SerialBaseline._one_of",
    ),
    Rule(
        SerialBaseline,
        "!has(self.curve) || self.curve.map(point, point.examples).isSorted()",
        "not ascending by examples: write the points in order, each number of examples once",
        "baseline.SerialBaseline._forward",
        ".curve",
    ),
    Rule(
        RunSpec,
        f"{_SILENT} || {_BASELINE}.method == self.method.type",
        "serialBaseline.method is another than method.type: write the same, a run is compared with its own "
        "method, one example at a time",
        "run.RunSpec._baseline_can_be_read",
        ".serialBaseline.method",
    ),
    Rule(
        RunSpec,
        f"{_SILENT} || self.task.type != 'Traces'",
        "serialBaseline with type Traces, where nothing is scored: remove serialBaseline",
        "run.RunSpec._baseline_can_be_read",
        ".serialBaseline",
    ),
    Rule(
        SerialBaseline,
        "!has(self.waived) || (!self.measure && (!has(self.curve) || size(self.curve) == 0))",
        "waived is given with measure or curve: remove waived, or what gives the baseline",
        "baseline.SerialBaseline._waived_stands_alone",
        ".waived",
    ),
    _with_curve("source"),
    _with_curve("hardware"),
)
