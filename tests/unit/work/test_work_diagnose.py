"""The step that diagnoses serial learning, on the product's own steps and the simulated model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from bench.inprocess import Direct, executor_of, formula_run, formula_splits, simulated

from combee.algo.membership import split_select_gate
from combee.api.baseline import SerialBaseline
from combee.api.run import Budget, PromptLearningRun, Stopping
from combee.clients.model.chat import ChatRequest
from combee.clients.model.wire import Answered
from combee.local.executor import LocalExecutor
from combee.plan.diagnosis import NO_GO_SHARE
from combee.sim.params import Law

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
    "calls carry nothing": Law(capacity=0.05, root_capacity=0.05),
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


async def test_no_row_of_gate_is_asked() -> None:
    runs, clients = executor(WORLDS["calls carry nothing"], {})
    await runs.run()
    _, held_out = formula_splits()
    _, gate = split_select_gate([row.id for row in held_out.examples], held_out.digest)
    inputs = [row.input for row in held_out.examples if row.id in set(gate)]
    asked = "\n".join(text for client in clients for text in client.asked)
    assert not any(text in asked for text in inputs)


async def test_a_second_run_of_the_same_inputs_asks_nothing_and_finds_the_same() -> None:
    known: dict[bytes, Any] = {}
    first, _ = executor(WORLDS["calls carry nothing"], known)
    await first.run()
    second, clients = executor(WORLDS["calls carry nothing"], known)
    await second.run()
    assert sum(client.made for client in clients) == 0
    assert second.state.diagnosis == first.state.diagnosis


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


class _Dead:
    """A proposer that never answers."""

    context_tokens = None

    def __init__(self, client: Direct) -> None:
        self.client = client

    def key_of(self, request: object) -> str:
        return repr(request)

    async def ask(self, request: ChatRequest, *rest: Any) -> Answered:
        from combee.errors import TransientError

        raise TransientError("no answer")
