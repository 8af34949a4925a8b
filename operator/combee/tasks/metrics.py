"""Metrics that compare an answer with its row's target, and a task whose answers one of them scores. Pure.

Both sides are first put into the task's one spelling (``parse_answer``). A metric never raises on an answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from combee.api.metric import OWN, RUBRIC, Metric
from combee.api.metric import Tolerance as ToleranceSpec
from combee.api.parts import Task as TaskSpec
from combee.errors import DataError
from combee.records import Example, Score
from combee.tasks.dataset import Dataset
from combee.tasks.numbers import TOLERANCE, Tolerance, close, parse_number
from combee.tasks.protocol import Task

MAX_TEXT = 20_000
"""most characters compared of an answer or a target, counted from its end."""
MAX_SHOWN = 500
"""most characters of either that a feedback quotes."""
_WORD = re.compile(r"\w+")
_BETWEEN_ITEMS = re.compile(r"[,;\n]")

Compare = Callable[[str, str], float]
"""(answer, target) -> score in [0, 1]."""


def exact(answer: str, target: str) -> float:
    """Return 1 where the texts are equal but for blanks, else 0.

    >>> exact("net  30 days\\n", "net 30 days"), exact("Net 30 days", "net 30 days")
    (1.0, 0.0)
    """
    return float(answer.split() == target.split())


def numeric(answer: str, target: str, *, tolerance: Tolerance = TOLERANCE) -> float:
    """Return 1 where both state numbers that are within the tolerance, else 0. ``numbers.parse_number`` says
    which number a text states.

    >>> numeric("about $1,500", "1500.004"), numeric("none", "0")
    (1.0, 0.0)
    """
    answered, expected = parse_number(answer), parse_number(target)
    if answered is None or expected is None:
        return 0.0
    return float(close(answered, expected, tolerance=tolerance))


def token_f1(answer: str, target: str) -> float:
    """Return the F1 of the words of both, each as often as it occurs and without regard to case: the harmonic
    mean of the share of the answer's words that the target has, and of the target's that the answer has.

    Two texts without words are equal. Source: Rajpurkar et al. 2016 (SQuAD), with articles.

    >>> token_f1("the refund takes five days", "five days")
    0.5714285714285714
    """
    return _f1(Counter(_words(answer)), Counter(_words(target)))


def set_f1(answer: str, target: str) -> float:
    """Return the F1 of the items of both, which commas, semicolons or line ends separate; neither their order
    nor their case counts, and an item given twice counts once.

    >>> set_f1("Fees, rent", "rent; fees; tax")
    0.8
    """
    return _f1(Counter(set(_items(answer))), Counter(set(_items(target))))


def _words(text: str) -> list[str]:
    return _WORD.findall(text[-MAX_TEXT:].casefold())


def _items(text: str) -> list[str]:
    pieces = (" ".join(piece.split()) for piece in _BETWEEN_ITEMS.split(text[-MAX_TEXT:].casefold()))
    return [piece for piece in pieces if piece]


def _f1(answered: Counter[str], expected: Counter[str]) -> float:
    given, wanted = answered.total(), expected.total()
    if not given or not wanted:
        return float(given == wanted)
    return 2 * (answered & expected).total() / (given + wanted)


def _no_number(target: str) -> str:
    return "" if parse_number(target) is not None else "is not a number"


def _no_word(target: str) -> str:
    return "" if _words(target) else "has no word"


def _no_item(target: str) -> str:
    return "" if _items(target) else "has no item"


@dataclass(frozen=True, slots=True)
class _Row:
    """A metric: how it compares, and what is wrong with a target that it cannot score (empty: nothing)."""

    compare: Compare
    unfit: Callable[[str], str]


_ROWS: Mapping[Metric, _Row] = {
    "exact": _Row(exact, lambda target: "" if target.strip() else "is empty"),
    "numeric": _Row(numeric, _no_number),
    "tokenF1": _Row(token_f1, _no_word),
    "setF1": _Row(set_f1, _no_item),
}


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """A task whose answers are scored by a metric instead of by itself."""

    task: Task
    metric: Metric
    compare: Compare
    right_from: float = 1.0
    """The score from which an answer counts as right."""

    @property
    def name(self) -> str:
        """The task's."""
        return self.task.name

    @property
    def instructions(self) -> str:
        """The task's."""
        return self.task.instructions

    @property
    def answer_schema_description(self) -> str:
        """The task's."""
        return self.task.answer_schema_description

    def read_rows(self, data: Iterable[bytes], where: str) -> Dataset:
        """Return the task's rows. Raises DataError for a row whose target the metric cannot score."""
        rows = self.task.read_rows(data, where)
        for example in rows.examples:
            if unfit := _ROWS[self.metric].unfit(example.target):
                raise DataError(
                    f"the target of row {example.id} {unfit}, and metric {self.metric} needs one",
                    where=where,
                    fix="Mend the target, or set task.metric to another one",
                )
        return rows

    def model_input(self, example: Example) -> str:
        """Return the task's."""
        return self.task.model_input(example)

    def parse_answer(self, text: str) -> str:
        """Return the task's."""
        return self.task.parse_answer(text)

    def score(self, answer: str, example: Example) -> Score:
        """Return the metric's score; the feedback states the target."""
        answered = self.task.parse_answer(answer)
        value = self.compare(answered, self.task.parse_answer(example.target))
        correct = value >= self.right_from
        verdict = f"{'Right: e' if correct else 'E'}xpected {_shown(example.target)}, got {_shown(answered)}."
        share = "" if self.right_from == 1.0 and value in (0.0, 1.0) else f" {self.metric} is {value:.3f}."
        return Score(value, correct, f"{verdict}{share}")


def _shown(text: str) -> str:
    return (text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...") or "nothing"


def measured(task: Task, spec: TaskSpec) -> Task:
    """Return the task as the manifest's metric has it: unchanged where it scores itself, or a model scores
    its answers."""
    if spec.metric in (OWN, RUBRIC):
        return task
    compare = _ROWS[spec.metric].compare
    if spec.metric == "numeric" and spec.tolerance is not None:
        tolerance = _tolerance(spec.tolerance)

        def compare(answer: str, target: str) -> float:
            return numeric(answer, target, tolerance=tolerance)

    return MeasuredTask(task, spec.metric, compare, spec.right_score)


def _tolerance(spec: ToleranceSpec) -> Tolerance:
    # By way of text: 0.005 is meant, not the nearest binary fraction.
    return Tolerance(Decimal(str(spec.absolute)), Decimal(str(spec.relative)))
