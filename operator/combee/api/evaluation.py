"""Who may score the answers of a run by a rubric: no model that would judge its own work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combee.api.common import refuse

if TYPE_CHECKING:
    from combee.api.run import RunSpec


def check(spec: RunSpec) -> None:
    """Raise where a rubric has no evaluator, or one that is the proposer without a reason, or a referee that
    is the evaluator."""
    evaluator = spec.models.evaluator
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


def _same_model(spec: RunSpec, role: str, other: str) -> bool:
    """Return whether two roles have one model, as far as the manifest says."""
    one, two = (spec.roles()[name].engine_ref for name in (role, other))
    if one is not None and two is not None and one.name == two.name:
        return True
    return spec.model_name(role) == spec.model_name(other) != ""
