"""A whole iteration, map to finish: what it learned and what it cost, whatever the number of pods."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from test_work_stealing import ALONE, Client, planned, pod

from combee.clients.model.chat import ChatRequest
from combee.clients.model.wire import Completion
from combee.methods.ace import AceMethod
from combee.methods.protocol import Update
from combee.plan.types import Step, StepSummary
from combee.records import Lesson, Reflection
from combee.work.finish import run_finish
from combee.work.map import run_map
from combee.work.reduce import run_reduce
from combee.work.retention import Lessons

ITEM = re.compile(r"^\[(r-\d{5})\]", re.M)
LESSON = re.compile(r"^- lesson: (.*)$", re.M)


@dataclass
class Model:
    """Reflects each question with a number of its own; of a call's lessons it keeps the first two. Its first
    answer takes ``first_seconds``, each other one a millisecond."""

    asked: list[ChatRequest] = field(default_factory=list)
    first_seconds: float = 0.001

    async def make(self, request: ChatRequest) -> Completion:
        self.asked.append(request)
        words = request.prompt.messages[-1].content
        if items := ITEM.findall(words):
            entries = [
                {"op": "ADD", "section": "strategies", "text": text, "reflections": [item]}
                for item, text in list(zip(items, LESSON.findall(words), strict=True))[:2]
            ]
            said = json.dumps({"entries": entries})
        else:
            number = re.findall(r"What is (\d+)", words)[-1]
            lesson = f"For the question F{number} use a rate of {100 + int(number)} points"
            said = json.dumps({"final_answer": "1", "lessons": [lesson], "diagnosis": "x"})
        seconds = self.first_seconds if len(self.asked) == 1 else 0.001
        return Completion(said, 10, 5, 0, seconds, "stop", 1)


async def iteration(
    folder: Path, shards: int, first_seconds: float = 0.001
) -> tuple[StepSummary, list[StepSummary], Model]:
    """What finish and the steps before it left."""
    context, _ = pod(folder)
    model = Model(first_seconds=first_seconds)
    for client in context.clients.values():
        assert isinstance(client, Client)
        client._answers = model  # type: ignore[assignment]
    plan, mapping = planned()
    plan = replace(plan, shards=shards, evaluate=False, redundancy="Duplicate", copies=1, leaf_size=4)
    before = [await run_map(context, mapping, plan, shard, ALONE) for shard in range(shards)]
    reduce = Step("run-i000-reduce-a0", "reduce", 0, plan.seed, inputs={"map": mapping.name})
    before.append(await run_reduce(context, reduce, plan, ALONE))
    inputs = {"map": mapping.name, "reduce": reduce.name}
    finish = Step("run-i000-finish-a0", "finish", 0, plan.seed, inputs=inputs)
    return await run_finish(context, finish, plan, AceMethod().empty(), ALONE), before, model


@pytest.mark.parametrize("shards", [2, 5])
async def test_the_number_of_pods_changes_nothing_of_what_is_learned(tmp_path: Path, shards: int) -> None:
    alone, _, _ = await iteration(tmp_path / "alone", 1)
    several, _, _ = await iteration(tmp_path / "several", shards)
    assert alone.counts["lessons"] == 24 > alone.counts["carried"] > 0
    assert several.outputs["artifact"] == alone.outputs["artifact"]
    assert several.counts == alone.counts


async def test_an_iteration_is_charged_for_every_call_of_its_steps(tmp_path: Path) -> None:
    done, before, model = await iteration(tmp_path, 3)
    calls = sum(usage.calls for usage in done.usage.values())
    tokens = sum(usage.tokens for usage in done.usage.values())
    assert calls == len(model.asked) > sum(u.calls for one in before for u in one.usage.values())
    assert tokens == 15 * calls
    assert done.counts["rollouts"] == done.usage["task"].calls > 24
    assert done.seconds["busy"] == pytest.approx(0.001 * calls)
    assert 0.001 < done.seconds["path"] <= done.seconds["modelled"] < done.seconds["busy"]


async def test_what_is_observed_of_an_iteration_is_its_critical_path_with_its_slowest_call(
    tmp_path: Path,
) -> None:
    usual, _, model = await iteration(tmp_path / "usual", 1)
    slow, _, _ = await iteration(tmp_path / "slow", 1, first_seconds=60.0)
    (size, seconds), (_, slow_seconds) = *usual.observations, *slow.observations
    assert size == usual.counts["examples"]
    assert 0 < seconds < 1 < 60 <= slow_seconds == pytest.approx(60, abs=1)
    assert usual.counts["calls"] == slow.counts["calls"] == len(model.asked)


def sent_again(reflections: list[Reflection], updates: list[Update]) -> list[int]:
    return Lessons.of(reflections).to_send_again(AceMethod().carried_all(reflections, updates))


def test_a_reflection_is_sent_again_as_long_as_one_of_its_lessons_is_missing() -> None:
    texts = ["For ROI use a rate of 15%", "For EBITDA subtract 200"]
    lessons = tuple(Lesson(f"r-00000.{n}", text) for n, text in enumerate(texts))
    reflection = Reflection("r-00000", "1@0", False, "It went astray.", lessons)
    updates = [Update("ADD", "strategies", text, frozenset({"1@0"})) for text in texts]
    assert sent_again([reflection], []) == [0]
    assert sent_again([reflection], updates[:1]) == [0]
    assert sent_again([reflection], updates) == []


def test_a_lesson_that_two_others_carry_is_not_sent_again() -> None:
    reflections = [
        Reflection(f"r-{n}", f"{n}@0", False, "It went astray.", (Lesson(f"r-{n}.1", "For ROI use 15%"),))
        for n in range(4)
    ]
    update = Update("ADD", "strategies", "For ROI use 15%", frozenset({"0@0"}))
    assert sent_again(reflections, [update]) == [1, 2, 3]
    carried = replace(update, sources=frozenset({"0@0", "2@0"}))
    assert sent_again(reflections, [carried]) == []
