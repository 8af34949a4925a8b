"""Which examples an entry is about, judged by the words of its condition."""

from __future__ import annotations

import pytest

from combee.methods.ace.matching import Readers

QUESTIONS = {
    "1": "Use the formula Bond Price to answer the question.",
    "2": "Use the formula Bond Price to answer this question, too.",
    "3": "Use the formula Share Price to answer the question.",
    "4": "Use the formula Current Ratio to answer the question.",
    "5": "Use the formula Quick Ratio to answer the question.",
}


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [
        ("When a question uses Bond Price, discount every coupon.", {"1", "2"}),
        ("When a question uses Quick Ratio, leave inventory out.", {"5"}),
        ("When a question uses a formula, state it.", set()),
        ("Quick Ratio: leave inventory out", {"5"}),
        ("When a lease ends, stop.", set()),
        ("", set()),
    ],
    ids=["two words", "the rare word counts most", "what all have", "no condition", "nobody's", "empty"],
)
def test_an_entry_is_about_those_that_hold_most_of_the_rare_words_of_its_condition(
    entry: str, wanted: set[str]
) -> None:
    assert Readers(QUESTIONS).of(entry) == wanted


def test_without_questions_nothing_is_read() -> None:
    assert Readers({}).of("When a question uses Bond Price, discount.") == frozenset()
