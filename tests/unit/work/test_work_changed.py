"""The page of what a playbook changed on gate: questions that came right, and those that went wrong."""

from __future__ import annotations

import pytest

from combee.records import Example, Trajectory
from combee.work.changed import MOST, page


def asked(number: int) -> Example:
    return Example(f"e{number}", f"question {number}?", f"target {number}", "d")


def did(example: Example, answer: str, *, score: float = 0.0, error: str = "") -> Trajectory:
    return Trajectory(
        f"{example.id}@0", example.id, example.input, "", answer, score, score == 1.0, "", error=error
    )


def test_a_question_that_came_right_is_shown_with_both_answers() -> None:
    one, same = asked(1), asked(2)
    text = page(
        [one, same],
        [did(one, "red"), did(same, "blue")],
        [did(one, "green", score=1.0), did(same, "brown")],
    )
    assert "Of 2 questions of gate 1 score higher with the playbook than without it, 0 lower." in text
    assert text.split("## Higher\n\n")[1] == (
        "### e1\n\nQuestion:\n\n```\nquestion 1?\n```\n\nTarget:\n\n```\ntarget 1\n```\n\n"
        "Without the playbook, score 0.000:\n\n```\nred\n```\n\n"
        "With the playbook, score 1.000:\n\n```\ngreen\n```\n"
    )
    assert "e2" not in text and "## Lower" not in text


def test_a_question_that_went_wrong_stands_apart_and_a_lost_answer_says_why() -> None:
    one = asked(1)
    text = page([one], [did(one, "green", score=1.0)], [did(one, "", error="Cut")])
    assert "0 score higher with the playbook than without it, 1 lower" in text
    assert "## Higher" not in text
    assert "nothing (Cut)" in text.split("## Lower")[1]


def test_what_scores_more_of_a_whole_counts_as_higher() -> None:
    one = asked(1)
    assert "1 score higher" in page([one], [did(one, "a", score=0.2)], [did(one, "b", score=0.4)])


@pytest.mark.parametrize("count", [MOST, MOST + 1])
def test_a_page_stays_short_and_counts_all(count: int) -> None:
    examples = [asked(number) for number in range(count)]
    text = page(examples, [did(e, "no") for e in examples], [did(e, "yes", score=1.0) for e in examples])
    assert text.count("\n### ") == MOST
    assert f"{count} score higher" in text


def test_no_text_of_a_row_or_a_model_ends_its_block() -> None:
    one = Example("e1", "```\n## Lower", "t", "d")
    text = page([one], [did(one, "```\nno")], [did(one, "yes", score=1.0)])
    assert "````\n```\n## Lower\n````" in text and "````\n```\nno\n````" in text
