"""CEL rules of the base method, over all that ``OPTIONS`` lists. Each mirrors a validator."""

from __future__ import annotations

from combee.api.aggregation import Aggregation
from combee.api.common import Rule
from combee.api.method_components import ComponentOptions
from combee.api.methods import OPTIONS, Method
from combee.api.run import RunSpec

_HOW = "self.aggregation"
_TRYING = [name for name, options in OPTIONS.items() if options.tries_out]
_OTHERS = [name for name in OPTIONS if name not in _TRYING]
_OF_COMPONENTS = {name: options for name, options in OPTIONS.items() if issubclass(options, ComponentOptions)}


def _options(kind: str) -> Rule:
    field = kind.lower()
    message = f"{field} goes with type {kind} only: remove it, or set type: {kind}"
    cel = f"self.type == '{kind}' || !has(self.{field})"
    return Rule(Method, cel, message, "methods.Method._options_go_with_type", f".{field}")


def _stated(method: str, field: str) -> str:
    """Return the CEL that says whether a method's options state a field, and the field's own."""
    own = f"self.method.{method.lower()}"
    return f"has({own}) && has({own}.{field})"


def _budget() -> str:
    """Return the CEL of the tokens that a prompt of components may take; one method's options are stated."""
    default = ComponentOptions.model_fields["render_token_budget"].default
    stated = (
        f"{_stated(name, 'renderTokenBudget')} ? self.method.{name.lower()}.renderTokenBudget : "
        for name in _OF_COMPONENTS
    )
    return f"{''.join(stated)}{default}"


def _uncapped() -> str:
    """Return the CEL of the options under which calls have no cap."""
    stated = (
        f"({_stated(name, options.uncapped_by)} && self.method.{name.lower()}.{options.uncapped_by}) || "
        for name, options in _OF_COMPONENTS.items()
        if options.uncapped_by
    )
    return "".join(stated)


METHOD_RULES: tuple[Rule, ...] = (
    *(_options(name) for name in OPTIONS),
    # a package's options with a method of the product's own
    Rule(
        Method,
        f"!(self.type in {list(OPTIONS)}) || !has(self.options)",
        f"options goes with a method that a package adds: with {', '.join(OPTIONS)} write them under its "
        "name",
        "methods.Method._options_go_with_type",
        ".options",
    ),
)
CHOSEN_METHOD_RULES: tuple[Rule, ...] = (
    Rule(
        RunSpec,
        f"self.task.type != 'Traces' || !(self.method.type in {_TRYING})",
        "this method tries out what it learned, and type Traces has no rollouts: set method.type: "
        f"{' or '.join(_OTHERS)}",
        "run.RunSpec._traces_are_reflected_on",
        ".method.type",
    ),
    Rule(
        RunSpec,
        f"!(self.method.type in {_TRYING}) || !has({_HOW}) || !has({_HOW}.verify)"
        f" || {_HOW}.verify == 'Replay'",
        "aggregation.verify with a method that tries out every proposal: remove verify",
        "method_components.ComponentOptions.accept",
        ".aggregation",
    ),
    Rule(
        RunSpec,
        f"!(self.method.type in {list(_OF_COMPONENTS)}) || {_uncapped()}2 * ({_budget()})"
        f" <= (has({_HOW}) && has({_HOW}.maxInputTokens) ? {_HOW}.maxInputTokens"
        f" : {Aggregation.model_fields['max_input_tokens'].default})",
        "renderTokenBudget is over half of aggregation.maxInputTokens: lower it, or raise maxInputTokens",
        "method_components.ComponentOptions._has_room",
        ".aggregation",
    ),
    *(rule for options in OPTIONS.values() for rule in options.rules(RunSpec)),
)
