"""Who scores a run by a rubric, and how a run ends whose evaluator, or its proxy, orders answers otherwise
than what it was compared with. Pure."""

from __future__ import annotations

from combee.algo.calibration import Calibration
from combee.api.evaluation import amount
from combee.api.run import RunSpec
from combee.plan.state import RunState
from combee.plan.types import IterationPlan, Outcome, StepSummary

CODE, PROXY_CODE = "EvaluatorNotCalibrated", "ProxyNotCalibrated"
_GROW = "give more rows of heldOut, half of which are compared"


def is_refuted(state: RunState) -> bool:
    """Return whether the run's evaluator, or its proxy, was compared and shown to order answers otherwise."""
    return any(one is not None and one.verdict == "NotCalibrated" for one in (state.calibration, state.proxy))


def code_of(state: RunState) -> str:
    """Return the error's code of a run that ended since one of them ``is_refuted``; empty where none is."""
    if not is_refuted(state):
        return ""
    return CODE if state.proxy is None else PROXY_CODE


def refusal(state: RunState, summary: StepSummary) -> Outcome:
    """Return how a run ends whose evaluator, or its proxy, ``is_refuted``. ``summary``: that of profile."""
    if state.proxy is not None:
        sentence = f"{PROXY_CODE}: the proxy does not order answers as the evaluator does: {state.proxy}"
        return Outcome("Failed", f"{sentence}. Use another model or a higher ceiling; nothing was learned")
    against = "the referee's scores" if "referee" in summary.usage else "people's labels"
    sentence = f"{CODE}: the evaluator does not order answers as {against} do: {state.calibration}"
    return Outcome("Failed", f"{sentence}. Use another model or clearer criteria; nothing was learned")


def misfit(state: RunState, plan: IterationPlan) -> Outcome:
    """Return how a run ends that is given a plan of a run which another model scored."""
    return Outcome(
        "Failed",
        f"the given plan of iteration {plan.iteration + 1} is scored by the {plan.scored_by}, and the start "
        f"of this run by the {state.scored_by}: their scores are not compared; run it without --plans",
    )


def over_ceiling(spec: RunSpec, cost: float) -> bool:
    """Return whether a verdict of the evaluator takes more than its ceiling."""
    evaluator = spec.models.evaluator
    return evaluator is not None and evaluator.ceiling is not None and cost > evaluator.ceiling.most


def who_scores(spec: RunSpec, cost: float | None, compared: Calibration | None) -> str:
    """Return in words who scores and why; empty without a ceiling, and before a verdict's cost is known."""
    evaluator = spec.models.evaluator
    if evaluator is None or evaluator.ceiling is None or cost is None:
        return ""
    takes, most = f"a verdict takes {amount(spec, cost)}", amount(spec, evaluator.ceiling.most)
    if compared is None:
        return f"{takes}, within the ceiling of {most}: the evaluator scores, and the proxy is not asked"
    refuted = compared.verdict == "NotCalibrated"
    then = "the proxy may not score" if refuted else "the proxy scores map, replays and select"
    over = f"{takes}, over the ceiling of {most}: {then}"
    return f"{over}. Compared with the evaluator: {compared.words(_GROW)}"
