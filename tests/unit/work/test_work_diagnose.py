"""The step that diagnoses serial learning, on the product's own steps and the simulated model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from bench import inprocess
from bench.inprocess import Direct, executor_of, formula_run, formula_splits, simulated

from combee.algo.convergence import TRIED_WRONG
from combee.algo.membership import split_select_gate
from combee.api.baseline import SerialBaseline
from combee.api.run import Budget, PromptLearningRun, Stopping
from combee.clients.model.chat import ChatRequest
from combee.clients.model.wire import Answered
from combee.errors import TransientError
from combee.local.executor import LocalExecutor
from combee.plan.diagnosis import NO_GO_SHARE, TRIED_ROWS, serial_plan
from combee.sim import params
from combee.sim.params import Law
from combee.work import diagnose, headroom
from combee.work.context import receipt_path
from combee.work.map import members
from combee.work.noted import decode_notes

ROLLOUTS = 4000


def measured(**changes: Any) -> PromptLearningRun:
    run = formula_run("diagnosed", size=50, seed=1, aggregation={"strategy": "ParallelScan"})
    asked = {
        "serial_baseline": SerialBaseline(method="ACE", measure=True),
        "budget": Budget(rollouts=ROLLOUTS),
        "stopping": Stopping(),
        **changes,
    }
    return run.model_copy(update={"spec": run.spec.model_copy(update=asked)})


@dataclass
class Watched(Direct):
    """Remembers what it was asked, and how often memory had no answer."""

    asked: list[str] = field(default_factory=list)
    made: int = 0

    def key_of(self, request: ChatRequest) -> str:
        return request.prompt.messages[-1].content

    async def ask(self, request: ChatRequest, *rest: Any) -> Answered:
        self.asked.append(request.prompt.messages[-1].content)
        answered = await super().ask(request, *rest)
        self.made += not answered.hit
        return answered


def executor(law: Law, known: dict[bytes, Any]) -> tuple[LocalExecutor, list[Watched]]:
    model = simulated(1, law)
    clients = {role: Watched(model, role, known) for role in ("task", "proposer")}
    return executor_of(measured(), formula_splits(), clients), list(clients.values())


WORLDS = {
    "no lesson is ever recovered": Law(recovery=0.0),
    "every rule is stated wrongly": Law(misled_share=1.0),
    "calls carry nothing": Law(capacity=0.001, root_capacity=0.001),
}


@pytest.mark.parametrize("law", WORLDS.values(), ids=list(WORLDS))
async def test_what_does_not_converge_is_stopped_before_a_tenth_of_the_budget(law: Law) -> None:
    runs, clients = executor(law, {})
    outcome = await runs.run()
    assert outcome.name == "NothingBetter"
    assert outcome.reason.startswith("NotConverging: ")
    assert runs.state.spend.rollouts < NO_GO_SHARE * ROLLOUTS
    assert {one.kind for one in runs.summaries.values()} == {"profile", "diagnose"}
    assert not runs.plans
    asked = runs.state.usage["task"].calls
    assert asked == runs.state.spend.rollouts == len(clients[0].asked)


async def test_where_nearly_all_rows_are_wrong_more_are_tried_until_no_lesson_is_shown_to_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formula = params.TASK_LAWS["formula"]
    monkeypatch.setitem(params.TASK_LAWS, "formula", replace(formula, top=formula.guess))
    runs, _ = executor(Law(), {})
    outcome = await runs.run()
    found = runs.state.diagnosis
    assert found is not None and found.headroom is not None
    assert (outcome.name, found.verdict, found.examples) == ("NothingBetter", "NoHeadroom", 0)
    assert TRIED_WRONG < found.headroom.tried < found.headroom.wrong
    assert found.rollouts == found.headroom.rows + 2 * found.headroom.tried
    assert runs.state.spend.rollouts < NO_GO_SHARE * ROLLOUTS


async def test_where_lessons_are_shown_to_help_no_more_rows_are_tried() -> None:
    runs, _ = executor(Law(), {})
    await runs.run()
    found = runs.state.diagnosis
    assert found is not None and found.headroom is not None and found.headroom.shown
    assert found.headroom.tried == TRIED_WRONG < found.headroom.wrong


async def test_no_row_of_gate_is_asked() -> None:
    runs, clients = executor(WORLDS["calls carry nothing"], {})
    await runs.run()
    _, held_out = formula_splits()
    _, gate = split_select_gate([row.id for row in held_out.examples], held_out.digest)
    inputs = [row.input for row in held_out.examples if row.id in set(gate)]
    asked = "\n".join(text for client in clients for text in client.asked)
    assert not any(text in asked for text in inputs)


async def test_what_gate_can_show_goes_by_clusters_where_rows_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, worth_of, due_of = set[int](), diagnose.worth_of, diagnose.due_of
    monkeypatch.setattr(diagnose, "worth_of", lambda *given: (asked.add(given[1]), worth_of(*given))[1])
    monkeypatch.setattr(diagnose, "due_of", lambda *given: (asked.add(given[1]), due_of(*given))[1])
    train, held_out = formula_splits()
    named = tuple(replace(row, cluster=str(n % 30)) for n, row in enumerate(held_out.examples))
    model, known = simulated(1, WORLDS["no lesson is ever recovered"]), dict[bytes, Any]()
    clients = {role: Watched(model, role, known) for role in ("task", "proposer")}
    runs = executor_of(measured(), (train, replace(held_out, examples=named)), clients)
    await runs.run()
    assert asked == {15}


async def test_a_second_run_of_the_same_inputs_asks_nothing_and_finds_the_same() -> None:
    known: dict[bytes, Any] = {}
    first, _ = executor(WORLDS["calls carry nothing"], known)
    await first.run()
    second, clients = executor(WORLDS["calls carry nothing"], known)
    await second.run()
    assert sum(client.made for client in clients) == 0
    assert second.state.diagnosis == first.state.diagnosis


@pytest.mark.parametrize("other", ["model", "rows", "task"])
async def test_another_model_other_rows_or_another_task_ask_anew(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache of a diagnosis is that of its calls: each is known by its model and its whole prompt."""
    law, known = WORLDS["calls carry nothing"], dict[bytes, Any]()
    await executor(law, known)[0].run()
    second, clients = executor(law, known)
    if other == "model":
        monkeypatch.setattr(inprocess, "MODEL", "another/model")
    elif other == "rows":
        train = (await second.context.data.train()).examples
        fewer = replace(await second.context.data.train(), examples=train[: len(train) // 2])
        second.context = replace(second.context, data=replace(second.context.data, train_rows=fewer))
    else:
        asked = replace(second.context.task, instructions="Answer otherwise.")
        second.context = replace(second.context, task=asked)
    await second.run()
    assert clients[0].made > 0


async def test_its_record_and_its_summary_agree() -> None:
    runs, _ = executor(WORLDS["calls carry nothing"], {})
    await runs.run()
    (summary,) = (one for one in runs.summaries.values() if one.kind == "diagnose")
    store = runs.context.store
    assert len(summary.encode()) < 2048
    found = json.loads(await store.aget_blob(summary.outputs["diagnosis"]))
    assert next(point["at"] for point in found["points"]) == 0
    assert found["points"][-1]["at"] == summary.counts["at"] < summary.counts["rollouts"]
    record = json.loads(await store.aget_blob(summary.outputs["record"]))
    calls = sum(stage["calls"] for stage in record["stages"])
    assert calls == sum(usage.calls for usage in summary.usage.values())
    serial = next(stage for stage in record["stages"] if stage["stage"] == "serial learning")
    one = summary.seconds["serialExample"]
    assert serial["scheduledSeconds"] == pytest.approx(one * summary.counts["examples"], rel=1e-3)


async def test_without_any_reflection_the_curve_decides() -> None:
    runs, clients = executor(WORLDS["calls carry nothing"], {})
    runs.context = replace(runs.context, clients={"task": clients[0], "proposer": _Dead(clients[1])})
    outcome = await runs.run()
    assert outcome.name == "NothingBetter" and runs.state.diagnosis is not None
    assert runs.state.diagnosis.headroom is not None and runs.state.diagnosis.headroom.tried == 0
    assert runs.state.diagnosis.verdict == "NotAbove" and runs.state.diagnosis.examples > 0


@dataclass
class Failing(Watched):
    """Gives no answer for some rows of train, and says that it may have used tokens."""

    rows: tuple[str, ...] = ()
    failed: int = 0

    async def ask(self, request: ChatRequest, *rest: Any) -> Answered:
        if any(row in request.prompt.messages[-1].content for row in self.rows):
            self.failed += 1
            rest[0](100)
            raise TransientError("no answer")
        return await super().ask(request, *rest)


async def failing(*positions: int) -> tuple[LocalExecutor, Failing]:
    """A run whose task model does not answer the examples at some positions of the run's order."""
    runs, clients = executor(WORLDS["calls carry nothing"], {})
    order = await members(runs.context, serial_plan(runs.context.spec, 0, 48, 1.0))
    rows = tuple(order[position].input for position in positions)
    client = Failing(clients[0].model, "task", {}, rows=rows)
    runs.context = replace(runs.context, clients={"task": client, "proposer": clients[1]})
    return runs, client


async def test_a_row_without_an_answer_is_no_bad_day_where_those_before_were_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows are tried one at a time here, so that both answers of a turn are lost."""
    monkeypatch.setattr(headroom, "TRIED_WRONG", 1)
    runs, clients = executor(Law(), {})
    ask, asked = clients[0].ask, 0

    async def lost_in_the_second_turn(request: ChatRequest, *rest: Any) -> Answered:
        nonlocal asked
        asked += len(clients[0].asked) >= select + TRIED_ROWS
        if asked in (3, 4):
            raise TransientError("no answer")
        return await ask(request, *rest)

    _, held_out = formula_splits()
    select = len(held_out.examples) // 2
    monkeypatch.setattr(clients[0], "ask", lost_in_the_second_turn)
    await runs.run()
    found = runs.state.diagnosis
    assert found is not None and found.headroom is not None and found.headroom.shown


async def lost_examples(runs: LocalExecutor) -> list[dict[str, Any]]:
    """The counts of each map of serial learning that lost its example."""
    store = runs.context.store
    paths = [one for one in await store.alist(runs.context.prefix) if "-map/" in one]
    counts = [json.loads(await store.aget(path))["counts"] for path in paths]
    return [one for one in counts if one["failed"]]


async def test_an_example_that_is_lost_is_charged_and_leaves_its_receipts() -> None:
    runs, client = await failing(1, 3)
    outcome = await runs.run()
    assert outcome.reason.startswith("NotConverging: ")
    assert [one["rollouts"] for one in await lost_examples(runs)] == [1, 1]
    assert runs.state.spend.rollouts == len(client.asked) + client.failed
    assert runs.state.usage["task"].lost_tokens == 100 * client.failed
    (summary,) = (one for one in runs.summaries.values() if one.kind == "diagnose")
    notes = decode_notes(await runs.context.store.aget_blob(summary.outputs["calls"]))
    assert len(notes.lost) == summary.counts["lost"] == client.failed
    record = json.loads(await runs.context.store.aget_blob(summary.outputs["record"]))
    assert record["lost"] == client.failed


async def test_a_resumed_diagnosis_asks_no_example_again_that_was_lost() -> None:
    runs, _ = await failing(1, 3)
    await runs.run()
    (name,) = (one.step for one in runs.summaries.values() if one.kind == "diagnose")
    store = runs.context.store
    store.delete(receipt_path(runs.context, name))
    again, _ = await failing()
    again.context = replace(again.context, store=store)
    await again.run()
    assert len(await lost_examples(again)) == 2
    assert again.state.diagnosis is not None and runs.state.diagnosis is not None
    assert again.state.diagnosis.examples == runs.state.diagnosis.examples


async def test_a_bad_day_fails_it_and_the_next_session_goes_on() -> None:
    runs, _ = await failing(*range(6))
    outcome = await runs.run()
    assert outcome.name == "Failed" and "of serial learning came to nothing" in outcome.reason
    again, _ = await failing()
    again.context = replace(again.context, store=runs.context.store)
    assert (await again.run()).reason.startswith("NotConverging: ")
    assert 0 < len(await lost_examples(again)) < 6


class _Dead:
    """A proposer that never answers."""

    context_tokens = None

    def __init__(self, client: Direct) -> None:
        self.client = client

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, request: ChatRequest, *rest: Any) -> Answered:
        raise TransientError("no answer")
