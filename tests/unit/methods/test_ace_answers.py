"""Reading what models answer: tolerant in form, strict in what is believed."""

from __future__ import annotations

import json

import pytest
from ace_makers import ACE, add, learn, playbook, reflection, trajectory
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.methods.ace.entries import entry_digest
from combee.methods.protocol import ParseError, Rendered, Update
from combee.methods.replies import repair_prompt

LEDGER = learn(add("Use 365 days", "1@1", "2@1"), add("Round to 2 decimals", "1@1", "2@1"))
BOOK = playbook(LEDGER)
DAYS, ROUND = (f"stra-{entry_digest(t)[:6]}" for t in ("Use 365 days", "Round to 2 decimals"))
SEEN = [
    reflection(1, "For EBITDA add back 3 leases"),
    reflection(2, "With EBITDA, add back the 3 leases"),
    reflection(3, "Take tax of 21% off"),
]


def leaf(*entries: dict[str, object]) -> list[Update]:
    return ACE.parse_leaf(json.dumps({"entries": entries}), reflections=SEEN, playbook=BOOK)


def entry(**fields: object) -> dict[str, object]:
    return {
        "op": "ADD",
        "section": "calc",
        "text": "For EBITDA add back 3 leases",
        "reflections": ["r-00001"],
    } | fields


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"reasoning": "x", "bullets": [], "answer": "42"}', "42"),
        ('```json\n{"answer": 42}\n```', "42"),
        ('Sure! Here it is:\n{"answer": 4.5, "reasoning": "a"}\nBye', "4.5"),
        ('{"reasoning": "cut", "answer": "12.5', "12.5"),
        ('{"final_answer": ["A", "B"]}', "A, B"),
        ("  42 \n", "42"),
        ("\\frac{1}{2}", "\\frac{1}{2}"),
        ("The answer is **12.5**", "The answer is **12.5**"),
    ],
)
def test_rollouts_are_read_in_every_form(text: str, answer: str) -> None:
    assert ACE.parse_rollout(text).answer == answer


@pytest.mark.parametrize(
    "text", ["", "   ", '{"reasoning": "cut off', '{"answer": ""}', '{"answer": null}', "```json\n{}\n```"]
)
def test_a_rollout_without_an_answer_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        ACE.parse_rollout(text)


def test_cited_bullets_are_bared_and_unique() -> None:
    reply = ACE.parse_rollout('{"answer": "1", "bullets": ["[calc-1]", "calc-1", " x-2 ", ""]}')
    assert reply.cited == ("calc-1", "x-2")


@given(st.text(max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_is_an_answer_or_a_parse_error(text: str) -> None:
    for read in (
        lambda: ACE.parse_rollout(text),
        lambda: ACE.parse_leaf(text, reflections=SEEN, playbook=BOOK),
        lambda: ACE.parse_merge(text, updates=[add("x")], playbook=BOOK),
        lambda: ACE.parse_reflection(text, reflection_id="r-1", trajectory=trajectory("1@1")),
    ):
        try:
            read()
        except ParseError as error:
            assert str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["entries", "op", "text", "section", "bullets", "reflections", "tags", "lessons",
         "id", "answer"]), inner, max_size=4
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_any_json_is_read_or_a_parse_error(value: object) -> None:
    text = json.dumps(value)
    for read in (
        lambda: ACE.parse_rollout(text),
        lambda: ACE.parse_leaf(text, reflections=SEEN, playbook=BOOK),
        lambda: ACE.parse_merge(text, updates=[add("x")], playbook=BOOK),
        lambda: ACE.parse_reflection(text, reflection_id="r-1", trajectory=trajectory("1@1")),
    ):
        try:
            read()
        except ParseError:
            pass


def test_a_reflection_is_read_with_lessons_and_tags() -> None:
    text = json.dumps(
        {
            "diagnosis": "Went\nwrong",
            "lessons": ["Use 365 days", "", "Use 365 days", {"text": "Round"}],
            "tags": [{"id": "[calc-1]", "verdict": "Helpful"}, {"id": "x", "verdict": "nonsense"}, "junk"],
        }
    )
    got = ACE.parse_reflection(text, reflection_id="r-00007", trajectory=trajectory("7@2"))
    assert (got.id, got.trajectory_id, got.text, got.correct) == ("r-00007", "7@2", "Went wrong", False)
    assert [(lesson.id, lesson.text) for lesson in got.lessons] == [
        ("r-00007.1", "Use 365 days"),
        ("r-00007.2", "Round"),
    ]
    assert got.tags == (("calc-1", "helpful"),)


@pytest.mark.parametrize("text", ["", "no json", "{}", '{"diagnosis": ""}', "[1, 2]"])
def test_a_reflection_of_nothing_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        ACE.parse_reflection(text, reflection_id="r-1", trajectory=trajectory("1@1"))


def test_only_existing_reflections_are_sources_and_each_must_hold_the_anchors() -> None:
    [got] = leaf(entry(reflections=["[r-00001]", "r-00002.1", "r-00099", "r-00003"]))
    assert got.sources == {"1@1", "2@1"}
    assert got.cited == {"1@1", "2@1", "3@1"}


def test_an_entry_that_cites_nothing_real_is_dropped() -> None:
    assert leaf(entry(reflections=["r-00099"]), entry(reflections=[]), entry(text="  ")) == []


def test_an_entry_with_made_up_figures_or_folded_rules_keeps_one_source_for_replay_to_judge() -> None:
    [made_up] = leaf(entry(text="For EBITDA add back 9 leases", reflections=["r-00002", "r-00001"]))
    assert made_up.sources == {"2@1"}
    [folded] = leaf(
        entry(text="EBITDA: add back 3 leases, and take 21% tax off", reflections=["r-00001", "r-00003"])
    )
    assert folded.sources == {"1@1"} and folded.cited == {"1@1", "3@1"}


@pytest.mark.parametrize(
    ("op", "bullets", "want"),
    [
        ("UPDATE", [DAYS], ("UPDATE", 1)),
        ("update", [f"[{DAYS}]"], ("UPDATE", 1)),
        ("UPDATE", ["nope-1"], ("ADD", 0)),
        ("UPDATE", [DAYS, ROUND], ("MERGE", 2)),
        ("MERGE", [DAYS, ROUND], ("MERGE", 2)),
        ("MERGE", [DAYS, "nope-1"], ("UPDATE", 1)),
        ("MERGE", [], ("ADD", 0)),
        ("ADD", [DAYS], ("ADD", 0)),
        ("invent", [], ("ADD", 0)),
        ("DELETE", ["nope-1"], None),
        ("DELETE", [DAYS], ("DELETE", 1)),
    ],
)
def test_operations_and_bullets_are_made_consistent(
    op: str, bullets: list[str], want: tuple[str, int] | None
) -> None:
    got = [(u.op, len(u.base)) for u in leaf(entry(op=op, bullets=bullets))]
    assert got == ([want] if want else [])


def test_a_delete_of_two_bullets_is_two_deletes() -> None:
    assert [u.base for u in leaf(entry(op="DELETE", bullets=[DAYS, ROUND]))] == [
        (d,) for d in sorted((BOOK.ids[DAYS], BOOK.ids[ROUND]))
    ]


def test_merged_entries_have_the_sources_and_bases_of_what_they_take_in() -> None:
    base = BOOK.ids[DAYS]
    members = [add("a", "1@1"), Update("UPDATE", "s", "b", frozenset({"2@1"}), (base,))]
    text = json.dumps(
        {
            "entries": [
                {"op": "ADD", "section": "s", "text": "ab", "entries": ["u-1", "[u-2]", "u-9"], "bullets": []}
            ]
        }
    )
    merged = ACE.parse_merge(text, updates=members, playbook=Rendered("", 0))
    [got] = merged.updates
    assert merged.unknown_ids == 1
    assert (got.op, got.base, got.sources) == ("UPDATE", (base,), {"1@1", "2@1"})


def test_the_repair_round_shows_what_was_wrong_once() -> None:
    prompt = ACE.leaf_prompt(BOOK, SEEN)
    again = repair_prompt(prompt, "x" * 100_000, "the JSON object is cut")
    assert again.messages[:2] == prompt.messages and again.schema == prompt.schema
    assert [m.role for m in again.messages] == ["system", "user", "assistant", "user"]
    assert len(again.messages[2].content) < 10_000 and "the JSON object is cut" in again.messages[3].content
