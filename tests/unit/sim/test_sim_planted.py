"""The planted task: rules nobody can know, answers that follow from the text, no key file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sim_learner as learner
import sim_public_forms as forms
from sim_fixtures import asker, body

from combee.errors import DataError
from combee.sim import keyfile, lessons, planted
from combee.sim.model import Model


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_data_have_their_rows_and_rules_and_share_no_row(tmp_path: Path) -> None:
    train, held = map(read, planted.write(tmp_path, train=1000, held_out=300, rules=1000, seed=0))
    assert (len(train), len(held)) == (1000, 300)
    assert len({planted.topic_of(row["context"]) for row in train}) == 1000
    assert {tuple(row) for row in train + held} == {("context", "target")}
    contexts = [row["context"] for row in train + held]
    assert len(set(contexts)) == 1300
    few_train, few_held = map(read, planted.write(tmp_path, train=40, held_out=100, rules=1000, seed=1))
    trained = {planted.topic_of(row["context"]) for row in few_train}
    assert {planted.topic_of(row["context"]) for row in few_held} <= trained
    assert read(tmp_path / "train.jsonl") == few_train


def test_right_and_wrong_lines_always_differ() -> None:
    for index in range(2_000):
        right, wrong = (planted.line(planted.topic(index), side) for side in ("right", "wrong"))
        assert right.phrase != wrong.phrase
        assert all(right(value) != wrong(value) for value in (1, 20, 999))


def test_no_procedure_is_known_and_its_lesson_makes_it_so(tmp_path: Path) -> None:
    train, held = map(read, planted.write(tmp_path, train=60, held_out=60, rules=30, seed=2))
    served = Model([], seed=2)
    ask = asker(served)

    def plain(row: dict[str, str], playbook: str) -> bool:
        said = json.loads(ask(forms.GENERATOR.format(playbook=playbook, question=row["context"]), 0))
        return bool(said["final_answer"] == row["target"])

    assert sum(plain(row, forms.playbook([])) for row in held) <= 9
    texts = []
    for row in train:
        known = served.questions.last_in(row["context"])
        assert known is not None and known.question.target == row["target"]
        shown = (
            f"{row['context']}\nGiven: {known.question.mistake}\n"
            f"Expected: {row['target']}\nSay what went wrong."
        )
        texts.append(served.respond(body(shown)).text)
    hits = [hit for text in texts for hit in served.book.lessons_in(text)]
    assert len(hits) == 60
    assert sum(hit.kind == "right" for hit in hits) >= 46
    contents = [served.book.entry(hit, 1) for hit in hits if hit.kind == "right"]
    assert sum(plain(row, forms.playbook(contents)) for row in held) >= 44


def test_a_merged_entry_still_states_the_procedure() -> None:
    served = Model([], seed=2)
    rule = served.book.rule("P-0123")
    said = [lessons.rule_entry(rule.name, rule.phrase("right"), i) for i in range(4)]
    merged = learner.curate(asker(served), [f"[u-{i}] {text}" for i, text in enumerate(said)], [], 0)
    assert len(merged) == 1
    assert rule.right in merged[0] and "P-0123" in merged[0]


def test_keys_of_bad_data_name_file_and_line() -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:2: not a planted row"):
        keyfile.build("planted", [("rows.jsonl", b'\n{"context": "What is 2 + 2?", "target": "4"}\n')])
    with pytest.raises(DataError, match="no rules for task 'traces'"):
        keyfile.build("traces", [])
