"""Records of work with feedback, as GEPA's reflection is shown them: the model draws the lessons itself."""

from __future__ import annotations

import json

import pytest
from sim_fixtures import body, formula_key, model, rows, unknown_topics

from combee.sim import draws, keyfile, lessons, roles
from combee.sim.params import Law

LESSONS = {
    "type": "object",
    "properties": {
        "lessons": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "records": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
ENDLESS = Law().unlimited()


def asked(count: int) -> list[tuple[str, str, str]]:
    """(question, right answer, typical mistake)."""
    found = []
    for row in rows()[:count]:
        _, question = keyfile.formula_row(row["context"], row["target"])
        id_ = draws.digest(question)[:16]
        found.append((question, row["target"], keyfile.mistake(id_, row["target"])))
    return found


def listed(count: int, *, wrong: bool = True) -> str:
    return "\n".join(
        f"[r-{k}] Given: {question} | Answered: {mistake if wrong else target} | Feedback: expected {target}"
        for k, (question, target, mistake) in enumerate(asked(count))
    )


def headed(count: int) -> str:
    """In the layout of a reflective dataset: a heading an example, then its parts."""
    return "\n\n".join(
        f"# Example {k}\n## Inputs\n{question}\n\n## Generated Outputs\n{mistake}\n\n## Feedback\nThe "
        f"answer is {target}."
        for k, (question, target, mistake) in enumerate(asked(count), start=1)
    )


def drawn(text: str, **options: object) -> list[dict[str, object]]:
    reply = model(seed=3, **options).respond(body(text, schema=LESSONS))  # type: ignore[arg-type]
    assert reply.role == roles.AGGREGATE
    return json.loads(reply.text)["lessons"]


def test_lessons_are_drawn_of_records_and_cite_them() -> None:
    found = drawn("Distil these records into lessons.\n\n# RECORDS\n\n" + listed(12), law=ENDLESS)
    assert len(found) >= 8
    cited = {id_ for one in found for id_ in one["records"]}  # type: ignore[attr-defined]
    assert len(cited & {f"r-{k}" for k in range(12)}) >= 8


def test_a_rule_that_was_missed_is_recovered_and_one_that_was_met_is_not() -> None:
    served = model(seed=3)
    unknown = unknown_topics(served, formula_key())
    assert unknown
    wrong = " ".join(str(one["text"]) for one in drawn("Distil.\n" + listed(60), law=ENDLESS))
    right = " ".join(str(one["text"]) for one in drawn("Distil.\n" + listed(60, wrong=False), law=ENDLESS))
    stated = [sum(served.book.rule(topic).right in text for topic in unknown) for text in (wrong, right)]
    assert stated[0] >= 3 and stated[1] == 0


def test_one_call_carries_few_of_many_records() -> None:
    few, many = (len(drawn("Distil.\n" + listed(count))) for count in (4, 60))
    assert 2 <= few <= 5 and many <= 35


def test_a_call_for_new_instructions_over_examples_with_feedback_is_no_rollout() -> None:
    text = "Read the examples and write a new instruction for the assistant.\n\n" + headed(3)
    reply = model(seed=3, law=ENDLESS).respond(body(text))
    assert reply.role == roles.AGGREGATE
    assert reply.text.startswith("- ") and lessons.PLATITUDE not in reply.text


@pytest.mark.parametrize("question", [0, 1, 2])
def test_a_question_by_itself_is_still_answered(question: int) -> None:
    text = f"Give feedback only when asked, and summarize nothing.\n\n{asked(3)[question][0]}"
    assert model().respond(body(text)).role == roles.ROLLOUT


def test_feedback_that_gives_lessons_is_read_as_before() -> None:
    told = lessons.note_entry("Current Ratio", lessons.note("x"))
    ((question, *_),) = asked(1)
    text = f"Distil the reflections.\n\n# Reflections\n\n[r-1] Given: {question} | Feedback: wrong. {told}"
    found = drawn(text, law=ENDLESS)
    assert len(found) == 1 and lessons.note("x") in str(found[0]["text"])


def test_equal_requests_get_equal_lessons() -> None:
    text = "Distil.\n" + listed(20)
    assert drawn(text) == drawn(text)
    assert drawn(text) != drawn("Distil.\n" + listed(21))
