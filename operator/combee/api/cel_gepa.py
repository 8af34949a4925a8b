"""CEL rules of GEPA's options: what ``method_gepa`` refuses, as the API server can see it."""

from __future__ import annotations

from combee.api.aggregation import Aggregation
from combee.api.cel import Rule
from combee.api.method_gepa import GepaOptions
from combee.api.run import RunSpec

_DEFAULT = "!has(self.aggregation)"
_OWN = (
    "(!has(self.aggregation.strategy) || self.aggregation.strategy == 'ParallelScan')"
    " && (!has(self.aggregation.merge) || self.aggregation.merge == 'Structured')"
    " && (!has(self.aggregation.redundancy) || !has(self.aggregation.redundancy.mode)"
    " || self.aggregation.redundancy.mode != 'Retransmit')"
)
"""What gepa's own aggregation leaves to be said."""
_BUDGET = GepaOptions.model_fields["render_token_budget"].default
_CAP = Aggregation.model_fields["max_input_tokens"].default

RULES: tuple[Rule, ...] = (
    Rule(
        RunSpec,
        f"self.method.type != 'GEPA' || {_DEFAULT} || !has(self.aggregation.verify) || self.aggregation.verify == 'Replay'",
        "aggregation.verify with method GEPA, which tries out every proposal: remove verify",
        "method_gepa.GepaOptions._tries_out",
        ".aggregation",
    ),
    Rule(
        RunSpec,
        "!has(self.method.gepa) || !has(self.method.gepa.paperCompat) || !self.method.gepa.paperCompat"
        f" || {_DEFAULT} || ({_OWN})",
        "gepa.paperCompat with a strategy, merge or redundancy that is not gepa's: remove strategy, merge and "
        "redundancy.mode, or paperCompat",
        "method_gepa.GepaOptions._aggregates",
        ".aggregation",
    ),
    Rule(
        RunSpec,
        "self.method.type != 'GEPA' || (has(self.method.gepa) && has(self.method.gepa.paperCompat)"
        " && self.method.gepa.paperCompat) || 2 * (has(self.method.gepa) && has(self.method.gepa.renderTokenBudget)"
        f" ? self.method.gepa.renderTokenBudget : {_BUDGET}) <= (has(self.aggregation)"
        f" && has(self.aggregation.maxInputTokens) ? self.aggregation.maxInputTokens : {_CAP})",
        "gepa.renderTokenBudget is over half of aggregation.maxInputTokens: lower it, or raise maxInputTokens",
        "method_gepa.GepaOptions._has_room",
        ".aggregation",
    ),
    Rule(
        RunSpec,
        "!has(self.method.gepa) || !has(self.method.gepa.frontier) || self.method.gepa.frontier == 'Instance'"
        " || self.task.type != 'Formula'",
        "gepa.frontier needs a score by objectives, and type Formula has none: remove frontier",
        "method_gepa.GepaOptions.accept",
        ".method.gepa",
    ),
)
