"""Leaves of one reflection are made in the map, each as soon as it can be; the reduce goes on from there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_work_iteration import ITEM, LESSON, Model
from test_work_stealing import ALONE, ROWS, planned, pod

from combee.algo.components import similarity_labels
from combee.clients.model.chat import ChatRequest
from combee.clients.model.wire import Completion
from combee.errors import BugError, TransientError
from combee.methods.ace import AceMethod
from combee.methods.protocol import Part, Rendered
from combee.plan.types import Step, StepSummary
from combee.records import Reflection
from combee.work.asker import CallRow, decode_rows
from combee.work.context import WorkContext, read_receipt
from combee.work.map import help_others, run_map
from combee.work.reduce import _leaves, run_reduce

Carries = Callable[[str, int], bool]


@dataclass
class Forgetful(Model):
    """Carries the lesson of an item where ``carries`` says so, by its id and how often it was asked."""

    carries: Carries = lambda _item, _ordinal: True
    loses: Carries = lambda _item, _ordinal: False
    leaves: list[tuple[str, int]] = field(default_factory=list)
    drawn_at: set[tuple[int, float]] = field(default_factory=set)
    """how often a leaf was asked before, and at which temperature it was asked then."""

    async def make(self, request: ChatRequest) -> Completion:
        words = request.prompt.messages[-1].content
        items = ITEM.findall(words)
        if not items:
            return await super().make(request)
        (item,) = items
        self.leaves.append((item, request.ordinal))
        self.drawn_at.add((request.ordinal, request.sampling.temperature))
        if self.loses(item, request.ordinal):
            raise TransientError("the server is away")
        (text,) = LESSON.findall(words)
        entry = {"op": "ADD", "section": "strategies", "text": text, "reflections": [item]}
        entries = [entry] if self.carries(item, request.ordinal) else []
        return Completion(json.dumps({"entries": entries}), 10, 5, 0, 0.5, "stop", 1)


async def learned(
    folder: Path, model: Forgetful, shards: int = 1, **changes: Any
) -> tuple[list[StepSummary], StepSummary, WorkContext]:
    """What the map's shards left, what the reduce made of it, and where."""
    context, _ = pod(folder)
    for client in context.clients.values():
        client._answers = model  # type: ignore[attr-defined]
    plan, mapping = planned()
    plan = replace(plan, shards=shards, leaf_size=1, **changes)
    assert plan.leaves_in_map
    mapped = [await run_map(context, mapping, plan, shard, ALONE) for shard in range(shards)]
    step = Step("run-i000-reduce-a0", "reduce", 0, plan.seed, inputs={"map": mapping.name})
    return mapped, await run_reduce(context, step, plan, ALONE), context


async def rows_of(context: WorkContext, summary: StepSummary) -> list[CallRow]:
    return decode_rows(await context.store.aget_blob(summary.outputs["calls"]))


async def levels_of(context: WorkContext, reduced: StepSummary) -> list[tuple[str, int, int, int]]:
    retention = json.loads(await context.store.aget_blob(reduced.outputs["retention"]))
    return [(one["level"], one["calls"], one["inputs"], one["carried"]) for one in retention["levels"]]


async def test_each_reflection_has_a_leaf_in_the_map_that_waits_for_it_alone(tmp_path: Path) -> None:
    model = Forgetful()
    (mapped,), reduced, context = await learned(tmp_path, model)
    rows = await rows_of(context, mapped)
    leaves = [row for row in rows if row.stage == "leaf round 1"]
    assert len(model.leaves) == len(leaves) == ROWS == reduced.counts["updates"]
    assert {(row.chain, row.after) for row in leaves} == {(n, (n,)) for n in range(ROWS)}
    assert await rows_of(context, reduced) == [], "nothing was lost, and nothing is alike"
    assert await levels_of(context, reduced) == [("leaf round 1", 24, 24, 24), ("merge", 0, 24, 24)]


@pytest.mark.parametrize("shards", [2, 5])
async def test_the_number_of_pods_changes_nothing(tmp_path: Path, shards: int) -> None:
    def forgets(item: str, ordinal: int) -> bool:
        return ordinal > int(item[-1]) % 3

    _, alone, _ = await learned(tmp_path / "alone", Forgetful(carries=forgets))
    _, several, _ = await learned(tmp_path / "several", Forgetful(carries=forgets), shards)
    for name in ("updates", "retention"):
        assert several.outputs[name] == alone.outputs[name]


async def test_the_reduce_has_the_leaves_in_the_batchs_order_whatever_the_shards(tmp_path: Path) -> None:
    mapped, _, context = await learned(tmp_path, Forgetful(carries=lambda _, ordinal: ordinal == 1), shards=5)
    leaves = await _leaves(context, mapped)
    assert [(leaf.position, leaf.round) for leaf in leaves] == [(n, r) for n in range(ROWS) for r in (1, 2)]


async def test_a_pod_that_is_done_makes_leaves_for_others(tmp_path: Path) -> None:
    context, _ = pod(tmp_path)
    model = Forgetful()
    for client in context.clients.values():
        client._answers = model  # type: ignore[attr-defined]
    plan, mapping = planned()
    plan = replace(plan, leaf_size=1)
    taken = await help_others(context, mapping, plan, 1, ALONE)
    asked = len(model.asked)
    assert len(model.leaves) == taken > 0
    await run_map(context, mapping, plan, 0, ALONE)
    assert len(model.asked) == asked and len(model.leaves) == taken, "its owner finds all of it"


async def test_parts_are_told_from_each_other_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(_self: AceMethod, shown: Rendered, given: list[Reflection]) -> list[Part]:
        return [Part(shown, tuple(given)), Part(shown, tuple(given))]

    monkeypatch.setattr(AceMethod, "parts", halves)
    with pytest.raises(BugError, match="name"):
        await learned(tmp_path, Forgetful())


async def test_what_a_leaf_lost_is_asked_for_again_on_the_spot_and_then_by_the_reduce(tmp_path: Path) -> None:
    stubborn = {f"r-{n:05d}": n % 4 for n in range(ROWS)}
    model = Forgetful(carries=lambda item, ordinal: ordinal >= stubborn[item])
    (mapped,), reduced, context = await learned(tmp_path, model)
    assert sorted(model.leaves) == sorted(
        (item, ordinal) for item, times in stubborn.items() for ordinal in range(times + 1)
    )
    again = [row for row in await rows_of(context, mapped) if row.stage == "leaf round 2"]
    assert {row.after for row in again} == {(row.chain,) for row in again}, "after its own first leaf"
    assert await levels_of(context, reduced) == [
        ("leaf round 1", 24, 24, 6),
        ("leaf round 2", 18, 18, 12),
        ("leaf round 3", 12, 12, 18),
        ("leaf round 4", 6, 6, 24),
        ("merge", 0, 24, 24),
    ]


async def test_lessons_are_compared_once_however_many_rounds_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def labels(texts: Sequence[str], **how: Any) -> list[int]:
        compared.append(len(texts))
        return similarity_labels(texts, **how)

    monkeypatch.setattr("combee.work.retention.similarity_labels", labels)
    stubborn = {f"r-{n:05d}": n % 4 for n in range(ROWS)}
    await learned(tmp_path, Forgetful(carries=lambda item, ordinal: ordinal >= stubborn[item]))
    assert compared == [ROWS, ROWS], "by the part for its four rounds, and by all parts for rarity"


async def test_what_was_lost_is_drawn_with_luck_by_the_map_and_by_the_reduce(tmp_path: Path) -> None:
    stubborn = {f"r-{n:05d}": n % 4 for n in range(ROWS)}
    model = Forgetful(carries=lambda item, ordinal: ordinal >= stubborn[item])
    await learned(tmp_path, model)
    assert model.drawn_at == {(0, 0.0), (1, 0.7), (2, 0.7), (3, 0.7)}, "at 0 a model says the same again"


@pytest.mark.parametrize(("most", "asked"), [(1, 1), (2, 2), (4, 2)])
async def test_a_model_that_carries_no_more_the_second_time_is_not_asked_again(
    tmp_path: Path, most: int, asked: int
) -> None:
    model = Forgetful(carries=lambda item, _: item.endswith("0"))
    _, reduced, _ = await learned(tmp_path, model, max_rounds=most)
    assert len(model.leaves) == ROWS + (asked - 1) * (ROWS - 3)
    assert reduced.counts["updates"] == 3


async def test_a_lost_call_is_counted_and_made_again(tmp_path: Path) -> None:
    model = Forgetful(loses=lambda item, ordinal: item.endswith("7") and ordinal < 2)
    (mapped,), reduced, _ = await learned(tmp_path, model)
    assert mapped.counts["lostCalls"] == 4 and mapped.counts["lost"] == 4
    assert reduced.counts["updates"] == ROWS, "the third time, by the reduce"


async def test_a_map_of_a_version_that_made_no_leaves_leaves_them_to_the_reduce(tmp_path: Path) -> None:
    model = Forgetful()
    (mapped,), wanted, context = await learned(tmp_path / "now", model)
    store = context.store
    before = replace(mapped, outputs={k: v for k, v in mapped.outputs.items() if k != "leaves"})
    plan, mapping = planned()
    path = f"{context.prefix}/steps/{mapping.name}/00000.manifest.json"
    receipt = json.loads(await store.aget(path) or b"")
    receipt["outputs"] = dict(before.outputs)
    await store.aput(path, json.dumps(receipt).encode())
    assert "leaves" not in (await read_receipt(context, mapping.name)).outputs  # type: ignore[union-attr]
    step = Step("run-i000-reduce-a1", "reduce", 0, plan.seed, inputs={"map": mapping.name})
    reduced = await run_reduce(context, step, replace(plan, shards=1, leaf_size=1), ALONE)
    assert reduced.outputs["updates"] == wanted.outputs["updates"]
    assert len(await rows_of(context, reduced)) == ROWS
