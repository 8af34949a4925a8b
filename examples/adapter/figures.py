"""The Formula rows for the gepa package's own DefaultAdapter: an adapter, as gepa has them, is a task here."""

import re

from gepa.adapters.default_adapter.default_adapter import DefaultAdapter, EvaluationResult

FIGURE = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def right_figure(data, response):
    """Right is an answer whose last figure is the expected one; the feedback is what the reflection reads."""
    figures = [figure.replace(",", "") for figure in FIGURE.findall(response)]
    if figures and abs(float(figures[-1]) - float(data["answer"])) < 0.005:
        return EvaluationResult(1.0, "The answer is right.")
    return EvaluationResult(0.0, f"The answer is wrong. Expected: {data['answer']}")


class Figures(DefaultAdapter):
    """``model`` is the run's task model: called with messages, it gives the answer's text."""

    def __init__(self, model):
        super().__init__(model, evaluator=right_figure)

    def evaluate(self, batch, candidate, capture_traces=False):
        rows = [{"input": row["context"], "answer": row["target"], "additional_context": {}} for row in batch]
        return super().evaluate(rows, candidate, capture_traces)
