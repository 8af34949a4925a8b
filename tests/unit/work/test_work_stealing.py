"""A pod that is done answers other shards' calls from their far ends; the owner finds them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from combee.api.load import parse_run
from combee.clients.model.chat import ChatClient, ChatRequest, Endpoint
from combee.clients.model.limits import RunLimits
from combee.clients.model.memo import Memo
from combee.clients.model.wire import Completion
from combee.clients.store.store import Store
from combee.errors import EndpointError
from combee.methods.ace import AceMethod
from combee.methods.protocol import Rendered
from combee.plan.decide import iteration_plan
from combee.plan.state import DataFacts, RunState
from combee.plan.types import Step
from combee.tasks.dataset import Dataset
from combee.tasks.registry import task_for
from combee.work.context import WorkContext, read_receipt
from combee.work.map import dealt, help_others, members, run_map
from combee.work.pieces import Claims

ROWS = 24
ALONE = [Rendered("", 0)]
MODEL = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}


def spec():
    return parse_run(
        {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": "run"},
            "spec": {
                "task": {"type": "Formula", "data": {"train": {"uri": "t"}, "heldOut": {"uri": "h"}}},
                "method": {"type": "ACE"},
                "models": {"task": MODEL, "proposer": MODEL},
                "batching": {"mode": "Fixed", "size": ROWS, "reason": "test"},
                "workers": {"parallelism": 2},
            },
        },
        "test",
    ).spec


@dataclass
class Answers:
    """Answers every call once it may: what a slow pod and a quick one share is the store."""

    go: asyncio.Event
    asked: list[str] = field(default_factory=list)

    async def make(self, request: ChatRequest) -> Completion:
        await self.go.wait()
        self.asked.append(request.prompt.messages[-1].content)
        return Completion(
            '{"final_answer": "1", "lessons": ["Divide first."], "diagnosis": "x"}',
            10,
            5,
            0,
            0.0,
            "stop",
            1,
        )


class Client(ChatClient):
    """A real client with memo, limits and records, whose requests a function answers: two pods of
    unequal speed cannot be made from one server."""

    def __init__(self, answers: Answers, role: str, memo: Memo) -> None:
        super().__init__(Endpoint("http://localhost:1/v1", "m"), role, memo, RunLimits(4))
        self._answers = answers

    async def _attempt(self, request, asked, quirks, call):
        call.attempts += 1
        return await self._answers.make(request)


class Data:
    def __init__(self) -> None:
        rows = [f'{{"context": "What is {n} + 1?", "target": "{n + 1}"}}'.encode() for n in range(ROWS)]
        self.rows: Dataset = task_for("Formula").read_rows(rows, "rows")

    async def train(self) -> Dataset:
        return self.rows


class Quiet:
    def begin(self, stage: str, total: int) -> None: ...
    def advance(self, units: int = 1) -> None: ...
    def note(self, text: str) -> None: ...


def pod(folder: Path, *, slow: bool = False) -> tuple[WorkContext, Answers]:
    store, answers = Store.open(str(folder)), Answers(asyncio.Event())
    if not slow:
        answers.go.set()
    memo = Memo(store)
    clients = {role: Client(answers, role, memo) for role in ("task", "proposer")}
    context = WorkContext(
        spec(),
        "runs/run",
        store,
        clients,
        task_for("Formula"),
        AceMethod(),
        Data(),
        4,
        8,
        time.monotonic,
        Quiet(),
    )
    return context, answers


def planned():
    facts = DataFacts(ROWS, 10, 10, 0, {})
    # Leaves of two are the reduce's; those of one are made in the map, see test_work_leaves.
    plan = replace(iteration_plan(spec(), RunState(phase="Learning", facts=facts)), leaf_size=2)
    return plan, Step("run-i000-map-a0", "map", 0, plan.seed, shards=plan.shards)


async def test_a_finished_pod_takes_work_from_the_far_end_and_nothing_is_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody dies here: an owner that loses patience with a helper on a busy machine would ask again itself.
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 3600.0)
    plan, step = planned()
    slow, slow_answers = pod(tmp_path, slow=True)
    quick, quick_answers = pod(tmp_path)

    async def quick_pod() -> int:
        try:
            await run_map(quick, step, plan, 1, ALONE)
            return await help_others(quick, step, plan, 1, ALONE)
        finally:
            slow_answers.go.set()

    summary, taken = await asyncio.gather(run_map(slow, step, plan, 0, ALONE), quick_pod())
    parts = dealt(await members(slow, plan), plan)
    assert taken > 0
    hits = sum(usage.hits for usage in summary.usage.values())
    calls = sum(usage.calls for usage in summary.usage.values())
    assert calls == 2 * len(parts[0])
    assert hits > 0 and len(slow_answers.asked) == calls - hits
    asked = slow_answers.asked + quick_answers.asked
    assert len(asked) == len(set(asked))
    both = [await read_receipt(slow, step.name, shard) for shard in (0, 1)]
    assert sum(manifest.counts["examples"] for manifest in both if manifest) == ROWS


async def test_stealing_changes_no_result(tmp_path: Path) -> None:
    plan, step = planned()
    alone, _ = pod(tmp_path / "alone")
    wanted = [(await run_map(alone, step, plan, shard, ALONE)).outputs["trajectories"] for shard in (0, 1)]
    helped, _ = pod(tmp_path / "helped")
    await help_others(helped, step, plan, 1, ALONE)
    got = [(await run_map(helped, step, plan, shard, ALONE)).outputs["trajectories"] for shard in (0, 1)]
    assert got == wanted


async def test_an_owner_waits_for_a_helper_that_died_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 0.1)
    plan, step = planned()
    context, answers = pod(tmp_path)
    assert await Claims(context, step.name, 0, me=1).take(0)
    assert (await run_map(context, step, plan, 0, ALONE)).counts["examples"] > 4
    assert len(answers.asked) == len(set(answers.asked)) > 4


async def test_a_pod_that_is_started_again_finds_its_own_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 3600.0)
    plan, step = planned()
    context, _ = pod(tmp_path)
    for piece in range(3):
        assert await Claims(context, step.name, 0, me=0).take(piece)
    assert not await Claims(context, step.name, 0, me=1).take(0)
    assert (await run_map(context, step, plan, 0, ALONE)).counts["examples"] > 4


async def test_a_helper_that_fails_leaves_its_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 3600.0)
    plan, step = planned()
    context, answers = pod(tmp_path)

    async def refuse(request: ChatRequest) -> Completion:
        raise EndpointError("no")

    monkeypatch.setattr(answers, "make", refuse)
    with pytest.raises(EndpointError):
        await help_others(context, step, plan, 1, ALONE)
    monkeypatch.undo()
    context, _ = pod(tmp_path)
    assert (await run_map(context, step, plan, 0, ALONE)).counts["examples"] > 4


async def test_there_is_nothing_to_take_from_finished_shards(tmp_path: Path) -> None:
    plan, step = planned()
    context, answers = pod(tmp_path)
    for shard in (0, 1):
        await run_map(context, step, plan, shard, ALONE)
    asked = len(answers.asked)
    assert await help_others(context, step, plan, 0, ALONE) == 0
    assert len(answers.asked) == asked


@pytest.mark.parametrize("shards", [1, 2, 5, 24])
async def test_positions_are_dealt_out_once(shards: int, tmp_path: Path) -> None:
    plan, _ = planned()
    context, _ = pod(tmp_path)
    parts = dealt(await members(context, plan), replace(plan, shards=shards))
    assert sorted(position for part in parts for position in part) == list(range(ROWS))
