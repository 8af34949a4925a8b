"""A summary stands for reflections: the aggregator gets all of it, and nothing of it is an item by itself."""

from __future__ import annotations

import pytest
from ace_makers import ACE, playbook, reflection
from hypothesis import given
from hypothesis import strategies as st

from combee.methods.ace.entries import one_line
from combee.methods.ace.prompts import MAX_LESSON_CHARS
from combee.methods.protocol import ParseError

GIVEN = [reflection(1, "Use 15% for ROI."), reflection(2, "Round to 2 places.", correct=True)]


def test_the_prompt_lists_the_reflections_and_asks_for_plain_text() -> None:
    prompt = ACE.summary_prompt(GIVEN)
    assert prompt.schema is None and prompt.max_output_tokens == 1024
    said = prompt.messages[-1].content
    assert "[r-00001] (wrong)" in said and "- lesson: Round to 2 places." in said
    assert "15%" not in prompt.messages[0].content


def test_a_line_is_a_lesson_and_marks_of_a_list_go() -> None:
    text = "```\n- Use 15% for ROI [r-00001].\n2. Round to 2 places.\n\n* Be exact.\n```"
    made = ACE.parse_summary(text, summary_id="s-00001", reflections=GIVEN)
    said = [lesson.text for lesson in made.lessons]
    assert said == ["Use 15% for ROI [r-00001].", "Round to 2 places.", "Be exact."]
    assert (made.id, made.trajectory_id, made.correct) == ("s-00001", "s-00001", False)
    assert ACE.parse_summary("x", summary_id="s", reflections=GIVEN[1:]).correct


@pytest.mark.parametrize("text", ["", " \n\n", "```\n```", "- \n"])
def test_a_summary_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        ACE.parse_summary(text, summary_id="s-00001", reflections=GIVEN)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=2000), min_size=1, max_size=5))
def test_the_aggregator_reads_all_of_it(lines: list[str]) -> None:
    text = "summary " + "\n".join(lines)
    made = ACE.parse_summary(text, summary_id="s-00001", reflections=GIVEN)
    assert all(0 < len(lesson.text) <= MAX_LESSON_CHARS for lesson in made.lessons)
    shown = ACE.leaf_prompt(playbook(ACE.empty()), [made]).messages[-1].content
    assert shown.count("\n- lesson: ") == len(made.lessons)
    for word in one_line(lines[0]).split():
        if word.isalnum() and len(word) < 50:
            assert word in shown
