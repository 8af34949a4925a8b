"""A method's verification runs round after round, and each answer has its place whatever comes back when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from combee.methods.verification import Page, Rollout, Round, Verified, Verifying
from combee.records import Example, Shown, Trajectory
from combee.work import rollouts, verify

TRAIN = [Example(str(k), f"question {k}", "42", "") for k in range(3)]
SELECT = [Example(f"s{k}", f"select {k}", "42", "") for k in range(2)]


class Quiet:
    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []

    def begin(self, stage: str, total: int) -> None:
        self.stages.append((stage, total))

    def advance(self, units: int = 1) -> None: ...
    def note(self, text: str) -> None: ...


class Data:
    async def train(self) -> Any:
        return SimpleNamespace(examples=TRAIN)


async def test_rounds_follow_each_other_and_answers_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, str, int]] = []

    async def rollout(
        _context: Any,
        _asker: Any,
        example: Example,
        shown: Shown,
        *,
        stage: str,
        chain: int,
        split: str,
        epoch: int,
        least_temperature: float,
    ) -> Trajectory:
        text = shown.text
        for _ in range(5 - chain):  # the first ones answer last
            await asyncio.sleep(0)
        asked.append((stage, example.id, text, epoch))
        return Trajectory(f"{example.id}@{epoch}", example.id, "", text, "", 1.0, True, "")

    async def split(_context: Any) -> tuple[list[Example], list[Example]]:
        return SELECT, []

    monkeypatch.setattr(verify, "rollout", rollout)
    monkeypatch.setattr(verify, "held_out_split", split)
    seen: list[list[tuple[str, str]]] = []

    def method() -> Verifying[str]:
        shared = "the text that all share"
        pages = [Page.of(f"{shared} {k}", shared) for k in range(2)]
        answers: Sequence[Trajectory] = yield Round("first", (Rollout("2", pages[0]), Rollout("0", pages[1])))
        seen.append([(one.example_id, one.output) for one in answers])
        rollouts = (Rollout("1", pages[0], 1000), Rollout("s1", pages[0], of="select"))
        answers = yield Round("second", rollouts, sweep=tuple(pages))
        seen.append([(one.example_id, one.output[-1]) for one in answers])
        return Verified("done", 2, 1, 1)

    progress = Quiet()
    context: Any = SimpleNamespace(data=Data(), progress=progress, concurrency=4)
    plan: Any = SimpleNamespace(epoch=3)
    tried = await verify.run_verification(context, None, plan, method(), {})  # type: ignore[arg-type]
    assert tried == Verified("done", 2, 1, 1)
    assert seen[0] == [("2", "the text that all share 0"), ("0", "the text that all share 1")]
    assert seen[1] == [("1", "0"), ("s1", "0"), ("s0", "0"), ("s1", "0"), ("s0", "1"), ("s1", "1")]
    assert [example for stage, example, *_ in asked if stage == "first"] == ["0", "2"], "the first came last"
    assert {(stage, example, epoch) for stage, example, _, epoch in asked} == {
        ("first", "2", 3),
        ("first", "0", 3),
        ("second", "1", 1030),
        ("second", "s0", 0),
        ("second", "s1", 0),
    }
    assert len(asked) == 7, "what is asked twice in a round is asked once"
    assert progress.stages == [("first", 2), ("second", 5)]


async def test_what_the_map_has_answered_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    async def rollout(_context: Any, _asker: Any, example: Example, _shown: Shown, **how: Any) -> Trajectory:
        asked.append((example.id, how["epoch"]))
        return Trajectory("", example.id, "", "asked", "", 1.0, True, "")

    monkeypatch.setattr(verify, "rollout", rollout)
    page = Page.of("what the agents saw", "")
    mapped = Trajectory("1@3", "1", "", "mapped", "", 1.0, True, "")
    known = {("1", TRAIN[1].digest, page.shown, 3): mapped}

    def method() -> Verifying[str]:
        other = Page.of("another text", "")
        tries = (Rollout("1", page), Rollout("2", page), Rollout("1", page, 1), Rollout("1", other))
        return Verified(" ".join(one.output for one in (yield Round("replay", tries))))

    context: Any = SimpleNamespace(data=Data(), progress=Quiet(), concurrency=4)
    plan: Any = SimpleNamespace(epoch=3)
    tried = await verify.run_verification(context, None, plan, method(), known)  # type: ignore[arg-type]
    assert tried.artifact == "mapped asked asked asked"
    assert sorted(asked) == [("1", 3), ("1", 31), ("2", 3)]


async def test_a_verification_that_asks_nothing_costs_nothing() -> None:
    def method() -> Verifying[str]:
        return Verified("as it was")
        yield

    nothing: Any = None
    assert (await verify.run_verification(nothing, nothing, nothing, method(), {})).artifact == "as it was"


async def test_what_is_known_of_a_text_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def rollout(_context: Any, _asker: Any, example: Example, _shown: Shown, **_: Any) -> Trajectory:
        asked.append(example.id)
        return Trajectory(f"{example.id}@0", example.id, "", "", "", 1.0, True, "", partial=0.5)

    monkeypatch.setattr(rollouts, "rollout", rollout)
    progress = Quiet()
    context: Any = SimpleNamespace(progress=progress, concurrency=4)
    nobody: Any = None
    found = await rollouts.evaluate(
        context, nobody, TRAIN, Shown("text"), stage="select", known={"1": (0.0, 0.2), "another": (1.0, 1.0)}
    )
    assert found.by_id == {"0": 1.0, "1": 0.0, "2": 1.0}
    assert found.partial == pytest.approx((0.5 + 0.2 + 0.5) / 3)
    assert sorted(asked) == ["0", "2"] and progress.stages == [("select", 2)]
