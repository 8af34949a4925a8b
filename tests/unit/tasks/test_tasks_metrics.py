"""The metrics that a manifest may name: what each gives, for any texts, and how a task scores by one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from combee.api.metric import RIGHT_FROM
from combee.api.parts import Task as TaskSpec
from combee.errors import DataError
from combee.records import Example
from combee.tasks.metrics import exact, numeric, set_f1, token_f1
from combee.tasks.numbers import Tolerance
from combee.tasks.protocol import Task
from combee.tasks.registry import task_of

DATA = {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}}
METRICS = (exact, numeric, token_f1, set_f1)
words = st.lists(st.sampled_from(["net", "gross", "rent", "tax", "fees"]), max_size=6)
numbers = st.decimals(-(10**6), 10**6, places=2)


def spec(**fields: Any) -> TaskSpec:
    return TaskSpec.model_validate({"type": "FiNER", "data": DATA, **fields})


def rows(task: Task, *targets: str) -> list[Example]:
    lines = (f'{{"context": "q{n}", "target": "{target}"}}\n'.encode() for n, target in enumerate(targets))
    return list(task.read_rows(lines, "t.jsonl").examples)


@pytest.mark.parametrize("metric", METRICS)
@given(st.text(max_size=80), st.text(max_size=80))
def test_a_score_is_a_share_and_never_raises(metric: Any, answer: str, target: str) -> None:
    assert 0.0 <= metric(answer, target) <= 1.0


@pytest.mark.parametrize("metric", METRICS)
@given(st.text(max_size=80), st.text(max_size=80))
def test_which_side_is_the_target_does_not_matter(metric: Any, answer: str, target: str) -> None:
    if metric is not numeric:
        assert metric(answer, target) == metric(target, answer)


@pytest.mark.parametrize("metric", (exact, token_f1, set_f1))
@given(st.text(max_size=80))
def test_a_text_is_right_about_itself(metric: Any, text: str) -> None:
    assert metric(text, text) == 1.0


@given(words, words)
def test_token_f1_is_the_harmonic_mean_of_both_shares(answer: list[str], target: list[str]) -> None:
    common = sum(min(answer.count(word), target.count(word)) for word in set(answer))
    if not common:
        assert token_f1(" ".join(answer), " ".join(target)) == float(answer == target == [])
        return
    precision, recall = common / len(answer), common / len(target)
    assert token_f1(" ".join(answer), " ".join(target)) == pytest.approx(
        2 * precision * recall / (precision + recall)
    )


@given(words, words, st.randoms())
def test_set_f1_knows_no_order_no_case_and_no_repeats(
    answer: list[str], target: list[str], luck: Any
) -> None:
    shuffled = [word.upper() for word in answer * 2]
    luck.shuffle(shuffled)
    assert set_f1("; ".join(shuffled), "\n".join(target)) == set_f1(",".join(answer), ",".join(target))


@given(words, words, st.sampled_from(["net", "tax"]))
def test_a_right_item_never_lowers_set_f1(answer: list[str], target: list[str], item: str) -> None:
    target = [*target, item]
    assert set_f1(", ".join([*answer, item]), ", ".join(target)) >= set_f1(
        ", ".join(answer), ", ".join(target)
    )


@given(numbers, numbers, st.decimals(0, 100, places=2))
def test_numeric_is_a_distance_within_the_larger_tolerance(
    answer: Decimal, target: Decimal, absolute: Decimal
) -> None:
    tolerance = Tolerance(absolute, Decimal("0.01"))
    within = abs(answer - target) <= max(absolute, abs(target) / 100)
    assert numeric(str(answer), str(target), tolerance=tolerance) == float(within)


def test_accuracy_is_the_task_as_it_was() -> None:
    assert task_of(spec()) is task_of(spec(metric="accuracy"))
    assert "metric" in spec().dump() and "rightFrom" not in spec().dump()


def test_a_metric_scores_in_the_tasks_place() -> None:
    task = task_of(spec(metric="setF1"))
    (example,) = rows(task, "Revenues,Goodwill,TaxExpense,Rent")
    score = task.score("Goodwill, Revenues, Rent", example)
    assert score.value == pytest.approx(6 / 7) and score.correct and score.value >= RIGHT_FROM
    assert score.feedback.endswith("got Goodwill,Revenues,Rent. setF1 is 0.857.")
    strict = task_of(spec(metric="setF1", rightFrom=0.9))
    assert not strict.score("Goodwill, Revenues, Rent", example).correct
    assert task_of(spec()).score("Goodwill, Revenues, Rent", example).value == 0.0


def test_both_sides_are_put_into_the_tasks_one_spelling() -> None:
    task = task_of(spec(type="Formula", metric="exact"))
    (example,) = rows(task, "1500.0")
    assert task.score("The answer is **$1,500.00**", example).correct


def test_a_stated_tolerance_is_what_counts() -> None:
    wide = task_of(spec(type="Formula", metric="numeric", tolerance={"absolute": 1, "relative": 0}))
    (example,) = rows(wide, "15")
    assert wide.score("16", example).correct and not wide.score("16.01", example).correct
    assert not task_of(spec(type="Formula")).score("16", example).correct


def test_a_target_that_a_metric_cannot_score_names_its_row() -> None:
    with pytest.raises(DataError, match=r"t\.jsonl: the target of row 1 is not a number, and metric numeric"):
        rows(task_of(spec(metric="numeric")), "Revenues")


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"metric": "f2"}, "Input should be 'accuracy'"),
        ({"metric": "exact", "tolerance": {}}, "tolerance is given with metric exact"),
        ({"rightFrom": 0.5}, "rightFrom is given with metric accuracy"),
        ({"metric": "setF1", "rightFrom": 0}, "greater than 0"),
        (
            {"type": "Custom", "custom": {"adapter": {"factory": "m:f"}}, "metric": "exact"},
            "what rolls out gives the score itself",
        ),
        (
            {"type": "Traces", "data": {"train": DATA["train"]}, "metric": "exact"},
            "what rolls out gives the score itself",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        spec(**fields)
