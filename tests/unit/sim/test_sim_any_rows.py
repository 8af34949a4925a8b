"""A key of any rows, by the names of their fields: what it holds, and what it refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from combee.errors import DataError
from combee.sim.keyfile import FieldNames, Questions, build_any
from combee.sim.main import app

TICKETS = FieldNames("text", "queue")
CSV = (
    b'text,queue,kind\n"It broke, again.",HWR-1,"screens, all"\n'
    b"Where is my invoice?,FIN-7,bills\nThe screen is black.,HWR-1,bills\n"
)
"""Three rows of two labels: a comma in a text and in a topic."""


def test_csv_and_json_lines_give_the_same_key() -> None:
    fields = ("text", "queue", "kind")
    rows = [("It broke, again.", "HWR-1", "screens, all"), ("Where is my invoice?", "FIN-7", "bills")]
    rows.append(("The screen is black.", "HWR-1", "bills"))
    lines = "\n".join(json.dumps(dict(zip(fields, row, strict=True))) for row in rows).encode()
    by_topic = FieldNames("text", "queue", "kind")
    key = build_any(by_topic, [("rows.csv", CSV)])
    assert key == build_any(by_topic, [("rows.jsonl", lines)])
    assert key["topics"] == {"screens all": 1, "bills": 2}
    assert {row["question"]: row["target"] for row in key["examples"].values()} == {
        text: queue for text, queue, _ in rows
    }


def test_labels_are_topics_and_a_wrong_answer_is_another_label() -> None:
    rows = [json.dumps({"text": f"Ticket {n} is open.", "queue": f"Q{n % 3}"}) for n in range(12)]
    key = build_any(TICKETS, [("rows.jsonl", "\n".join(rows).encode())])
    assert key["topics"] == {"Q0": 4, "Q1": 4, "Q2": 4}
    asked = Questions([key]).last_in("Ticket: Ticket 4 is open.")
    assert asked is not None and asked.question.target == "Q1" and asked.question.mistake in ("Q0", "Q2")


def test_rows_with_an_answer_each_share_rules_by_chance() -> None:
    rows = [json.dumps({"text": f"What is {n}?", "queue": n}) for n in range(100)]
    key = build_any(TICKETS, [("rows.jsonl", "\n".join(rows).encode())])
    assert len(key["topics"]) == 10 and sum(key["topics"].values()) == 100
    assert all(topic.startswith("kind ") for topic in key["topics"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"text": "a"}', "not such a row ('queue').*Its fields are text"),
        (b'{"text": "", "queue": "b"}', "no text in its field text"),
        (b'{"text": ["a"], "queue": "b"}', "no text in its field text"),
        (b"[1]", "not such a row"),
        (b"{", "cannot be read as rows"),
        (b"\xff\xfe", "cannot be read as rows"),
    ],
)
def test_other_rows_are_refused_with_their_place(content: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says.replace("(", r"\(").replace(")", r"\)")) as refused:
        build_any(TICKETS, [("rows.jsonl", content)])
    assert refused.value.where in ("rows.jsonl:1", "rows.jsonl")


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1), st.text()), min_size=1, max_size=8))
def test_any_text_makes_topics_that_a_sentence_can_name(rows: list[tuple[str, str, str]]) -> None:
    """A comma, a quotation mark or a line's end would end the name of a topic in a lesson."""
    lines = [json.dumps({"text": f"x{a}", "queue": f"y{b}", "kind": f"z{c}"}) for a, b, c in rows]
    key = build_any(FieldNames("text", "queue", "kind"), [("rows.jsonl", "\n".join(lines).encode())])
    for topic in key["topics"]:
        assert 0 < len(topic) <= 80 and not set(topic) & set(',"\n')


@pytest.mark.parametrize(
    "flags", [[], ["--input", "text"], ["--task", "formula", "--input", "text", "--target", "queue"]]
)
def test_the_command_wants_a_task_or_fields(flags: list[str]) -> None:
    done = CliRunner().invoke(app, ["key", "--data", "rows.csv", "-o", "key.json", *flags])
    assert done.exit_code == 2 and "give either --task, or --input and --target" in done.output
