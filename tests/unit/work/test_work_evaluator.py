"""Scores by a rubric: what the evaluator is shown, what its verdict means, and whether it may score."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.api.parts import Task as TaskSpec
from combee.errors import DataError, EndpointError, ManifestError, TransientError, VerdictError
from combee.methods.judging import Verdict, criteria_order, judge_prompt, parse_rubric
from combee.methods.protocol import ParseError, RolloutReply
from combee.pod.termination import permanent
from combee.records import Example, Prompt, Shown, Trajectory
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_of
from combee.work.calibrate import calibrated, check_opinion
from combee.work.evaluator import REFEREE
from combee.work.rollouts import scored

DATA = {"train": {"uri": "train.jsonl"}, "heldOut": {"uri": "heldout.jsonl"}}
CRITERIA = ("It answers first", "It names the term", "It is polite")
SPEC = TaskSpec.model_validate(
    {"type": "Reply", "data": DATA, "metric": "rubric", "rubric": {"criteria": CRITERIA}}
)
TASK = task_of(SPEC)
texts = st.text(max_size=60)
criteria = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=12)


def replied(order: tuple[int, ...], met: tuple[bool, ...], quality: float) -> str:
    fields = {f"criterion_{place}": met[index] for place, index in enumerate(order, 1)}
    return json.dumps({**fields, "quality": quality})


@given(criteria, texts, texts, st.data())
def test_a_verdict_comes_back_in_the_rubrics_order_and_is_a_share(
    rubric: list[str], question: str, answer: str, data: Any
) -> None:
    met = tuple(data.draw(st.lists(st.booleans(), min_size=len(rubric), max_size=len(rubric))))
    quality = data.draw(st.floats(0, 1))
    order = criteria_order(rubric, f"{question} {answer}")
    assert sorted(order) == list(range(len(rubric)))
    verdict = parse_rubric(replied(order, met, quality), order)
    assert verdict.met == met and 0 <= verdict.score <= 1
    assert verdict.score == pytest.approx((sum(met) + quality) / (len(met) + 1))


def test_no_criterion_has_a_place_of_its_own() -> None:
    first = {criteria_order(CRITERIA, f"question {n}")[0] for n in range(30)}
    assert first == {0, 1, 2}


@given(texts, texts)
def test_the_prompt_holds_all_criteria_in_that_order_and_quotes_the_rest(question: str, answer: str) -> None:
    told = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": question}]
    request = {"messages": told}
    prompt = judge_prompt(request, {"content": answer}, CRITERIA)
    system, user = (message.content for message in prompt.messages)
    places = [system.index(CRITERIA[index]) for index in criteria_order(CRITERIA, user)]
    assert places == sorted(places)
    assert "Be kind." in user and not any(one in user for one in CRITERIA if one not in question + answer)
    assert user == judge_prompt(request, {"content": answer}).messages[1].content


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("none", "no JSON object"),
        ('{"criterion_1": true, "quality": 1}', 'no field "criterion_2"'),
        ('{"criterion_1": "perhaps", "criterion_2": true, "quality": 1}', "neither true nor false"),
        ('{"criterion_1": true, "criterion_2": true, "quality": 2}', "not between 0 and 1"),
    ],
)
def test_what_is_no_verdict_is_no_score(reply: str, says: str) -> None:
    with pytest.raises(ParseError, match=says):
        parse_rubric(reply, (1, 0))


def test_the_feedback_is_the_rubrics_own_words() -> None:
    verdict = Verdict(0.625, (True, False, True))
    assert verdict.feedback(CRITERIA) == (
        "Not met: It names the term. Met: It answers first; It is polite. Score 0.62 of 1."
    )


class Asked:
    """An asker whose models say what ``verdict`` says of (role, prompt), as (met, quality)."""

    def __init__(self, verdict: Callable[[str, Prompt], tuple[tuple[bool, ...], float]]) -> None:
        self.verdict = verdict
        self.scored_by = "evaluator"
        self.prompts: list[tuple[str, Prompt]] = []

    async def ask(self, role: str, prompt: Prompt, parse: Callable[[str], Any], **_: Any) -> Any:
        self.prompts.append((role, prompt))
        met, quality = self.verdict(role, prompt)
        return parse(replied(tuple(range(len(met))), met, quality))


def context(train: Dataset | None = None, *, referee: bool = False) -> Any:
    async def rows() -> Dataset | None:
        return train

    quiet = SimpleNamespace(begin=lambda *_: None, advance=lambda *_: None, note=notes.append)
    notes.clear()
    models = SimpleNamespace(referee=object() if referee else None, evaluator=None)
    return SimpleNamespace(
        spec=SimpleNamespace(task=SPEC, models=models),
        task=TASK,
        data=SimpleNamespace(train=rows),
        progress=quiet,
        concurrency=8,
    )


notes: list[str] = []


def scored_with(asker: Any) -> Trajectory:
    example = Example("7", "Until when?", "", "d")
    reply = RolloutReply(" 45 days. ", "Thought hard.", ())
    return asyncio.run(scored(context(), asker, example, 0, reply, stage="map", chain=0))


@pytest.mark.parametrize(
    ("met", "quality", "score", "right"),
    [((True,) * 3, 1.0, 1.0, True), ((True, True, False), 1.0, 0.75, True), ((True,) * 3, 0.0, 0.75, True),
     ((True, False, False), 1.0, 0.5, False)],
)  # fmt: skip
def test_a_rollout_gets_the_evaluators_score_and_is_right_from_the_threshold_on(
    met: tuple[bool, ...], quality: float, score: float, right: bool
) -> None:
    trajectory = scored_with(Asked(lambda *_: (met, quality)))
    assert (trajectory.score, trajectory.correct, trajectory.answer) == (score, right, "45 days.")


def test_the_evaluator_sees_the_answer_and_nothing_of_how_it_came_about() -> None:
    asker = Asked(lambda *_: ((True,) * 3, 1.0))
    scored_with(asker)
    ((role, prompt),) = asker.prompts
    shown = "\n".join(message.content for message in prompt.messages)
    assert role == "evaluator" and "Until when?" in shown and "45 days." in shown
    assert TASK.instructions in shown and "Thought hard" not in shown


def test_a_verdict_that_cannot_be_used_is_no_wrong_answer() -> None:
    with pytest.raises(VerdictError, match=r"the evaluator gave no verdict: .* no field") as caught:
        scored_with(Asked(lambda *_: ((True,), 1.0)))
    assert permanent(caught.value), "the same model says the same once more"


def test_a_verdicts_form_allows_what_is_read_and_nothing_else() -> None:
    asker = Asked(lambda *_: ((True,) * 3, 1.0))
    scored_with(asker)
    ((_, prompt),) = asker.prompts
    quality = prompt.schema["properties"]["quality"]["enum"]
    assert quality[0] == 0 and quality[-1] == 1 and len(quality) == 11
    order = (0, 1, 2)
    assert [parse_rubric(replied(order, (False,) * 3, one), order).score * 4 for one in quality] == quality
    with pytest.raises(ParseError, match="not between 0 and 1"):
        parse_rubric(replied(order, (True,) * 3, -1.0), order)


def labelled(count: int) -> Dataset:
    rows = [
        {"context": f"q{n}", "answer": f"answer {n}", "label": n % 5 / 4, "id": f"t{n}"} for n in range(count)
    ]
    return TASK.read_rows([json.dumps(row).encode() + b"\n" for row in rows], "t.jsonl")


def number_in(prompt: Prompt) -> int:
    return int(prompt.messages[-1].content.rpartition("answer ")[2].split("\n")[0])


def compared(asker: Any, of: Any, answered: Any = ()) -> Any:
    return asyncio.run(calibrated(of, asker, answered, Shown("")))


def test_labels_are_read_and_pinned() -> None:
    data = labelled(5)
    assert [one.label for one in data.labelled] == [0.0, 0.25, 0.5, 0.75, 1.0]
    bare = TASK.read_rows([b'{"context": "q0"}\n'], "t.jsonl")
    other = TASK.read_rows([b'{"context": "q0", "answer": "a", "label": 1}\n'], "t.jsonl")
    assert bare.examples == other.examples and bare.digest != other.digest and not bare.labelled
    for row, says in (('"label": 2, "answer": "a"', "no number from 0 to 1"), ('"label": 1', "no answer")):
        with pytest.raises(DataError, match=says):
            TASK.read_rows([f'{{"context": "q", {row}}}\n'.encode()], "t.jsonl")


def test_an_evaluator_that_orders_as_people_do_is_calibrated_on_the_first_look() -> None:
    asker = Asked(lambda _, prompt: ((number_in(prompt) % 5 >= 2,) * 3, number_in(prompt) % 5 / 4))
    found = compared(asker, context(labelled(200)))
    assert found.verdict == "Calibrated" and found.pairs == len(asker.prompts) == 50 and not notes


def test_one_that_orders_otherwise_is_found_out() -> None:
    asker = Asked(lambda _, prompt: ((number_in(prompt) % 7 >= 3,) * 3, number_in(prompt) % 7 / 6))
    found = compared(asker, context(labelled(200)))
    assert found.verdict == "NotCalibrated" and "all of its interval lies below 0.7" in str(found)


def test_one_that_always_says_the_same_tells_nothing_and_a_person_is_told() -> None:
    asker = Asked(lambda *_: ((True,) * 3, 1.0))
    found = compared(asker, context(labelled(120)))
    assert found.verdict == "Inconclusive" and found.pairs == 120
    assert "nearly all equal" in notes[0] and "give more rows" in notes[0]


def test_a_referee_scores_the_same_answers_and_lost_ones_are_left_out() -> None:
    def answered(n: int) -> tuple[Example, Trajectory]:
        example = Example(f"s{n}", f"q{n}", "", f"d{n}")
        lost = {"error": "Transient"} if n % 10 == 9 else {}
        return example, Trajectory(f"s{n}@0", f"s{n}", "", "", f"answer {n}", n % 5 / 4, False, "", **lost)

    asker = Asked(lambda _, prompt: ((number_in(prompt) % 5 >= 2,) * 3, number_in(prompt) % 5 / 4))
    bare = TASK.read_rows([b'{"context": "q0"}\n'], "t.jsonl")
    found = compared(asker, context(bare, referee=True), [answered(n) for n in range(120)])
    assert {role for role, _ in asker.prompts} == {REFEREE}
    assert found.verdict == "Calibrated" and found.pairs == len(asker.prompts) == 90


def answered(n: int) -> tuple[Example, Trajectory]:
    return Example(f"s{n}", f"q{n}", "", f"d{n}"), Trajectory(
        f"s{n}@0", f"s{n}", "", "", f"answer {n}", n % 5 / 4, False, ""
    )


@pytest.mark.parametrize(("lost", "fails"), [(25, False), (26, True)])
@pytest.mark.parametrize("role", ["evaluator", REFEREE])
def test_verdicts_that_most_came_to_nothing_are_the_endpoints_fault(
    role: str, lost: int, fails: bool
) -> None:
    """More rows, which an inconclusive calibration asks for, would not mend it."""

    def says(asked: str, prompt: Prompt) -> tuple[tuple[bool, ...], float]:
        if number_in(prompt) % 50 < lost:
            raise TransientError("no answer (503)")
        return (number_in(prompt) % 5 >= 2,) * 3, number_in(prompt) % 5 / 4

    bare = Dataset((), "d")
    by_referee = role == REFEREE
    asked = context(bare if by_referee else labelled(50), referee=by_referee)
    rows = [answered(n) for n in range(50)] if by_referee else []
    if not fails:
        assert compared(Asked(says), asked, rows).verdict == "Inconclusive"
        return
    with pytest.raises(
        EndpointError, match=r"26 of 50 verdicts .* came to nothing: no answer \(503\)"
    ) as caught:
        compared(Asked(says), asked, rows)
    assert caught.value.where == f"spec.models.{role}"


@pytest.mark.parametrize("role", ["evaluator", REFEREE])
def test_a_model_that_gives_no_verdicts_may_not_score(role: str) -> None:
    def says(asked: str, prompt: Prompt) -> tuple[tuple[bool, ...], float]:
        return (True,) * 3, -1.0 if number_in(prompt) < 40 else 1.0

    by_referee = role == REFEREE
    asked = context(Dataset((), "d") if by_referee else labelled(50), referee=by_referee)
    rows = [answered(n) for n in range(50)] if by_referee else []
    with pytest.raises(VerdictError, match=rf"40 of 50 answers .* the {role} gave no verdict: .* 0 and 1"):
        compared(Asked(says), asked, rows)


def test_without_labels_and_referee_nothing_is_spent() -> None:
    bare = TASK.read_rows([b'{"context": "q0"}\n'], "t.jsonl")
    with pytest.raises(ManifestError, match="nothing to calibrate the evaluator with"):
        asyncio.run(check_opinion(context(bare)))
    asyncio.run(check_opinion(context(bare, referee=True)))
    asyncio.run(check_opinion(context(labelled(1))))
