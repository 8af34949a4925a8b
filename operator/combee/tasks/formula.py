"""Formula: numeric questions, each with a named financial formula; the target is a number.

Data: https://github.com/ace-agent/ace, finance/data (Apache-2.0); see examples/data/formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from combee.records import Example, Score
from combee.tasks.numbers import TOLERANCE, Number, Tolerance, close, parse_number
from combee.tasks.protocol import ContextTask

MAX_ANSWER = 200
"""most characters kept of an answer without a number."""


@dataclass(frozen=True, slots=True)
class FormulaTask(ContextTask):
    """Rows ``{"context", "target"}``; an answer is right when it is close to the target."""

    tolerance: Tolerance = TOLERANCE
    name: str = "Formula"
    instructions: str = (
        "You answer questions about finance with a number. Each question names a formula and explains its "
        "terms. Read the question exactly, apply the formula as the question words it, and round only at the "
        "end, to two decimals."
    )
    answer_schema_description: str = "The final number, with two decimals, without words or explanations."

    def unfit_target(self, target: str) -> str | None:
        """Return what is wrong with a target that is not a number."""
        return None if parse_number(target) is not None else "is not a number"

    def parse_answer(self, text: str) -> str:
        """Return the answer's number, ``"The answer is **$1,500**"`` -> ``"1500"``, or else the text, cut."""
        number = parse_number(text)
        return str(number) if number is not None else " ".join(text.split())[:MAX_ANSWER]

    def score(self, answer: str, example: Example) -> Score:
        """Return 1 or 0; the feedback states the target, and names an error of scale or sign."""
        answered, expected_number = parse_number(answer), parse_number(example.target)
        if expected_number is None:
            return Score(0.0, False, "The target of this example is not a number.")
        expected = f"Expected {example.target}"
        if answered is None:
            return Score(0.0, False, f"{expected}; the answer holds no number.")
        if close(answered, expected_number, tolerance=self.tolerance):
            return Score(1.0, True, f"Right: {expected.lower()}, got {answered}.")
        return Score(0.0, False, f"{expected}, got {answered}.{self._scale_error(answered, expected_number)}")

    def _scale_error(self, answered: Number, expected: Number) -> str:
        if expected.value == 0:
            return ""
        if close(Number(-answered.value), expected, tolerance=self.tolerance):
            return " Only the sign is wrong."
        for power in (2, -2, 3, -3, 6, -6, 9, -9):
            if close(Number(answered.value.scaleb(power)), expected, tolerance=self.tolerance):
                factor = Decimal(10) ** abs(power)
                return f" It is too {'small' if power > 0 else 'large'} by a factor of {factor:,}."
        return ""
