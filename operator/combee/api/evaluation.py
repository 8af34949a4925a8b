"""Who may score the answers of a run by a rubric: no model that would judge its own work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combee.api.common import refuse

if TYPE_CHECKING:
    from combee.api.run import RunSpec


def check(spec: RunSpec) -> None:
    """Raise where a rubric has no evaluator, or one that is the proposer without a reason, or a referee or a
    proxy that is the evaluator; and where a ceiling has no proxy, or a proxy no ceiling."""
    evaluator = spec.models.evaluator
    _ceiling_has_proxy(spec)
    if not spec.task.is_evaluated:
        return
    if evaluator is None:
        raise refuse(
            "metric rubric without models.evaluator", "Add models.evaluator, the model that scores answers."
        )
    same, reason = _same_model(spec, "evaluator", "proposer"), evaluator.same_as_proposer
    if same and reason is None:
        raise refuse(
            "models.evaluator is the proposer's model, which would score what came of its own lessons",
            "Name another model, or say why not: sameAsProposer: <reason>.",
        )
    if reason is not None and not same:
        raise refuse(
            "models.evaluator.sameAsProposer is given, and the models differ", "Remove sameAsProposer."
        )
    if spec.models.referee is not None and _same_model(spec, "referee", "evaluator"):
        raise refuse(
            "models.referee is the evaluator's model, which would agree with itself",
            "Name another model, or remove referee and give rows with labels.",
        )
    if spec.models.proxy is not None:
        _proxy_is_another(spec)


def _ceiling_has_proxy(spec: RunSpec) -> None:
    evaluator, proxy = spec.models.evaluator, spec.models.proxy
    ceiling = evaluator.ceiling if evaluator is not None else None
    if ceiling is not None and proxy is None:
        raise refuse(
            "models.evaluator.ceiling without models.proxy",
            "Add models.proxy, the model that scores where a verdict takes more, or remove ceiling.",
        )
    if proxy is not None and ceiling is None:
        raise refuse(
            "models.proxy without models.evaluator.ceiling",
            "Say from what cost on it scores, ceiling: {tokens: ...} or {money: ...}, or remove proxy.",
        )
    if ceiling is not None and ceiling.money is not None and spec.price_of("evaluator") is None:
        raise refuse(
            "models.evaluator.ceiling.money, and prices say nothing of the evaluator's model",
            "Add it under prices.models, or give the ceiling in tokens.",
        )


def _proxy_is_another(spec: RunSpec) -> None:
    if _same_model(spec, "proxy", "evaluator"):
        raise refuse(
            "models.proxy is the evaluator's model, which would save nothing",
            "Name a smaller model, or remove proxy and ceiling.",
        )
    if _same_model(spec, "proxy", "proposer"):
        raise refuse(
            "models.proxy is the proposer's model, which would score what came of its own lessons",
            "Name another model, or remove proxy and ceiling.",
        )


def sentences(spec: RunSpec) -> tuple[str, ...]:
    """Return what a reader of the scores should know of who gave them; nothing where nothing is unusual."""
    evaluator = spec.models.evaluator
    if not spec.task.is_evaluated or evaluator is None:
        return ()
    reasons = (
        ("answers are scored by the proposer's own model", evaluator.same_as_proposer),
        ("answers that were scored before are scored again", evaluator.score_again),
    )
    return tuple(f"{what}: {reason}" for what, reason in reasons if reason is not None)


def amount(spec: RunSpec, cost: float) -> str:
    """Return what a verdict takes, in words, in the unit of the ceiling: tokens or money."""
    ceiling = spec.models.evaluator.ceiling if spec.models.evaluator is not None else None
    if ceiling is None or ceiling.money is None or spec.prices is None:
        return f"{cost:,.7g} tokens"
    return f"{cost:,.4g} {spec.prices.currency}"


def _same_model(spec: RunSpec, role: str, other: str) -> bool:
    """Return whether two roles have one model, as far as the manifest says."""
    one, two = (spec.roles()[name].engine_ref for name in (role, other))
    if one is not None and two is not None and one.name == two.name:
        return True
    return spec.model_name(role) == spec.model_name(other) != ""
