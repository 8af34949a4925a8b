"""What the simulated model says can be read by a person, found by its anchor, and told apart by its words."""

from __future__ import annotations

import json
import math
from itertools import permutations, product
from typing import Any

import pytest
from sim_fixtures import finer_key, formula_key, model, rows

from combee.algo.text import kept_in
from combee.methods.ace.conflicts import contradictions, paraphrases
from combee.methods.content import injection_reason, leak_corpus, leak_reason
from combee.sim import keyfile, lessons, roles, tags
from combee.sim.model import Model
from combee.sim.rulebook import Rulebook

SIDES = ("right", "wrong")
WORDINGS = range(12)
keys = pytest.mark.parametrize("key", [formula_key(), finer_key()], ids=["formula", "finer"])
Said = dict[str, tuple[str, str]]


def said_by(book: Rulebook, topics: list[str]) -> Said:
    """All wordings of both sides of each rule and of three fillers: text -> (topic, what it says)."""
    texts: Said = {}
    for topic in topics:
        rule = book.rule(topic)
        for side, luck in product(SIDES, WORDINGS):
            texts[lessons.rule_entry(rule.name, rule.phrase(side), luck)] = (topic, side)
        for note, luck in product([lessons.note(topic, index) for index in range(3)], WORDINGS):
            texts[lessons.note_entry(rule.name, note, luck)] = (topic, note)
    return texts


@keys
def test_every_rule_of_the_data_is_stated_in_words(key: dict[str, Any]) -> None:
    book = Model([key]).book
    phrases = [book.rule(topic).phrase(side) for topic in key["topics"] for side in SIDES]
    assert len(set(phrases)) == 2 * len(key["topics"])
    assert all(phrase.count('"') == 2 and "convention" not in phrase for phrase in phrases)


def test_a_formula_says_what_to_do_and_how_to_state_it() -> None:
    served = model()
    rule = served.book.rule("Price-to-Earnings Ratio (P/E Ratio)")
    assert lessons.rule_entry(rule.name, rule.phrase("right"), 1) == (
        "When a question uses Price-to-Earnings Ratio (P/E Ratio), always divide price per share by earnings "
        'per share ("price / EPS") and state two decimals: settle this at the outset, as the slip '
        "starts here."
    )
    assert rule.phrase("wrong").startswith("divide earnings per share by price per share")


@keys
def test_a_text_of_entries_is_told_apart_as_what_they_say(key: dict[str, Any]) -> None:
    """Two sides of a rule, and two fillers on one topic, are neither the same to a merge nor kept by each
    other; the wordings of one are."""
    texts = said_by(Model([key]).book, list(key["topics"]))
    ordered = list(texts)
    groups = [{texts[ordered[index]] for index in group} for group in paraphrases(ordered)]
    assert all(len(group) == 1 for group in groups)
    assert len(groups) == len(set(texts.values()))
    assert contradictions(dict(enumerate(ordered))) == {}  # type: ignore[arg-type]
    for topic in key["topics"]:
        mine = [(text, said) for text, (about, said) in texts.items() if about == topic]
        for (one, its), (other, others) in permutations(mine, 2):
            assert kept_in(one, other) == (its == others), (one, other)


@keys
def test_each_entry_holds_one_lesson_in_plain_text_and_in_json(key: dict[str, Any]) -> None:
    book = Model([key]).book
    for text, (topic, said) in said_by(book, list(key["topics"])).items():
        wanted = (said, topic) if said in SIDES else ("note", said)
        for shown in (text, json.dumps({"lessons": [text]}, ensure_ascii=False), f"- {text}\n- {text[:30]}"):
            ((kind, its, name),) = [(hit.kind, hit.key, hit.name) for hit in book.lessons_in(shown)]
            assert (kind, its, name) == (*wanted, book.rule(topic).name)


@keys
def test_no_entry_orders_leaks_or_names_a_role(key: dict[str, Any]) -> None:
    task = key["task"]
    corpus = leak_corpus([row["context"] for row in rows("train", task)])
    for text in said_by(Model([key]).book, list(key["topics"])):
        assert not leak_reason(text) and not injection_reason(text) and not corpus.repeats(text)
        assert not any(cue.words.search(text) for cue in roles.TABLE)


def test_every_word_of_the_banks_makes_a_note_and_notes_are_hardly_ever_the_same() -> None:
    assert math.prod(map(len, lessons.NOTE_BANKS)) == 13_824_000
    assert all(len(set(bank)) == len(bank) for bank in lessons.NOTE_BANKS)
    for place, bank in enumerate(lessons.NOTE_BANKS):
        for word in bank:
            words = [other[0] for other in lessons.NOTE_BANKS]
            words[place] = word
            note = " ".join(words)
            assert list(lessons.notes_in(f'X, "{note}": y')) == [(note, 4)]
    assert len({lessons.note(index) for index in range(2_000)}) > 1_995


@pytest.mark.parametrize(
    "text",
    [
        "compare everything quarterly against totals",
        "quarterly compare margins against totals",
        "compare quarterly margins with totals",
        "compare quarterly margins against totalsum",
        "recompare quarterly margins against totals",
        "margins against totals",
        "",
    ],
)
def test_what_only_looks_like_a_note_is_none(text: str) -> None:
    assert list(lessons.notes_in(text)) == [] and not lessons.is_note(text)
    assert lessons.is_note("compare quarterly margins against totals")


def test_a_statement_that_was_reworded_is_no_lesson() -> None:
    book = model().book
    text = lessons.rule_entry("Current Ratio", book.rule("Current Ratio").phrase("right"), 0)
    assert [hit.kind for hit in book.lessons_in(text)] == ["right"]
    for reworded in (text.replace("divide current", "split current"), text.replace('"', "'"), text.upper()):
        assert book.lessons_in(reworded) == []


def test_topics_without_a_rule_in_words_and_older_key_files_get_conventions() -> None:
    row = json.dumps({"context": 'Use formula My Own to answer. Question: "How much?"', "target": "1.0"})
    own = keyfile.build("formula", [("rows", row.encode())])
    assert own["rules"] == {}
    older = {name: value for name, value in formula_key().items() if name != "rules"}
    for key in (own, older):
        book = Model([key]).book
        for topic in key["topics"]:
            entry = lessons.rule_entry(topic, book.rule(topic).phrase("right"))
            assert "work under convention " in entry
            assert [(hit.kind, hit.key) for hit in book.lessons_in(entry)] == [("right", topic)]


def test_two_topics_that_say_the_same_are_still_told_apart() -> None:
    same = {"right": 'divide "a / b"', "wrong": 'divide "b / a"'}
    book = Rulebook({"formula": {"One": 1, "Two": 1}}, 0, (), {"One": same, "Two": same})
    assert book.rule("One").phrase("right") == same["right"]
    assert book.rule("Two").phrase("right").startswith("work under convention ")


def test_a_tag_is_set_against_the_one_that_it_is_confused_with() -> None:
    made = tags.rules(["DebtFace", "Goodwill"], {"DebtFace": "DebtFair", "Goodwill": "Revenues"})
    assert made["DebtFace"] == {
        "name": "the debt face",
        "right": 'answer with "DebtFace" rather than the fair',
        "wrong": 'answer with "DebtFair" in place of the face',
    }
    assert made["Goodwill"]["right"] == 'answer with "tag Goodwill" itself'
