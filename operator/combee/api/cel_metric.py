"""CEL rules of how answers are scored, and by whom. Each mirrors a validator."""

from __future__ import annotations

from combee.api.common import Model, Rule
from combee.api.metric import FRACTIONS, OWN, RUBRIC, PassK
from combee.api.parts import Task
from combee.api.run import RunSpec


def goes_with(model: type[Model], field: str, on: str, word: str, mirrors: str) -> Rule:
    """Allow a field only where the field ``on`` is a word."""
    message = f"{field} goes with {on} {word} only: remove {field}, or set {on}: {word}"
    return Rule(model, f"self.{on} == '{word}' || !has(self.{field})", message, mirrors, f".{field}")


def _scores_rows(field: str) -> Rule:
    """Refuse a field of scores by rows with type Traces."""
    return Rule(
        Task,
        f"self.type != 'Traces' || !has(self.{field})",
        f"{field} is given with type Traces, which scores nothing by rows: remove {field}",
        "parts.Task._rows_are_scored",
        f".{field}",
    )


_CEILING = "has(self.models.evaluator) && has(self.models.evaluator.ceiling)"


def _another(role: str, other: str, why: str, unless: str = "") -> Rule:
    """Refuse a role of a rubric the model of another one, where both name an engine or both an address."""
    one, two = f"self.models.{role}", f"self.models.{other}"
    engines = f"has({one}.engineRef) && has({two}.engineRef) && {one}.engineRef.name == {two}.engineRef.name"
    models = f"has({one}.endpoint) && has({two}.endpoint) && {one}.endpoint.model == {two}.endpoint.model"
    absent = " || ".join(f"!has({name})" for name in (one, two) if not name.endswith("proposer"))
    return Rule(
        RunSpec,
        f"self.task.metric != '{RUBRIC}' || {absent}{unless} || !(({engines}) || ({models}))",
        f"models.{role} is the {other}'s model, {why}",
        "run.RunSpec._evaluator_is_another",
        f".models.{role}",
    )


METRIC_RULES: tuple[Rule, ...] = (
    Rule(
        Task,
        f"self.metric == '{OWN}' || (self.type != 'Traces' && (!has(self.custom) || has(self.custom.class)))",
        f"metric is given, and what rolls out gives the score itself: set metric: {OWN}",
        "parts.Task._metric_fits",
        ".metric",
    ),
    Rule(
        Task,
        f"self.type != 'Reply' || self.metric != '{OWN}'",
        f"metric {OWN} with type Reply, whose answers have no score of their own: set metric: {RUBRIC}, or "
        "one that compares with the rows' targets",
        "parts.Task._metric_fits",
        ".metric",
    ),
    Rule(
        Task,
        f"self.metric != '{RUBRIC}' || has(self.rubric)",
        "metric rubric without rubric: add rubric: {criteria: [...]}",
        "parts.Task._metric_fits",
        ".rubric",
    ),
    goes_with(Task, "rubric", "metric", RUBRIC, "parts.Task._metric_fits"),
    _scores_rows("clusterBy"),
    _scores_rows("passK"),
    Rule(
        PassK,
        "self.k <= self.rollouts",
        "rollouts is under k: set rollouts to k or more",
        "metric.PassK._enough_rollouts",
        ".rollouts",
    ),
    goes_with(Task, "tolerance", "metric", "numeric", "parts.Task._metric_fits"),
    Rule(
        Task,
        f"self.metric in {list(FRACTIONS)} || !has(self.rightFrom)",
        f"rightFrom goes with a metric of fractions only: set metric: {' or '.join(FRACTIONS)}, or remove "
        "rightFrom",
        "parts.Task._metric_fits",
        ".rightFrom",
    ),
    Rule(
        RunSpec,
        f"self.task.metric != '{RUBRIC}' || has(self.models.evaluator)",
        "metric rubric without models.evaluator: add models.evaluator, the model that scores answers",
        "run.RunSpec._evaluator_is_another",
        ".models",
    ),
    _another(
        "evaluator",
        "proposer",
        "which would score what came of its own lessons: name another model, or "
        "say why not, sameAsProposer: <reason>",
        " || has(self.models.evaluator.sameAsProposer)",
    ),
    _another(
        "referee",
        "evaluator",
        "which would agree with itself: name another model, or remove referee and give rows with labels",
    ),
    _another(
        "proxy",
        "evaluator",
        "which would save nothing: name a smaller model, or remove proxy and ceiling",
    ),
    _another(
        "proxy",
        "proposer",
        "which would score what came of its own lessons: name another model, or remove proxy and ceiling",
    ),
    Rule(
        RunSpec,
        f"!({_CEILING}) || has(self.models.proxy)",
        "models.evaluator.ceiling without models.proxy: add models.proxy, the model that scores where a "
        "verdict takes more, or remove ceiling",
        "run.RunSpec._evaluator_is_another",
        ".models",
    ),
    Rule(
        RunSpec,
        f"!has(self.models.proxy) || ({_CEILING})",
        "models.proxy without models.evaluator.ceiling: say from what cost on it scores, ceiling: {tokens: "
        "...} or {money: ...}, or remove proxy",
        "run.RunSpec._evaluator_is_another",
        ".models.proxy",
    ),
)
