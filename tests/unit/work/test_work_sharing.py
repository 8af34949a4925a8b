"""Pods that reduce one batch together divide its calls, and leave what one pod leaves."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_work_iteration import ITEM, LESSON
from test_work_stealing import ALONE, Client, planned, pod

from combee.clients.model.chat import ChatRequest
from combee.clients.model.wire import Completion
from combee.clients.store.store import blob_path
from combee.errors import BudgetExhaustedError, TransientError
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.work.asker import decode_rows
from combee.work.context import OBSERVED, WorkContext, read_receipt
from combee.work.map import run_map
from combee.work.pieces import LEFT, Claims
from combee.work.reduce import run_reduce
from combee.work.sharing import order_of, pieces_of, used_by_others

MAP = "run-i000-map-a0"


@dataclass
class Aggregator:
    """Reflects each question with a rule of a few, keeps the first lesson of a leaf, and merges nothing.
    ``trouble`` is called before each answer."""

    asked: list[str] = field(default_factory=list)
    trouble: Any = None

    async def make(self, request: ChatRequest) -> Completion:
        words = request.prompt.messages[-1].content
        if self.trouble is not None:
            await self.trouble(words)
        self.asked.append(words)
        items = ITEM.findall(words)
        if items:
            (text, *_) = LESSON.findall(words)
            said = {"entries": [{"op": "ADD", "section": "strategies", "text": text, "reflections": items}]}
        elif "What is" in words:
            number = int(re.findall(r"What is (\d+)", words)[-1])
            how = "always " * (number % 8 // 4)
            lesson = f"For the question F{number % 4} {how}use a rate of {100 + number % 4} points"
            said = {"final_answer": "1", "lessons": [lesson], "diagnosis": "x"}
        else:
            said = {"entries": []}
        await asyncio.sleep(0)
        return Completion(json.dumps(said), 10, 5, 0, 0.001, "stop", 1)


def worker(folder: Path, **how: Any) -> tuple[WorkContext, Aggregator]:
    """A pod that has a model of its own, and shares the store with the others."""
    context, _ = pod(folder)
    model = Aggregator(**how)
    for client in context.clients.values():
        assert isinstance(client, Client)
        client._answers = model  # type: ignore[assignment]
    return context, model


async def mapped(folder: Path, **changes: Any) -> IterationPlan:
    """The plan of an iteration whose map is done."""
    context, _ = worker(folder)
    plan, step = planned()
    plan = replace(plan, redundancy="Duplicate", copies=1, leaf_size=2, **changes)
    for shard in range(plan.shards):
        await run_map(context, step, plan, shard, ALONE)
    return plan


def step_of(pods: int) -> Step:
    return Step("run-i000-reduce-a0", "reduce", 0, 0, shards=pods, inputs={"map": MAP})


def learned(summary: StepSummary) -> tuple[dict[str, str], dict[str, int], Any]:
    """All of a receipt that is no matter of clocks."""
    kept = {name: digest for name, digest in summary.outputs.items() if name not in OBSERVED}
    return kept, dict(summary.counts), summary.usage


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody dies unless a test says so: on a busy machine a slow pod must not be taken for a dead one."""
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr("combee.work.pieces.LOOK_SECONDS", 0.001)


async def alone(folder: Path, **changes: Any) -> tuple[StepSummary, Aggregator]:
    plan = await mapped(folder, **changes)
    context, model = worker(folder)
    return await run_reduce(context, step_of(1), plan, ALONE), model


@pytest.mark.parametrize("merge", ["Structured", "Model"])
@pytest.mark.parametrize("pods", [2, 3, 7])
async def test_any_number_of_pods_leaves_what_one_leaves_and_asks_nothing_twice(
    pods: int, merge: str, tmp_path: Path
) -> None:
    one, model = await alone(tmp_path / "one", merge=merge)
    plan = await mapped(tmp_path / "many", merge=merge)
    workers = [worker(tmp_path / "many") for _ in range(pods)]
    made = await asyncio.gather(
        *(run_reduce(context, step_of(pods), plan, ALONE, n) for n, (context, _) in enumerate(workers))
    )
    assert len({json.dumps(summary.to_plain(), sort_keys=True) for summary in made}) == 1
    assert learned(made[0]) == learned(one) and one.counts["calls"] == len(model.asked) > 12
    asked = Counter(words for _, model in workers for words in model.asked)
    assert asked == Counter(model.asked)
    assert sum(bool(model.asked) for _, model in workers) > 1
    graphs = [decode_rows(await workers[0][0].store.aget_blob(summary.outputs["calls"])) for summary in made]
    assert [(row.stage, row.chain, row.hit) for row in graphs[0]] == [
        (row.stage, row.chain, False) for row in graphs[0]
    ]


async def test_the_others_do_what_a_dead_pod_had_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 0.05)
    one, _ = await alone(tmp_path / "one")
    plan = await mapped(tmp_path)
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang(words: str) -> None:
        begun.set()
        await never.wait()

    dying, _ = worker(tmp_path, trouble=hang)
    monkeypatch.setattr(Claims, "leave", leave_unless(dying))
    dead = asyncio.ensure_future(run_reduce(dying, step_of(3), plan, ALONE, 2))
    await begun.wait()
    dead.cancel()
    await asyncio.wait({dead})
    context, _ = worker(tmp_path)
    assert learned(await run_reduce(context, step_of(3), plan, ALONE, 1)) == learned(one)


def leave_unless(dead: WorkContext) -> Any:
    """A killed process leaves nothing more."""
    leave = Claims.leave

    async def unless(self: Claims, piece: int, given: bytes = b"") -> None:
        if self.context is not dead:
            await leave(self, piece, given)

    return unless


async def test_a_piece_that_a_pod_could_not_do_is_done_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("combee.work.pieces.LEAST_PATIENCE_SECONDS", 0.05)
    one, _ = await alone(tmp_path / "one")
    plan = await mapped(tmp_path)

    async def refuse(words: str) -> None:
        raise BudgetExhaustedError("its part is spent")

    broke, _ = worker(tmp_path, trouble=refuse)
    with pytest.raises(BudgetExhaustedError):
        await run_reduce(broke, step_of(2), plan, ALONE, 1)
    context, _ = worker(tmp_path)
    assert learned(await run_reduce(context, step_of(2), plan, ALONE, 0)) == learned(one)


async def test_a_pod_that_is_started_again_finds_its_own_claims_and_is_charged_for_them(
    tmp_path: Path,
) -> None:
    plan = await mapped(tmp_path)
    context, _ = worker(tmp_path)
    first = await run_reduce(context, step_of(2), plan, ALONE, 0)
    path = f"{context.prefix}/steps/{first.step}/00000.manifest.json"
    context.store.delete(path)
    again, model = worker(tmp_path)
    second = await run_reduce(again, step_of(2), plan, ALONE, 0)
    assert learned(second) == learned(first) and model.asked == []


async def test_a_damaged_piece_is_made_again_from_the_memo(tmp_path: Path) -> None:
    plan = await mapped(tmp_path)
    context, _ = worker(tmp_path)
    first = await run_reduce(context, step_of(2), plan, ALONE, 0)
    folder = f"{context.prefix}/claims/{first.step}"
    left = [path for path in context.store.list(folder) if path.endswith(LEFT)]
    digest = (context.store.get(left[0]) or b"").decode()
    context.store.put(blob_path(digest), b"x")
    context.store.delete(f"{context.prefix}/steps/{first.step}/00000.manifest.json")
    other, model = worker(tmp_path)
    second = await run_reduce(other, step_of(2), plan, ALONE, 1)
    assert learned(second)[:1] == learned(first)[:1] and model.asked == []


async def test_a_lost_call_is_lost_for_all_of_them(tmp_path: Path) -> None:
    plan = await mapped(tmp_path)

    async def lose(words: str) -> None:
        if "[r-00003]" in words:
            raise TransientError("the server is away")

    workers = [worker(tmp_path, trouble=lose) for _ in range(2)]
    made = await asyncio.gather(
        *(run_reduce(context, step_of(2), plan, ALONE, n) for n, (context, _) in enumerate(workers))
    )
    assert made[0] == made[1]
    assert (made[0].counts["lostCalls"], made[0].counts["lost"]) == (1, 1)


async def test_what_others_left_is_charged_by_the_pod_whose_error_ends_the_step(tmp_path: Path) -> None:
    plan = await mapped(tmp_path)
    context, model = worker(tmp_path)
    await run_reduce(context, step_of(2), plan, ALONE, 1)
    used = await used_by_others(context, step_of(2), 0)
    assert used["proposer"].calls == len(model.asked)
    assert await used_by_others(context, step_of(2), 1) == {}


async def test_the_first_receipt_counts(tmp_path: Path) -> None:
    plan = await mapped(tmp_path)
    context, _ = worker(tmp_path)
    first = await run_reduce(context, step_of(2), plan, ALONE, 1)
    assert await read_receipt(context, first.step) == first
    assert await run_reduce(worker(tmp_path)[0], step_of(2), plan, ALONE, 0) == first


@pytest.mark.parametrize(("calls", "pods"), [(0, 2), (1, 7), (24, 3), (12_500, 2), (12_500, 40)])
def test_pieces_are_all_calls_once_and_every_pod_may_claim_each(calls: int, pods: int) -> None:
    cut = pieces_of(calls, pods)
    assert [place for piece in cut for place in piece] == list(range(calls))
    for shard in range(pods):
        assert sorted(order_of(len(cut), pods, shard)) == list(range(len(cut)))
