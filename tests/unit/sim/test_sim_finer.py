"""FiNER in the simulated model: which tag decides a row, what a wrong row says, how long reflections are."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import sim_learner as learner
import sim_public_forms as forms
from sim_fixtures import asker, body, finer_key, finer_model, rows, unknown_topics

from combee.errors import DataError
from combee.sim import keyfile, lessons, tags
from combee.sim.keyfile import Questions
from combee.sim.prompts import tokens
from combee.sim.reflecting import missed, states

EVERY = [*rows("train", "finer"), *rows("heldout", "finer")]


def test_a_row_is_decided_by_one_of_its_own_tags_and_tags_are_asked_as_often_as_they_occur() -> None:
    asked: Counter[str] = Counter()
    for row in EVERY:
        tag, question = tags.row(row["context"], row["target"])
        assert tag in row["target"].split(",")
        assert question.startswith("1. What is best tag") and question.endswith('?"')
        assert tags.row(question, row["target"]) == (tag, question)
        asked[tag] += 1
    occur = Counter(tag for row in EVERY for tag in row["target"].split(","))
    off = sum(abs(asked[tag] / len(EVERY) - occur[tag] / len(EVERY) / 4) for tag in occur) / 2
    assert off < 0.15
    assert finer_key()["topics"] == dict(sorted(asked.items()))


def test_each_position_decides_about_as_often() -> None:
    made = [tags.row(f"1. What is {n}?", "A,B,C,D")[0] for n in range(2_000)]
    assert set(Counter(made)) == set("ABCD")
    assert all(430 < count < 570 for count in Counter(made).values())


def test_a_wrong_row_confuses_the_deciding_tag_everywhere_and_nothing_else() -> None:
    questions = Questions([finer_key()])
    for row in EVERY[:80]:
        found = questions.last_in(forms.question_of(row["context"]))
        assert found is not None
        right, wrong = row["target"].split(","), found.question.mistake.split(",")
        changed = {place for place in range(len(right)) if right[place] != wrong[place]}
        assert changed == {place for place, tag in enumerate(right) if tag == found.question.topic}


def test_answers_are_a_list_of_tags_and_right_exactly_as_often_as_the_law_says() -> None:
    ask = asker(finer_model(4))
    answers = [learner.answer(ask, row, "", 0)["final_answer"] for row in EVERY]
    right = sum(answer == row["target"] for answer, row in zip(answers, EVERY, strict=True)) / len(EVERY)
    assert right == pytest.approx(0.875 * 0.75 + 0.125 * 0.05, abs=0.05)
    assert all(
        len(str(answer).split(",")) == len(row["target"].split(","))
        for answer, row in zip(answers, EVERY, strict=True)
    )


def test_a_reflection_is_315_tokens_on_average_and_long_where_it_has_a_lesson() -> None:
    served = finer_model(2)
    ask, seen = asker(served), []
    for row in EVERY[:300]:
        said = learner.reflection(ask, row, "", 0)
        seen.append((tokens(said), len(served.book.lessons_in(said))))
    sizes = [size for size, _ in seen]
    assert sum(sizes) / len(sizes) == pytest.approx(315, rel=0.1)
    assert all(size > 450 for size, count in seen if count) and all(
        size < 150 for size, count in seen if not count
    )
    assert sum(bool(count) for _, count in seen) / len(seen) == pytest.approx(0.487, abs=0.08)


def test_a_rule_once_read_makes_its_rows_right() -> None:
    served = finer_model(1)
    book = served.book
    unknown = max(unknown_topics(served, finer_key()), key=lambda tag: finer_key()["topics"][tag])
    mine = [row for row in EVERY if tags.row(row["context"], row["target"])[0] == unknown]
    rule = book.rule(unknown)
    line = lessons.rule_entry(rule.name, rule.phrase("right"))
    ask = asker(served)

    def right(contents: list[str]) -> float:
        tries = [learner.answer(ask, row, forms.playbook(contents), s) for row in mine for s in range(20)]
        wanted = [row["target"] for row in mine for _ in range(20)]
        return sum(a["final_answer"] == w for a, w in zip(tries, wanted, strict=True)) / len(tries)

    assert right([]) < 0.2 < 0.55 < right([line])


def test_the_longest_tag_is_found_in_notes_and_platitudes() -> None:
    longest = max(finer_key()["topics"], key=len)
    book = finer_model().book
    name = book.rule(longest).name
    text = "\n".join([lessons.note_entry(name, lessons.note("x")), lessons.platitude(name)])
    note, blur = book.lessons_in(text)
    assert (note.kind, note.name, blur.kind) == ("note", name, "blur")
    assert blur.name.startswith(name)


def test_lists_are_told_apart_whatever_the_blanks() -> None:
    known = Questions([finer_key()]).last_in(EVERY[0]["context"]).question  # type: ignore[union-attr]
    spread = known.target.replace(",", ", ")
    assert not missed(f"predicted: {spread}. expected: {known.target}", known)
    assert missed(f"predicted: {known.mistake.replace(',', ' ,  ')}. expected: {known.target}", known)
    assert not states("A,BC", "A,B") and not states("XA,B", "A,B")


def test_other_rows_are_refused_by_line() -> None:
    row = json.dumps({"context": "What is 2 + 2?", "target": "4"}).encode()
    with pytest.raises(DataError, match=r"rows\.jsonl:1: not a finer row"):
        keyfile.build("finer", [("rows.jsonl", row)])


def test_equal_requests_get_equal_bytes() -> None:
    text = forms.GENERATOR.format(playbook="", question=EVERY[0]["context"])
    assert finer_model(3).respond(body(text, 1)).text == finer_model(3).respond(body(text, 1)).text
