"""How a run ends whose evaluator orders answers otherwise than people or a referee do. Pure."""

from __future__ import annotations

from combee.plan.state import RunState
from combee.plan.types import Outcome, StepSummary

CODE = "EvaluatorNotCalibrated"


def is_refuted(state: RunState) -> bool:
    """Return whether the run's evaluator was compared and shown to order answers otherwise."""
    return state.calibration is not None and state.calibration.verdict == "NotCalibrated"


def refusal(state: RunState, summary: StepSummary) -> Outcome:
    """Return how a run ends whose evaluator ``is_refuted``. ``summary``: that of profile."""
    against = "the referee's scores" if "referee" in summary.usage else "people's labels"
    sentence = f"{CODE}: the evaluator does not order answers as {against} do: {state.calibration}"
    return Outcome("Failed", f"{sentence}. Use another model or clearer criteria; nothing was learned")
