"""What a call sees of a trajectory: the question however long the input, and shared text once."""

from __future__ import annotations

from dataclasses import replace

from gepa_makers import GEPA, answer
from hypothesis import given
from hypothesis import strategies as st

from combee.methods.components.prompts import MAX_GIVEN_CHARS, SHARED_CHARS, record_text, told_once

OPTIONS = "Choose from these tags: " + ", ".join(f"TagNumber{k}" for k in range(60)) + ". Answer in order. "
TEXT = st.text(st.characters(categories=["L", "N"], include_characters=" .,:|"), max_size=80)


def record(given: str) -> str:
    return record_text(replace(answer("1", 0.0), input=given))


def test_of_a_long_input_the_end_is_kept() -> None:
    said = record("Begin. " + "x " * MAX_GIVEN_CHARS + "Which tag has 34.6?")
    assert said.startswith("Given: Begin. ") and "Which tag has 34.6? | Answered: worked 41 |" in said
    assert len(said) < MAX_GIVEN_CHARS + 200
    whole = "y" * MAX_GIVEN_CHARS
    assert f"Given: {whole} |" in record(whole)


def test_what_all_inputs_begin_with_is_told_once_and_each_question_stays_whole() -> None:
    alike, texts = told_once([record(f"{OPTIONS}\n1. Which tag has {k}.5?") for k in range(3)])
    assert len(alike) > SHARED_CHARS and alike.endswith("Answer in order.")
    assert [text.partition(" |")[0] for text in texts] == [
        f"Given: ... 1. Which tag has {k}.5?" for k in range(3)
    ]


def test_one_record_or_a_short_beginning_stays_as_it_is() -> None:
    for texts in ([record(OPTIONS)], [record(f"Add 1 to {k}. Round it.") for k in range(3)], []):
        assert told_once(texts) == ("", texts)


@given(st.lists(TEXT, min_size=2, max_size=5), st.booleans())
def test_nothing_is_lost_by_telling_once(ends: list[str], shared: bool) -> None:
    texts = [record((OPTIONS if shared else "") + end) for end in ends]
    alike, rest = told_once(texts)
    if alike:
        told = [text.replace("Given: ... ", f"Given: {alike} ", 1) for text in rest]
        assert [text.split() for text in told] == [text.split() for text in texts]
    else:
        assert rest == texts


def test_a_call_holds_the_shared_beginning_once() -> None:
    (shown,) = GEPA.working(GEPA.initial("Answer."), budget_tokens=100, verify="Off")
    records = [
        GEPA.parse_reflection(
            "", reflection_id=f"r-{k:05d}", trajectory=replace(answer(str(k), 0.0), input=f"{OPTIONS}1. {k}?")
        )
        for k in range(4)
    ]
    said = GEPA.leaf_prompt(shown, records).messages[0].content
    assert said.count("TagNumber59") == 1 and said.count("\n[r-0000") == 4
    assert GEPA.leaf_prompt(shown, records[:1]).messages[0].content.count("TagNumber59") == 1
