"""The FiNER task: four tags a row; missing ones wrong, extra ones wrong, partial credit beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import DataError
from combee.records import Example
from combee.tasks.dataset import overlap
from combee.tasks.finer import MAX_ANSWER, FinerTask, tags_of
from combee.tasks.protocol import Task

TASK: Task = FinerTask()
FOUR = "LongTermDebt,Goodwill,DebtInstrumentFaceAmount,Revenues"
DATA = Path(__file__).resolve().parents[3] / "examples" / "data" / "finer"


def wanting(target: str) -> Example:
    return Example("1", "q", target, "d")


SAME = [
    FOUR,
    "LongTermDebt, Goodwill ,  DebtInstrumentFaceAmount, Revenues.",
    "LongTermDebt\nGoodwill\n\nDebtInstrumentFaceAmount\nRevenues\n",
    "LongTermDebt,\r\nGoodwill,\r\nDebtInstrumentFaceAmount,\r\nRevenues",
    "LongTermDebt; Goodwill; DebtInstrumentFaceAmount; Revenues",
    '["LongTermDebt", "Goodwill", "DebtInstrumentFaceAmount", "Revenues"]',
    "['LongTermDebt', 'Goodwill', 'DebtInstrumentFaceAmount', 'Revenues']",
    '```json\n[\n  "LongTermDebt",\n  "Goodwill",\n  "DebtInstrumentFaceAmount",\n  "Revenues"\n]\n```',
    '{"tags": ["LongTermDebt", "Goodwill", "DebtInstrumentFaceAmount", "Revenues"]}',
    '{"1": "LongTermDebt", "2": "Goodwill", "3": "DebtInstrumentFaceAmount", "4": "Revenues"}',
    "us-gaap:LongTermDebt, us-gaap:Goodwill, US-GAAP:DebtInstrumentFaceAmount, us-gaap_Revenues",
    "1. LongTermDebt\n2. Goodwill\n3) DebtInstrumentFaceAmount\n4. Revenues",
    "1. us-gaap:LongTermDebt\n2. `Goodwill`\n3. **DebtInstrumentFaceAmount**\n4. Revenues (the total)",
    "- LongTermDebt\n- Goodwill\n- DebtInstrumentFaceAmount\n- Revenues",
    "The tags are:\nLongTermDebt, Goodwill, DebtInstrumentFaceAmount, Revenues",
    "The debt is long-term, and so on.\nAnswer: LongTermDebt,Goodwill,DebtInstrumentFaceAmount,Revenues",
    "Output US GAAP tags: LongTermDebt,Goodwill,DebtInstrumentFaceAmount,Revenues",
    "Long Term Debt, Goodwill, Debt Instrument Face Amount, Revenues",
    "The first is LongTermDebt, Goodwill, DebtInstrumentFaceAmount, Revenues",
]


@pytest.mark.parametrize("text", SAME)
def test_one_spelling_of_many(text: str) -> None:
    assert TASK.parse_answer(text) == FOUR
    assert TASK.score(text, wanting(FOUR)).correct


def test_and_joins_only_tags() -> None:
    assert tags_of("LongTermDebt, Goodwill and DebtInstrumentFaceAmount") == FOUR.split(",")[:3]
    assert tags_of("LongTermDebt, Goodwill, and DebtInstrumentFaceAmount") == FOUR.split(",")[:3]
    assert tags_of("Property plant and equipment useful life") == ["Propertyplantandequipmentusefullife"]


VERDICTS = [
    (FOUR, 1.0, 1.0, f"Right: expected {FOUR}."),
    (FOUR.upper(), 1.0, 1.0, f"Right: expected {FOUR}."),
    (FOUR.replace("Goodwill", "Cash"), 0.0, 0.75, "3 of 4 tags are right; wrong at position 2."),
    ("LongTermDebt,Goodwill,DebtInstrumentFaceAmount", 0.0, 0.75,
     "3 of 4 tags are right; 1 missing at the end."),
    (FOUR + ",Revenues", 0.0, 0.8, "4 of 4 tags are right; 1 too many."),
    (",".join([FOUR] * 2), 0.0, 0.5, "4 of 4 tags are right; 4 too many."),
    ("LongTermDebt,,DebtInstrumentFaceAmount,Revenues", 0.0, 0.75, "wrong at position 2."),
    ("Goodwill,LongTermDebt,Revenues,DebtInstrumentFaceAmount", 0.0, 0.0, "wrong at position 1, 2, 3, 4."),
    ("LongTermDebt", 0.0, 0.25, "1 of 4 tags are right; 3 missing at the end."),
    ("", 0.0, 0.0, "the answer holds no tag."),
    (" ,, ? ", 0.0, 0.0, "the answer holds no tag."),
    ("__import__('os').system('true')", 0.0, 0.0, "missing"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "value", "partial", "feedback"), VERDICTS)
def test_exact_and_partial(answer: str, value: float, partial: float, feedback: str) -> None:
    score = TASK.score(answer, wanting(FOUR))
    assert (score.value, score.correct) == (value, value == 1.0)
    assert score.partial == pytest.approx(partial)
    assert score.feedback.endswith(feedback) or feedback in score.feedback
    assert FOUR in score.feedback


def test_a_target_is_taken_as_it_stands_whatever_its_length() -> None:
    assert TASK.score("goodwill", wanting("us-gaap:Goodwill")).correct
    assert TASK.score("A1,B2", wanting("A1, B2")).correct
    assert not TASK.score("A1,B2", wanting("A1")).correct
    unfit = TASK.score("x", wanting("two words"))
    assert (unfit.value, unfit.partial) == (0.0, None)


@pytest.mark.parametrize("target", ["a, ,b", "A,", "12", "two words", "A;B", '["A"]'])
def test_a_target_that_is_no_list_of_tags_is_refused_by_line(target: str) -> None:
    row = json.dumps({"context": "q", "target": target}).encode()
    with pytest.raises(DataError, match=r"t\.jsonl:1: target is not a list of tags"):
        TASK.read_rows([row], "t.jsonl")


words = st.text(alphabet="aB1 ,;\n\r[](){}\"'`:.-_&?and us-gaap", max_size=80) | st.text(max_size=120)


@given(words, st.text(max_size=30))
def test_parsing_is_idempotent_and_scoring_never_raises(text: str, target: str) -> None:
    answer = TASK.parse_answer(text)
    assert TASK.parse_answer(answer) == answer
    assert TASK.score(text, wanting(target)) == TASK.score(answer, wanting(target))


@given(
    st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=6), st.permutations(["A", "B", "C", "D"])
)
def test_only_the_whole_target_is_right_and_partial_is_a_share(answer: list[str], target: list[str]) -> None:
    score = TASK.score(",".join(answer), wanting(",".join(target)))
    assert score.correct == (answer == target)
    same = sum(one == other for one, other in zip(answer, target, strict=False))
    assert score.partial == pytest.approx(same / max(len(answer), len(target)))


def test_a_long_answer_is_bounded() -> None:
    assert len(TASK.parse_answer("Goodwill," * 100_000)) <= MAX_ANSWER
    assert TASK.score("Goodwill," * 100_000, wanting("Goodwill")).partial < 0.01


def test_the_data_that_ships() -> None:
    splits = [TASK.read_rows((DATA / f"{name}.jsonl").open("rb"), name) for name in ("train", "heldout")]
    assert [len(split.examples) for split in splits] == [349, 150]
    assert overlap(*splits) == ()
    for example in splits[0].examples + splits[1].examples:
        assert TASK.score(example.target, example).correct
        assert TASK.parse_answer(example.target) == example.target
        assert len(tags_of(example.target)) == 4
