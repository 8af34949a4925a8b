"""Any caller is understood: by the shape of the answer asked for, or by the instruction's own example."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sim_learner as learner
import sim_public_forms as forms
from sim_fixtures import asker, body, model, rows

from combee.sim import fill, lessons, roles
from combee.sim.forms import from_example, from_schema

_ID = {"type": "string", "description": "an id"}
ROLLOUT = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "bullets": {"type": "array", "items": _ID},
        "answer": {"type": "string"},
    },
}
REFLECT = {
    "type": "object",
    "properties": {
        "diagnosis": {"type": "string"},
        "lessons": {"type": "array", "items": {"type": "string"}},
        "tags": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": _ID,
                    "verdict": {"type": "string", "enum": ["helpful", "harmful", "neutral"]},
                },
            },
        },
    },
}
REFLECT_OBJECTS = {
    "type": "object",
    "properties": {
        "diagnosis": {"type": "string"},
        "lessons": {"type": "array", "items": {"$ref": "#/$defs/Lesson"}},
        "bullet_tags": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Tag"}}, {"type": "null"}]},
    },
    "$defs": {
        "Lesson": {"type": "object", "properties": {"text": {"type": "string"}}},
        "Tag": {"type": "object", "properties": {"id": {"type": "string"}, "tag": {"type": "string"}}},
    },
}
LEAF = {
    "type": "object",
    "properties": {
        "entries": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "op": {"type": "string", "enum": ["ADD", "UPDATE", "MERGE", "DELETE"]},
                    "section": {"type": "string"},
                    "text": {"type": "string"},
                    "reflections": {"type": "array", "items": _ID},
                    "bullets": {"type": "array", "items": _ID},
                    "reason": {"type": "string"},
                },
            },
        }
    },
}
JUDGE = {
    "type": "object",
    "properties": {"why": {"type": "string"}, "verdict": {"enum": ["incorrect", "correct"]}},
}


@pytest.mark.parametrize(
    ("schema", "role"),
    [
        pytest.param(ROLLOUT, roles.ROLLOUT, id="strings and one list of strings"),
        pytest.param(REFLECT, roles.REFLECT, id="a list of votes"),
        pytest.param(REFLECT_OBJECTS, roles.REFLECT, id="lists of small objects, by reference"),
        pytest.param(LEAF, roles.AGGREGATE, id="a list of operations"),
        pytest.param(JUDGE, roles.JUDGE, id="an enumeration and no list"),
    ],
)
def test_a_schema_tells_the_role_by_its_shape(schema: dict[str, Any], role: str) -> None:
    for one in (schema, renamed(schema)):
        form = from_schema(one)
        assert next(cue.role for cue in roles.TABLE if cue.shape(form)) == role


def test_public_prompts_tell_the_role_by_the_example_they_show() -> None:
    served, row = model(), rows()[0]
    question = forms.question_of(row["context"])
    generator = forms.GENERATOR.format(playbook=forms.playbook(["some advice"]), question=question)
    reflector = forms.REFLECTOR.format(
        question=question,
        trace="{}",
        predicted="1",
        target=row["target"],
        feedback="no match",
        bullets="(none)",
    )
    curator = forms.CURATOR.format(
        step=1, total=2, bullets=0, reflection="nothing", playbook=forms.playbook([])
    )
    found = [served.respond(body(text)).role for text in (generator, reflector, curator)]
    assert found == [roles.ROLLOUT, roles.REFLECT, roles.AGGREGATE]
    assert json.loads(served.respond(body(curator)).text)["operations"] == []


def test_without_any_form_the_instructions_words_decide_and_the_answer_is_plain_text() -> None:
    served, row = model(), rows()[0]
    known = served.questions.last_in(row["context"]).question
    plain = served.respond(body(row["context"]))
    assert (plain.role, plain.text) in ((roles.ROLLOUT, known.target), (roles.ROLLOUT, known.mistake))
    judged = served.respond(body(f"Be the judge.\nQuestion: {row['context']}\nGiven: {known.target}"))
    assert judged.role == roles.JUDGE
    note = lessons.note_entry("it", lessons.note("x"))
    for words in ("Summarise these lessons.", "Write a new instruction.", "Synthesize these proposals."):
        assert served.respond(body(f"{words}\n\n[r-1] {note}")).role == roles.AGGREGATE
    assert served.respond(body(f"{row['context']}\nWrite a new instruction.\n{note}")).role == roles.AGGREGATE
    assert served.respond(body("Hello there")).role == roles.CHAT
    missed = served.respond(body(f"Say what went wrong.\n{row['context']}\nGiven: {known.mistake}"))
    assert missed.role == roles.REFLECT


def renamed(schema: Any) -> Any:
    """The same schema with every field called otherwise and nothing described."""
    if isinstance(schema, list):
        return [renamed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        k: renamed(v)
        for k, v in schema.items()
        if k not in ("description", "required", "properties", "$defs")
    }
    if "properties" in schema:
        fields = schema["properties"].items()
        made["properties"] = {f"zq{place}": renamed(child) for place, (_, child) in enumerate(fields)}
    if "$defs" in schema:
        made["$defs"] = {name: renamed(child) for name, child in schema["$defs"].items()}
    return made


def values(said: Any) -> Any:
    """A reply without its field names."""
    if isinstance(said, dict):
        return [values(child) for child in said.values()]
    return [values(child) for child in said] if isinstance(said, list) else said


def conversations() -> list[tuple[str, dict[str, Any]]]:
    served = model(3)
    rule = served.book.rule("Net Present Value (NPV)")
    playbook = forms.playbook([lessons.rule_entry(rule.name, rule.phrase("right"), 1)])
    ask = asker(served)
    texts = [learner.reflection(ask, row, playbook, 0) for row in rows()[:12]]
    said: list[tuple[str, dict[str, Any]]] = []
    for row in rows()[:40]:
        known = served.questions.last_in(row["context"]).question
        said.append((f"{playbook}\n\n# TASK\n\n{row['context']}", ROLLOUT))
        shown = (
            f"{playbook}\n\n# TASK\n\n{row['context']}\n\n"
            f"# ITS ANSWER\n\n{known.mistake}\n\nExpected {known.target}"
        )
        said += [(shown, REFLECT), (shown, REFLECT_OBJECTS), (shown, JUDGE)]
    items = "\n\n".join(f"[r-{i:05d}] {text}" for i, text in enumerate(texts))
    said.append((f"{playbook}\n\n# REFLECTIONS (12)\n\n{items}\n", LEAF))
    return said


def test_renaming_every_field_changes_nothing() -> None:
    served = model(3)
    for text, schema in conversations():
        plain = json.loads(served.respond(body(text, 1, schema)).text)
        other = json.loads(served.respond(body(text, 1, renamed(schema))).text)
        assert values(plain) == values(other)
        assert list(plain) == list(schema["properties"])


def test_a_schema_in_the_instructions_words_does_as_well() -> None:
    """As clients do for servers without response_format."""
    served = model(3)
    for text, schema in conversations():
        told = f"{text}\n\nAnswer with JSON that follows this JSON schema:\n{json.dumps(schema)}"
        assert served.respond(body(told, 1)).text == served.respond(body(text, 1, schema)).text


def test_a_reply_fills_the_schema_as_meant() -> None:
    served = model(3)
    replies = {role: [] for role in ("rollout", "reflect", "aggregate", "judge")}
    for text, schema in conversations():
        reply = served.respond(body(text, 1, schema))
        replies[reply.role].append(json.loads(reply.text))
    assert all({"reasoning", "bullets", "answer"} == set(said) for said in replies["rollout"])
    assert any(said["bullets"] == ["calc-00001"] for said in replies["rollout"])
    assert all(
        isinstance(text, str) for said in replies["reflect"] for text in said["lessons"] if "tags" in said
    )
    entries = replies["aggregate"][0]["entries"]
    assert entries and all(
        entry["op"] == "ADD" and entry["reflections"] and not entry["bullets"] for entry in entries
    )
    assert all(re.search(r"question uses|general habit", entry["text"]) for entry in entries)
    assert {said["verdict"] for said in replies["judge"]} == {"correct", "incorrect"}


@pytest.mark.parametrize(("right", "grade"), [(True, 1), (False, 0)])
def test_a_judge_gives_the_best_or_the_worst_of_the_listed_grades(right: bool, grade: float) -> None:
    form = from_schema({"type": "object", "properties": {"grade": {"enum": [0, 0.5, 1]}}})
    assert json.loads(fill.judge(form, right, "")) == {"grade": grade}


@pytest.mark.parametrize(
    "lay_out",
    [
        pytest.param(lambda items: "\n".join(f"[r-{i}] {t}" for i, t in items), id="lines"),
        pytest.param(lambda items: "\n\n".join(f"- [r-{i}] {t}" for i, t in items), id="a list with dashes"),
        pytest.param(
            lambda items: json.dumps([{"id": f"r-{i}", "x": t} for i, t in items]), id="a JSON list"
        ),
        pytest.param(
            lambda items: json.dumps([{"id": f"r-{i}", "x": t} for i, t in items], indent=2), id="indented"
        ),
    ],
)
def test_items_are_found_in_any_layout_and_the_playbook_put_first_is_none(lay_out: Any) -> None:
    served = model()
    given = {i: lessons.note("layout", i) for i in range(3)}
    items = [(i, lessons.note_entry("it", note)) for i, note in given.items()]
    standing = forms.playbook([lessons.note_entry("old", lessons.note("old", i)) for i in range(50)])
    text = f"Keep the playbook.\n\n{standing}\n\n# REFLECTIONS (3)\n\n{lay_out(items)}\n"
    entries = [e for s in range(20) for e in json.loads(served.respond(body(text, s, LEAF)).text)["entries"]]
    assert len(entries) > 40
    for entry in entries:
        ((note, _),) = lessons.notes_in(entry["text"])
        assert f"r-{next(i for i, one in given.items() if one == note)}" in entry["reflections"]


def test_questions_are_found_whole_in_part_quoted_and_laid_out_anew() -> None:
    served = model()
    for row in rows():
        context = row["context"]
        shown = (context, forms.question_of(context), json.dumps({"q": context}), " ".join(context.split()))
        assert {
            served.questions.last_in(f"Do this.\n\n{text}\n\nAnswer now").question.target for text in shown
        } == {row["target"]}
    assert served.questions.last_in("Use formula Beta to answer something else") is None
    two = f"{rows()[1]['context']}\n\n{rows()[0]['context']}" + "\n\nmore words" * 2_000
    assert served.questions.last_in(two).question.text in rows()[0]["context"]


def test_an_example_that_is_no_json_or_no_form_is_passed_over() -> None:
    assert from_example('As json:\n{"a": ...}\n') is None
    assert from_example('The data:\n{"a": "b"}\n') is None
    assert from_example("Reply in JSON.") is None
