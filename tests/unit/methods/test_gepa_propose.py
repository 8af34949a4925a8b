"""From lessons to children: what is told once, what a block holds, and what two children are."""

from __future__ import annotations

import random

from gepa_makers import GEPA, lesson, rewrite, variant
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.tokens import estimate_tokens
from combee.methods.components.lessons import HEADING, grouped, split, with_block
from combee.methods.components.prompts import fill
from combee.methods.components.propose import children, parts
from combee.methods.gepa.templates import CURRENT, SIDE, WHOLE_TEXTS, Templates
from combee.methods.protocol import Update

LINES = st.text(st.characters(categories=["L", "N", "Z"], include_characters=".,%"), max_size=30)
ONE, TWO = "Divide by 4 when rates are quarterly.", "Report EBITDA in millions of 2019."
NAMES = ["ask", "check"]


def test_lessons_that_say_the_same_are_one_and_the_most_backed_come_first() -> None:
    found = grouped(
        [
            lesson(ONE, "1@0"),
            lesson(ONE.replace("rates", "the rates"), "2@0", "2@1", "3@0"),
            lesson(TWO, "4@0"),
            lesson(ONE, "5@0", component="check"),
        ],
        cap=32,
    )
    assert [(one.section, one.text, sorted(one.sources)) for one in found] == [
        ("instructions", ONE.replace("rates", "the rates"), ["1@0", "2@0", "2@1", "3@0"]),
        ("check", ONE, ["5@0"]),
        ("instructions", TWO, ["4@0"]),
    ]


@given(
    st.lists(st.tuples(st.sampled_from([ONE, TWO, "Be careful."]), st.integers(0, 9)), max_size=9),
    st.integers(),
)
def test_grouping_keeps_all_sources_in_any_order(told: list[tuple[str, int]], seed: int) -> None:
    updates = [lesson(text, f"{example}@0") for text, example in told]
    shuffled = updates[:]
    random.Random(seed).shuffle(shuffled)
    found = grouped(updates, cap=32)
    assert found == grouped(shuffled, cap=32)
    assert {s for one in found for s in one.sources} == {s for one in updates for s in one.sources}


@given(LINES.map(str.strip), st.lists(LINES.map(str.strip), max_size=6), st.integers(0, 60))
def test_a_block_never_cuts_the_text_and_never_exceeds_its_room(
    body: str, told: list[str], room: int
) -> None:
    text = with_block(body, told, room_tokens=room)
    found, kept = split(text)
    assert found == body and set(kept) <= {line for line in told if line}
    assert not kept or estimate_tokens(text) <= room
    assert with_block(found, kept, room_tokens=10_000) == text or not kept


def test_what_the_text_says_already_is_not_told_below_it() -> None:
    text = with_block(f"Be exact. {ONE}", [ONE, TWO, TWO, ""], room_tokens=1000)
    assert split(text) == (f"Be exact. {ONE}", [TWO])


def test_there_are_two_children_the_rewrite_and_the_rewrite_with_all_lessons() -> None:
    start = variant(instructions="Answer.")
    found = children(
        start, [rewrite("Answer exactly."), lesson(ONE), lesson(TWO, "1@0", "2@0")], budget_tokens=8000
    )
    (first, plain), (second, full) = found
    assert (first, plain.text) == ("rewrite", "Answer exactly.")
    assert (second, split(full.text)) == ("lessons", ("Answer exactly.", [TWO, ONE]))


def test_a_lost_rewrite_leaves_the_child_with_the_lessons() -> None:
    found = children(variant(instructions="Answer."), [lesson(ONE)], budget_tokens=8000)
    assert [(kind, split(child.text)) for kind, child in found] == [("lessons", ("Answer.", [ONE]))]


def test_nothing_learned_is_no_child() -> None:
    assert children(variant(instructions="Answer."), [rewrite("Answer.")], budget_tokens=8000) == []
    assert children(variant(instructions="Answer."), [rewrite("x", "another")], budget_tokens=8000) == []


def test_a_rewrite_cannot_drop_or_double_the_lessons_of_its_parent() -> None:
    start = variant(instructions=with_block("Answer.", [ONE, TWO], room_tokens=1000))
    (_, child), *_ = children(start, [rewrite("Answer well.")], budget_tokens=8000)
    assert split(child.text) == ("Answer well.", [ONE, TWO])
    copied = f"Answer well.\n\n{HEADING}\n- {TWO}"
    (_, again), *_ = children(start, [rewrite(copied)], budget_tokens=8000)
    assert split(again.text) == ("Answer well.", [ONE, TWO])


@given(st.integers(10, 400), st.integers(0, 60))
def test_no_child_is_over_the_budget(budget: int, count: int) -> None:
    told = [
        lesson(f"Rule R-{k:03d}: add {k} where the margin is under {k} %.", f"{k}@0", component=NAMES[k % 2])
        for k in range(count)
    ]
    start = variant(ask="Answer.", check="Check.")
    for _, child in children(start, [*told, rewrite("Answer it.", "ask")], budget_tokens=budget):
        assert estimate_tokens(child.text) <= budget


def test_a_joint_child_falls_apart_into_its_components() -> None:
    start = variant(ask="Ask.", check="Check.")
    joint = children(
        start, [rewrite("Ask more.", "ask"), rewrite("Check more.", "check")], budget_tokens=8000
    )
    found = parts(start, joint)
    assert [dict(child.components) for _, child in found] == [
        {"ask": "Ask more.", "check": "Check."},
        {"ask": "Ask.", "check": "Check more."},
    ]
    single = children(start, [rewrite("Ask more.", "ask")], budget_tokens=8000)
    assert parts(start, single) == []


@given(st.text(max_size=40), st.text(max_size=40))
def test_what_is_put_into_a_template_is_never_a_placeholder(current: str, side: str) -> None:
    tricky = f"{current}{SIDE}{CURRENT}"
    assert fill(f"a {CURRENT} b {SIDE} c", current=tricky, side=side) == f"a {tricky} b {side} c"


def test_templates_hold_both_placeholders() -> None:
    for template in (Templates().map, Templates().reduce, WHOLE_TEXTS.map, WHOLE_TEXTS.reduce):
        assert CURRENT in template and SIDE in template


def test_calls_hold_text_records_and_ids() -> None:
    from gepa_makers import answer

    (shown,) = GEPA.working(GEPA.initial("Answer."), budget_tokens=100, verify="Off")
    reflections = [
        GEPA.parse_reflection("", reflection_id=f"r-{k:05d}", trajectory=answer(str(k), 0.0))
        for k in range(3)
    ]
    said = GEPA.leaf_prompt(shown, reflections).messages[0].content
    assert "=====\nAnswer.\n=====" in said and said.count("[r-0000") == 3
    assert "Given: asked | Answered: worked 41 | Feedback: It is 42." in said
    reply = (
        '{"lessons": [{"text": "Say 42.", "records": ["r-00001", "r-99999"]}, '
        '{"text": "Made up.", "records": ["x"]}]}'
    )
    updates = GEPA.parse_leaf(reply, reflections=reflections, playbook=shown)
    assert updates == [Update("ADD", "instructions", "Say 42.", frozenset({"1@0"}), cited=frozenset({"1@0"}))]
    assert GEPA.carried_all(reflections, updates) == {"r-00001.*"}
    last = GEPA.merge_prompt(shown, updates).messages[0].content
    assert "- Say 42. (1 record)" in last
    (new,) = GEPA.parse_merge("Sure:\n```text\nSay 42.\n```\n", updates=updates, playbook=shown).updates
    assert (new.op, new.section, new.text) == ("UPDATE", "instructions", "Say 42.")
