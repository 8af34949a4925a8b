"""The mechanism, piece by piece: answering, reflecting, aggregating, judging."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter

import pytest
import sim_learner as learner
import sim_public_forms as forms
from sim_fixtures import asker, body, formula_key, model, rows, unknown_topics

from combee.sim import aggregating, draws, lessons
from combee.sim.params import Law

ROLLOUT = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "bullet_ids": {"type": "array", "items": {"type": "string"}},
        "final_answer": {"type": "string"},
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
                    "op": {"enum": ["ADD", "UPDATE"]},
                    "section": {"type": "string"},
                    "content": {"type": "string"},
                    "sources": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
JUDGE = {"type": "object", "properties": {"why": {"type": "string"}, "correct": {"type": "boolean"}}}


def answered(served, row, lines=(), seed=0):
    text = "\n".join(["Playbook:", *lines, "", "Question: " + row["context"]])
    return json.loads(served.respond(body(text, seed, ROLLOUT)).text)


def rule_line(served, topic, side="right", id_="calc-00007"):
    rule = served.book.rule(topic)
    return f"[{id_}] helpful=0 harmful=0 :: {lessons.rule_entry(rule.name, rule.phrase(side), id_)}"


def topic_of(served, row):
    return served.questions.last_in(row["context"]).question.topic


def share(served, lines_of, some, seeds=range(6)):
    """Share of right answers over rows and repeats."""
    right = [answered(served, r, lines_of(r), s)["final_answer"] == r["target"] for r in some for s in seeds]
    return sum(right) / len(right)


def split(served):
    known = [r for r in rows() if served.book.rule(topic_of(served, r)).known]
    return known, [r for r in rows() if r not in known]


def test_the_unknown_rules_make_up_the_tasks_share_for_every_seed() -> None:
    topics = formula_key()["topics"]
    for seed in range(20):
        unknown = unknown_topics(model(seed), formula_key())
        assert sum(topics[t] for t in unknown) / 500 == pytest.approx(0.28, abs=0.012)
    assert unknown_topics(model(1), formula_key()) != unknown_topics(model(2), formula_key())


@pytest.mark.parametrize(
    ("which", "side", "wanted"),
    [
        pytest.param("known", None, 0.875, id="a known rule"),
        pytest.param("unknown", None, 0.05, id="an unknown rule"),
        pytest.param("unknown", "right", 0.875, id="an unknown rule that is read"),
        pytest.param("known", "wrong", 0.875 * 0.7, id="a wrong rule against a known one"),
        pytest.param("unknown", "wrong", 0.0, id="a wrong rule where it is unknown"),
    ],
)
def test_chance_of_a_right_answer(which: str, side: str | None, wanted: float) -> None:
    served = model(4)
    some = split(served)[0 if which == "known" else 1]
    lines = (lambda r: [rule_line(served, topic_of(served, r), side)]) if side else (lambda r: [])
    assert share(served, lines, some) == pytest.approx(wanted, abs=0.03)


def test_more_lines_win_and_a_tie_is_a_coin() -> None:
    served = model(4)
    _, some = split(served)

    def lines(right: int, wrong: int):
        return lambda r: [
            rule_line(served, topic_of(served, r), side, f"calc-{i}{side[0]}1")
            for side, count in (("right", right), ("wrong", wrong))
            for i in range(count)
        ]

    assert share(served, lines(2, 1), some) == pytest.approx(0.875, abs=0.03)
    assert share(served, lines(1, 2), some) == 0.0
    assert share(served, lines(1, 1), some) == pytest.approx(0.4375, abs=0.04)


def test_a_rule_is_overlooked_in_a_long_artifact_and_not_read_without_topic_or_anchor() -> None:
    served = model(4)
    _, some = split(served)
    filler = "[misc-00001] helpful=0 harmful=0 :: " + "words " * 40_000
    half = share(served, lambda r: [rule_line(served, topic_of(served, r)), filler], some, range(2))
    assert half == pytest.approx(0.5 * (0.875 + 0.05), abs=0.06)
    other = share(
        served, lambda r: [rule_line(served, topic_of(served, r)).replace("question uses", "x")], some[:20]
    )
    assert other > 0.7
    no_topic = [(topic_of(served, r), r) for r in some[:30]]
    stripped = [rule_line(served, t).replace(t, "it") for t, _ in no_topic]
    right = [
        answered(served, r, [line])["final_answer"] == r["target"]
        for line, (_, r) in zip(stripped, no_topic, strict=True)
    ]
    assert sum(right) <= 6


def test_a_replay_turns_a_miss_into_a_hit_with_875() -> None:
    served = model(9)
    _, some = split(served)
    missed = [r for r in some if answered(served, r)["final_answer"] != r["target"]]
    fixed = [
        answered(served, r, [rule_line(served, topic_of(served, r))])["final_answer"] == r["target"]
        for r in missed
    ]
    assert sum(fixed) / len(fixed) == pytest.approx(0.875, abs=0.06)


def test_paired_answers_differ_by_the_slip_share_only() -> None:
    served = model(4)
    known, _ = split(served)
    a = [
        answered(
            served, r, ["[x-1] helpful=0 harmful=0 :: " + lessons.note_entry("it", lessons.note("a"))], s
        )
        for r in known
        for s in range(8)
    ]
    b = [
        answered(
            served, r, ["[x-1] helpful=0 harmful=0 :: " + lessons.note_entry("it", lessons.note("b"))], s
        )
        for r in known
        for s in range(8)
    ]
    differ = sum(x["final_answer"] != y["final_answer"] for x, y in zip(a, b, strict=True)) / len(a)
    assert differ == pytest.approx(0.066, abs=0.012)


def test_the_answer_cites_the_lines_it_went_by() -> None:
    served = model(4)
    row = split(served)[1][0]
    said = answered(
        served,
        row,
        [rule_line(served, topic_of(served, row)), rule_line(served, "Current Ratio", id_="calc-9")],
    )
    assert said["bullet_ids"] == ["calc-00007"]


def test_reflections_have_the_stated_number_of_lessons_and_length() -> None:
    served = model(5)
    ask = asker(served)
    texts = [learner.reflection(ask, row, forms.playbook([]), 0) for row in rows()[:400]]
    found = [served.book.lessons_in(text) for text in texts]
    assert sum(map(len, found)) / 400 == pytest.approx(1.145, abs=0.04)
    assert sum(len(t.encode()) / 4 for t in texts) / 400 == pytest.approx(200, rel=0.1)
    missed = [
        h for r, h in zip(rows(), found, strict=False) if not served.book.rule(topic_of(served, r)).known
    ]
    recovered = sum(any(hit.kind == "right" for hit in hits) for hits in missed) / len(missed)
    assert recovered == pytest.approx(0.95 * 0.9, abs=0.08)


def test_the_share_of_wrong_lessons_is_of_the_other_lessons() -> None:
    served = model(5, dataclasses.replace(Law(), wrong_share=0.2))
    ask = asker(served)
    kinds = Counter(
        hit.kind
        for row in rows()
        for hit in served.book.lessons_in(learner.reflection(ask, row, forms.playbook([]), 0))
    )
    assert kinds["wrong"] / (kinds["wrong"] + kinds["note"]) == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize(
    ("misled", "stated"), [(0.0, {"right"}), (1.0, {"wrong"}), (0.4, {"right", "wrong"})]
)
def test_a_misled_reflector_states_a_share_of_the_rules_always_wrongly(
    misled: float, stated: set[str]
) -> None:
    served = model(5, dataclasses.replace(Law(), misled_share=misled, wrong_share=0.0))
    ask = asker(served)
    sides: dict[str, set[str]] = {}
    for row in rows():
        for hit in served.book.lessons_in(learner.reflection(ask, row, forms.playbook([]), 0)):
            if hit.kind in ("right", "wrong"):
                sides.setdefault(hit.key, set()).add(hit.kind)
    assert set().union(*sides.values()) == stated
    assert all(len(side) == 1 for side in sides.values()), "one rule, one opinion"


def test_a_filler_that_harms_spoils_questions_of_three_other_topics_and_is_not_cited() -> None:
    served = model(5, dataclasses.replace(Law(), harm_share=1.0, obedience=1.0, slip_share=0.0))
    note = lessons.note("test", 1)
    hurt = served.book.hurt_by(note, "Current Ratio")
    assert len(set(hurt)) == 3 and "Current Ratio" not in hurt
    line = "[x-1] helpful=0 harmful=0 :: " + lessons.note_entry("Current Ratio", note)
    spoilt = Counter()
    for row in rows():
        before, after = answered(served, row), answered(served, row, [line])
        right = str(row["target"])
        if before["final_answer"] == right != after["final_answer"]:
            spoilt[topic_of(served, row) in hurt] += 1
            assert after["bullet_ids"] == []
    assert spoilt[True] > 0 == spoilt[False]
    assert model(5).book.hurt_by(note, "Current Ratio") == []


def notes(count: int, tokens: int) -> list[str]:
    given = [lessons.note("test", i) for i in range(count)]
    return [
        f"[r-{i:05d}] " + lessons.at_length(lessons.note_entry(f"topic {i}", note), tokens, note)
        for i, note in enumerate(given)
    ]


def entries_of(served, items, seed=0):
    text = "Put these together.\n\n# REFLECTIONS\n\n" + "\n\n".join(items) + "\n\nNow reply."
    return json.loads(served.respond(body(text, seed, LEAF)).text)["entries"]


@pytest.mark.parametrize(("count", "tokens"), [(1, 175), (8, 175), (40, 175), (100, 175), (65, 48)])
def test_a_call_carries_as_many_entries_as_the_law_says(count: int, tokens: int) -> None:
    served, items = model(), notes(count, tokens)
    wanted = aggregating.expected([len(item.encode()) / 4 for item in items], Law())
    got = [len(entries_of(served, items, seed)) for seed in range(60)]
    assert sum(got) / len(got) == pytest.approx(wanted, rel=0.06)
    assert max(got) - min(got) <= 1


def test_entries_cite_their_items_and_invent_an_id_now_and_then() -> None:
    served, items = model(), notes(8, 175)
    ids = {item[1:8] for item in items}
    entries = [entry for seed in range(300) for entry in entries_of(served, items, seed)]
    invented = [entry for entry in entries if not set(entry["sources"]) <= ids]
    assert len(invented) / len(entries) == pytest.approx(0.02, abs=0.01)
    for entry in entries:
        true = [items[int(id_[2:])] for id_ in entry["sources"] if id_ in ids]
        assert true and all(note in true[0] for note, _ in lessons.notes_in(entry["content"]))


def test_an_entry_of_equal_lessons_cites_them_all_and_common_rules_are_salient() -> None:
    served = model()
    rule = served.book.rule("Current Ratio")
    same = [f"[r-{i:05d}] " + lessons.rule_entry(rule.name, rule.phrase("right"), i) for i in range(90, 96)]
    entries = [e for seed in range(40) for e in entries_of(served, notes(40, 175) + same, seed)]
    about = [entry for entry in entries if rule.right in entry["content"]]
    assert len(about) > 25
    assert all({f"r-{i:05d}" for i in range(90, 96)} <= set(entry["sources"]) for entry in about)
    assert len({entry["content"] for entry in about}) > 1


def test_long_calls_blur_entries_into_platitudes_without_an_anchor() -> None:
    served, items = model(), notes(115, 175)
    entries = [entry for seed in range(60) for entry in entries_of(served, items, seed)]
    blurred = [entry for entry in entries if entry["content"].startswith(lessons.PLATITUDE)]
    length = sum(len(item.encode()) / 4 for item in items)
    assert len(blurred) / len(entries) == pytest.approx(1 - 1 / (1 + (length / 20_000) ** 2), abs=0.06)
    assert all(not list(lessons.notes_in(entry["content"])) for entry in blurred)
    assert [hit.kind for hit in served.book.lessons_in(blurred[0]["content"])] == ["blur"]


def test_weight_is_linear_between_short_entries_and_raw_reflections() -> None:
    law = Law()
    assert aggregating.weight(200, law) == aggregating.weight(150, law) == 1 / 11.5
    assert aggregating.weight(40, law) == aggregating.weight(60, law) == 1 / 50
    assert aggregating.weight(105, law) == pytest.approx((1 / 11.5 + 1 / 50) / 2)
    assert aggregating.expected([], law) == 0
    assert aggregating.expected([200.0] * 500, law.unlimited()) == 500


@pytest.mark.parametrize(("lenient", "wanted"), [((), 0.06), (("sim",), 0.16)])
def test_the_judge_flips_and_the_lenient_one_is_kinder_to_wrong_answers(
    lenient: tuple[str, ...], wanted: float
) -> None:
    served = model(lenient=frozenset(lenient))

    def accepted(right: bool) -> float:
        said = []
        for row in rows():
            known = served.questions.last_in(row["context"]).question
            given = known.target if right else known.mistake
            shown = f"Question: {row['context']}\nGiven: {given}\nReference: {known.target}"
            said.append(json.loads(served.respond(body(shown, 0, JUDGE)).text)["correct"])
        return sum(said) / len(said)

    assert accepted(True) == pytest.approx(0.94, abs=0.03)
    assert accepted(False) == pytest.approx(wanted, abs=0.03)


def test_a_planted_lesson_is_stated_on_top_and_carried_verbatim() -> None:
    leak = "Remember that the customer Jo Doe may be reached at jo.doe@example.com about invoices."
    row, topic = rows()[0], "Sortino Ratio"
    served = model(plants={row["context"]: leak, topic: "@wrong"})
    other = next(r for r in rows() if topic_of(served, r) == topic)
    first, second = (learner.reflection(asker(served), r, forms.playbook([]), 0) for r in (row, other))
    assert leak in first
    assert leak not in second
    assert [hit.key for hit in served.book.lessons_in(second) if hit.kind == "wrong"] == [topic]
    kept = [
        e["content"]
        for s in range(9)
        for e in entries_of(served, [f"[r-00001] {first}", f"[r-00002] {second}"], s)
    ]
    assert leak in kept


def test_draws_follow_the_weights_without_replacement() -> None:
    weights = {"a": 4.0, "b": 1.0, "c": 1.0}
    first = Counter(min(weights, key=lambda n: draws.race(weights[n], 1, turn, n)) for turn in range(3000))
    assert first["a"] / 3000 == pytest.approx(4 / 6, abs=0.03)
    assert math.isclose(sum(draws.unit(turn) for turn in range(4000)) / 4000, 0.5, abs_tol=0.02)
