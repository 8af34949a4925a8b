"""All CEL rules in one table, and which of them stand where."""

from __future__ import annotations

from combee.api import cel, cel_frozen, cel_models
from combee.api.common import Model, Rule

RULES: tuple[Rule, ...] = (*cel.NAMES, *cel.TEXTS, *cel_models.RULES, *cel_frozen.RULES)


def rules_for(model: type[Model] | None, text: str | None = None) -> list[Rule]:
    """Return the rules at a model (its bases' too) or at a type of text, in the table's order."""
    places: tuple[object, ...] = (*(model.__mro__ if model is not None else ()), text)
    return [rule for rule in RULES if rule.at in places]
