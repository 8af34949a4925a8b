"""A start at 0.000 or 1.000 says what is probably wrong, and shows three questions on a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.records import Example, Message, Prompt, Trajectory
from combee.work.start import Question, cause, page

Answered = tuple[Example, Trajectory]


def answered(
    answer: str,
    *,
    target: str = "green",
    question: str = "Which colour?",
    score: float = 0.0,
    error: str = "",
) -> Answered:
    example = Example(f"{target}-{question}-{answer}", question, target, "d")
    trajectory = Trajectory(
        "t", example.id, question, "", answer, score, score == 1.0, f"Expected {target}.", error=error
    )
    return example, trajectory


@pytest.mark.parametrize(
    ("all_of_them", "said"),
    [
        ([answered("", error="Cut"), answered("", error="Cut"), answered("red")], "Raise sampling.maxTokens"),
        ([answered("", error="Parse")] * 3, "structured outputs"),
        ([answered("", error="Transient")] * 3, "endpoint is healthy"),
        ([answered("", error="Rollout")] * 3, "most rollouts failed (Rollout)"),
        ([answered("it is green, I think"), answered("Green."), answered("red")], "what form an answer has"),
        ([answered("yes", question=q) for q in "abc"], "one and the same answer"),
        ([answered("red"), answered("blue"), answered("")], "lacks what the questions ask for"),
        ([answered("green", score=1.0)] * 2, "nothing left to learn"),
        ([answered("green", question="Is green green?", score=1.0)] * 2, "hold their own answers"),
    ],
)
def test_what_most_of_them_share_is_taken_for_the_cause(all_of_them: list[Answered], said: str) -> None:
    assert said in cause(all_of_them)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_a_start_between_0_and_1_is_nothing_to_speak_of(scores: list[float]) -> None:
    why = cause([answered("red", score=score) for score in scores])
    assert bool(why) == (set(scores) in ({0.0}, {1.0}))


def test_nothing_that_was_scored_is_no_cause() -> None:
    assert cause([]) == ""


def test_the_page_shows_prompt_reply_reading_target_and_score_and_nothing_in_them_ends_its_block() -> None:
    example, trajectory = answered("red")
    prompt = Prompt((Message("system", "Be brief."), Message("user", "Which ```colour```?")))
    text = page("Because", [Question(example, prompt, '{"answer": "red"}', trajectory)])
    for part in (
        "# The start\n\nBecause.",
        "Be brief.",
        '{"answer": "red"}',
        "green",
        "0.000. Expected green.",
    ):
        assert part in text
    assert "````\nWhich ```colour```?\n````" in text
