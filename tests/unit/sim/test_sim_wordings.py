"""Lessons in words alone: varied, found again, told apart by the model, without a name to tell them by."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import product

import pytest
from sim_fixtures import finer_model, model, rows

from combee.algo.text import anchors
from combee.methods.content import injection_reason, leak_corpus, leak_reason
from combee.sim import lessons, roles, wordings
from combee.sim.model import Model
from combee.sim.params import Law

SIDES = ("right", "wrong")
LUCK = range(24)
ALL_IN_WORDS = dataclasses.replace(Law(), wording_share=1.0)


def served() -> Model:
    return model(law=ALL_IN_WORDS)


def test_every_wording_of_every_rule_is_found_again_in_plain_text_and_in_json() -> None:
    book = served().book
    for topic, side in product(book._topics, SIDES):
        rule = book.rule(topic)
        texts = {book.rule_entry(rule, side, luck) for luck in LUCK}
        assert len(texts) >= 12
        for text in texts:
            quoted = json.dumps({"lessons": [text]}, ensure_ascii=False)
            for shown in (text, quoted, f"- {text}\n- {text[:40]}"):
                ((kind, key),) = [(hit.kind, hit.key) for hit in book.lessons_in(shown)]
                assert (kind, key) == (side, topic), shown


def test_a_lesson_in_words_has_no_anchor_but_its_topic() -> None:
    """Nothing that a caller could take for a name or number, besides those of the topic and of the sums."""
    book = served().book
    texts = [book.rule_entry(book.rule(topic), side, 1) for topic, side in product(book._topics, SIDES)]
    texts += [book.note_entry(topic, lessons.note(topic), 1) for topic in book._topics]
    assert all('"' not in text for text in texts)
    rule = book.rule("Current Ratio")
    wordings_of = [book.rule_entry(rule, side, luck) for side, luck in product(SIDES, LUCK)]
    assert all(not anchors(text).numbers and not anchors(text).identifiers for text in wordings_of)


def test_a_filler_in_words_is_the_note_that_it_was() -> None:
    book = served().book
    for index, luck in product(range(20), range(6)):
        note = lessons.note("filler", index)
        (hit,) = book.lessons_in(book.note_entry("Current Ratio", note, luck))
        assert (hit.kind, hit.key, hit.name) == ("note", note, "Current Ratio")


def test_no_wording_orders_leaks_or_names_a_role() -> None:
    book, corpus = served().book, leak_corpus([row["context"] for row in rows("train")])
    texts = [
        book.rule_entry(book.rule(t), side, luck) for t, side, luck in product(book._topics, SIDES, range(6))
    ]
    texts += [
        book.note_entry(topic, lessons.note(topic), luck) for topic, luck in product(book._topics, LUCK)
    ]
    for text in texts:
        assert not leak_reason(text) and not injection_reason(text) and not corpus.repeats(text)
        assert not any(cue.words.search(text) for cue in roles.TABLE)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_share_is_that_of_the_lessons(share: float) -> None:
    book = model(law=dataclasses.replace(Law(), wording_share=share)).book
    rule = book.rule("Current Ratio")
    texts = [book.rule_entry(rule, "right", luck) for luck in range(400)]
    assert sum('"' not in text for text in texts) / len(texts) == pytest.approx(share, abs=0.07)
    assert {hit.kind for text in texts for hit in book.lessons_in(text)} == {"right"}


def test_a_model_that_states_names_takes_no_wording_for_a_rule() -> None:
    rule = served().book.rule("Current Ratio")
    assert model().book.lessons_in(served().book.rule_entry(rule, "right", 1)) == []


def test_a_tag_is_stated_as_it_is_for_it_is_the_answer() -> None:
    book = finer_model(law=ALL_IN_WORDS).book
    rule = book.rule(book._topics[0])
    assert book.rule_entry(rule, "right", 1) == lessons.rule_entry(rule.name, rule.phrase("right"), 1)


def test_no_alternative_holds_another_so_that_each_wording_turns_back() -> None:
    alternatives = [words for bank in wordings._BANKS for words in bank]
    assert len(set(alternatives)) == len(alternatives)
    assert not [
        (one, other)
        for one, other in product(alternatives, alternatives)
        if one != other and re.search(rf"(?<!\w){re.escape(one)}(?!\w)", other)
    ]
