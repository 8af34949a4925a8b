"""The Formula task: its verdicts, its feedback, its registry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import DataError, ManifestError
from combee.records import Example
from combee.tasks.formula import MAX_ANSWER, FormulaTask
from combee.tasks.protocol import Task
from combee.tasks.registry import task_for

TASK: Task = FormulaTask()


def wanting(target: str) -> Example:
    return Example("1", "q", target, "d")


FEEDBACK = [
    ("15.004", "15.0", True, "Right: expected 15.0, got 15.004."),
    ("$15.00", "15.0", True, "Right: expected 15.0, got 15."),
    ("15%", "0.15", True, "Right: expected 0.15, got 15%."),
    ("16", "15.0", False, "Expected 15.0, got 16."),
    ("0.15", "15.0", False, "Expected 15.0, got 0.15. It is too small by a factor of 100."),
    ("1500", "1500000.0", False, "Expected 1500000.0, got 1500. It is too small by a factor of 1,000."),
    ("8", "0.08", False, "Expected 0.08, got 8. It is too large by a factor of 100."),
    ("-15", "15.0", False, "Expected 15.0, got -15. Only the sign is wrong."),
    ("I cannot tell", "15.0", False, "Expected 15.0; the answer holds no number."),
    ("", "15.0", False, "Expected 15.0; the answer holds no number."),
    ("5", "0.0", False, "Expected 0.0, got 5."),
    ("1", "oops", False, "The target of this example is not a number."),
]


@pytest.mark.parametrize(("answer", "target", "correct", "feedback"), FEEDBACK)
def test_verdicts(answer: str, target: str, correct: bool, feedback: str) -> None:
    score = TASK.score(answer, wanting(target))
    assert (score.correct, score.value, score.feedback) == (correct, float(correct), feedback)


def test_parse_answer_has_one_spelling() -> None:
    texts = ["1500", "$1,500.00", "The answer is **1,500**", "1.5e3", "1.5 thousand"]
    assert {TASK.parse_answer(text) for text in texts} == {"1500"}
    assert TASK.parse_answer("15 %") == "15%"
    assert TASK.parse_answer("no\n idea ") == "no idea"
    assert len(TASK.parse_answer("x" * 1000)) == MAX_ANSWER


@given(st.text(max_size=200), st.text(max_size=20))
def test_parsing_is_idempotent_and_scoring_never_raises(text: str, target: str) -> None:
    answer = TASK.parse_answer(text)
    assert TASK.parse_answer(answer) == answer
    assert TASK.score(text, wanting(target)).correct == TASK.score(answer, wanting(target)).correct


def test_a_target_that_is_no_number_is_refused_by_line() -> None:
    with pytest.raises(DataError, match=r"t\.jsonl:1: target is not a number"):
        TASK.read_rows([b'{"context": "q", "target": "many"}'], "t.jsonl")


def test_the_question_is_given_verbatim() -> None:
    assert TASK.model_input(Example("1", " q \n", "1", "d")) == " q \n"


def test_the_registry() -> None:
    for available in ("Formula", "FiNER", "Traces"):
        assert task_for(available).name == available
    with pytest.raises(ManifestError, match=r"spec\.task\.type: unknown task type 'Fomula'"):
        task_for("Fomula")
