"""The worker's pure parts: shares, budgets, inputs, what a pod is given."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.budget import Limits, Spend
from combee.api.load import parse_run
from combee.api.run import Workers
from combee.assembly.splits import refuse_moved
from combee.clients.model.wire import CallRecord
from combee.clients.store.store import Store
from combee.errors import BugError, DamagedError, DataError, HeldOutMovedError
from combee.names import step_name
from combee.plan.types import RoleUsage, Step, StepSummary
from combee.pod.budget import kept_by, shared_limits, spent_before
from combee.pod.environment import Pod, open_store, read_pod
from combee.pod.inputs import read_inputs, wanted
from combee.pod.log import PodLog
from combee.pod.step import _Worker, part_of
from combee.settings import WorkerSettings
from combee.tasks.dataset import Dataset
from combee.work.context import write_receipt

whole = st.integers(0, 10_000)


@given(limit=whole, spent=whole, parts=st.integers(1, 50))
def test_pods_together_spend_what_is_left_and_no_more(limit: int, spent: int, parts: int) -> None:
    limits = Limits(rollouts=limit, tokens=None)
    each = [shared_limits(limits, Spend(rollouts=spent), parts, index) for index in range(parts)]
    assert sum((one.rollouts or 0) - spent for one in each) == max(0, limit - spent)
    assert all(one.tokens is None for one in each)


@given(limit=st.floats(0.01, 1e6), spent=st.floats(0, 1e6), parts=st.integers(1, 50))
def test_pods_together_spend_the_money_that_is_left_and_no_more(
    limit: float, spent: float, parts: int
) -> None:
    each = [
        shared_limits(Limits(money=limit), Spend(money=spent), parts, index).money for index in range(parts)
    ]
    assert sum((one or 0.0) - spent for one in each) == pytest.approx(max(0.0, limit - spent), abs=1e-6)


@given(kept=st.integers(0, 5000), parts=st.integers(1, 50))
def test_pods_together_keep_what_the_look_needs(kept: int, parts: int) -> None:
    table = {"rollouts": kept, "tokens": kept, "gpuSeconds": kept, "wallClockSeconds": 7.5, "money": kept}
    each = kept_by({"kept": table}, parts)
    assert each.rollouts * parts >= kept and each.tokens * parts >= kept
    assert each.gpu_seconds * parts == pytest.approx(kept) and each.money * parts == pytest.approx(kept)
    assert each.wall_clock_seconds == 7.5
    assert kept_by({}, parts) == Spend(), "an earlier operator kept nothing"
    with pytest.raises(BugError):
        kept_by({"kept": [1]}, parts)


@given(limit=st.floats(1, 1e6), spent=st.floats(0, 1e6), parts=st.integers(1, 50))
def test_pods_together_hold_the_seconds_of_gpus_that_are_left(limit: float, spent: float, parts: int) -> None:
    each = shared_limits(Limits(gpu_seconds=limit), Spend(gpu_seconds=spent), parts, 0).gpu_seconds
    assert each is not None and (each - spent) * parts == pytest.approx(max(0.0, limit - spent), abs=1e-4)


def test_what_was_spent_is_the_operators_word_and_the_inputs_receipts() -> None:
    mapped = StepSummary("m", "map", counts={"rollouts": 5}, usage={"task": RoleUsage(5, 0, 100, 20)})
    table = {"name": "m", "promptPerMillionTokens": 10_000, "completionPerMillionTokens": 50_000}
    model = {"endpoint": {"url": "http://localhost:1/v1", "model": "m"}}
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "formula"},
        "spec": {
            "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
            "method": {"type": "ACE"},
            "models": {"task": model, "proposer": model},
            "prices": {"currency": "EUR", "models": [table]},
        },
    }
    spec = parse_run(document, "test").spec
    spent = spent_before(
        spec,
        {"spent": {"rollouts": 7, "tokens": 1000, "wallClockSeconds": 3.5, "money": 1.5}},
        [mapped, mapped],
    )
    assert (spent.rollouts, spent.tokens, spent.wall_clock_seconds) == (17, 1240, 3.5)
    assert spent.money == pytest.approx(1.5 + 2 * (1.0 + 1.0))
    assert spent_before(spec, {}, []) == Spend()
    with pytest.raises(BugError):
        spent_before(spec, {"spent": [1]}, [])


@pytest.mark.parametrize(
    ("name", "kind", "code"),
    [
        ("train", DataError, "InvalidData"),
        ("heldOut", HeldOutMovedError, "HeldOutMoved"),
        ("test", HeldOutMovedError, "HeldOutMoved"),
    ],
)
def test_a_split_that_moved(name: str, kind: type[DataError], code: str) -> None:
    refuse_moved(name, Dataset((), "a" * 64), None)
    refuse_moved(name, Dataset((), "a" * 64), "a" * 64)
    with pytest.raises(kind) as caught:
        refuse_moved(name, Dataset((), "a" * 64), "b" * 64)
    assert caught.value.code == code and name in str(caught.value)


class Clock:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


FINISH = Step("f", "finish", 0, 1, inputs={"artifact": "x", "map": "m", "reduce": "r"})
PLAN = SimpleNamespace(shards=2)


def test_what_a_step_reads() -> None:
    reduce = Step("r", "reduce", 0, 1, inputs={"map": "m"})
    assert wanted(reduce, PLAN) == [("m", 0), ("m", 1)]  # type: ignore[arg-type]
    assert wanted(FINISH, PLAN) == [("m", 0), ("m", 1), ("r", 0)]  # type: ignore[arg-type]


async def read(tmp_path: Path, wait: float | None, *manifests: tuple[StepSummary, int]):
    clock = Clock()
    context = SimpleNamespace(store=Store.open(str(tmp_path)), prefix="runs/run", clock=clock, before=None)
    for summary, shard in manifests:
        await write_receipt(context, summary, shard)  # type: ignore[arg-type]
    found = await read_inputs(context, FINISH, PLAN, wait_seconds=wait, sleep=clock.sleep)  # type: ignore[arg-type]
    return found, clock


async def test_inputs_that_are_there_are_read_at_once(tmp_path: Path) -> None:
    there = [(StepSummary("m", "map"), 0), (StepSummary("m", "map"), 1), (StepSummary("r", "reduce"), 0)]
    found, clock = await read(tmp_path, 60, *there)
    assert found is not None and [one.step for one in found] == ["m", "m", "r"]
    assert clock.slept == []


async def test_an_error_ends_the_wait_for_the_others(tmp_path: Path) -> None:
    found, clock = await read(tmp_path, 60, (StepSummary("m", "map", error="Endpoint", message="no"), 1))
    assert found is not None and [one.error for one in found] == ["Endpoint"]
    assert clock.slept == []


def spent(shard: int, error: str = "") -> tuple[StepSummary, int]:
    """What a shard of the map left, which spent."""
    used = {"task": RoleUsage(5, 0, 100, 20), "proposer": RoleUsage(shard, 0, 10 * shard)}
    return StepSummary("m", "map", counts={"rollouts": 5}, usage=used, error=error), shard


async def test_the_end_of_a_budget_waits_for_what_the_other_shards_spent(tmp_path: Path) -> None:
    broken = spent(0, "BudgetExhausted")
    found, clock = await read(tmp_path, 60, broken)
    assert found is None and clock.now == pytest.approx(60)
    found, clock = await read(tmp_path, 60, broken, spent(1))
    assert found is not None and len(found) == 2 and clock.slept == [], "no reduce is waited for"


@pytest.mark.parametrize("kind", ["reduce", "finish"])
async def test_what_a_map_spent_is_charged_though_no_finish_adds_it_up(tmp_path: Path, kind: str) -> None:
    """The operator sees nothing of a map but that its Job is over."""
    map_, reduce, finish = (step_name("run", "12345678", 0, one) for one in ("map", "reduce", "finish"))
    inputs = {"artifact": "x", "map": map_, **({"reduce": reduce} if kind == "finish" else {})}
    step = Step(reduce if kind == "reduce" else finish, kind, 0, 1, inputs=inputs)
    data = SimpleNamespace(train=AsyncMock())
    context = SimpleNamespace(
        store=Store.open(str(tmp_path)), prefix="runs/run", clock=Clock(), data=data, before=None
    )
    for shard, error in enumerate(("", "BudgetExhausted")):
        await write_receipt(context, replace(spent(shard, error)[0], step=map_), shard)  # type: ignore[arg-type]
    pod = SimpleNamespace(step=step, plan=PLAN, shard=0)
    worker = _Worker(pod, PodLog(stream=StringIO()))  # type: ignore[arg-type]
    worker.guard.settle(CallRecord("proposer", 0.0, 1.0, 0.0, 30, 20, 0, False, 1))
    said = await worker._worked(context)  # type: ignore[arg-type]
    assert (said.step, said.error, said.counts["rollouts"]) == (step.name, "BudgetExhausted", 10)
    assert said.usage == {"task": RoleUsage(10, 0, 200, 40), "proposer": RoleUsage(2, 0, 40, 20)}
    assert worker.summary("BudgetExhausted", "its own").usage == said.usage


async def test_a_pod_that_waited_long_enough_yields(tmp_path: Path) -> None:
    found, clock = await read(tmp_path, 60, (StepSummary("m", "map"), 0))
    assert found is None and clock.now == pytest.approx(60)
    assert max(clock.slept) <= 1.0 and len(clock.slept) < 100


@pytest.mark.parametrize("wait", [60, None])
async def test_a_damaged_input_is_named_and_not_waited_for_again_and_again(
    tmp_path: Path, wait: float | None
) -> None:
    there = [(StepSummary("m", "map"), 0), (StepSummary("m", "map"), 1), (StepSummary("r", "reduce"), 0)]
    await read(tmp_path, 60, *there)
    damaged = tmp_path / "runs" / "run" / "steps" / "m" / "00001.manifest.json"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.raises(
        DamagedError, match=r"00001\.manifest\.json: the receipt of a finished step is damaged"
    ):
        await read(tmp_path, wait)


async def test_a_receipt_that_comes_after_the_last_look_is_not_damaged(tmp_path: Path) -> None:
    clock, store = Clock(), Store.open(str(tmp_path))
    context = SimpleNamespace(store=store, prefix="runs/run", clock=clock, before=None)

    async def listed(folder: str) -> list[str]:
        """List, and have the other pod write once the last look is over."""
        found = await store.alist(folder)
        if clock.now >= 60 and folder.endswith("/r"):
            for summary, shard in ((StepSummary("m", "map"), 0), (StepSummary("r", "reduce"), 0)):
                await write_receipt(
                    SimpleNamespace(store=store, prefix="runs/run", before=None), summary, shard
                )  # type: ignore[arg-type]
        return found

    context.store = SimpleNamespace(uri="", alist=listed, aget=store.aget)
    assert await read_inputs(context, FINISH, PLAN, wait_seconds=60, sleep=clock.sleep) is None  # type: ignore[arg-type]


async def test_an_input_that_must_be_there_and_is_gone_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(
        DamagedError, match=r"m/00001\.manifest\.json: the receipt of a finished step is missing"
    ):
        await read(tmp_path, None, (StepSummary("m", "map"), 0))


def settings(root: Path, **changes: object) -> WorkerSettings:
    step = json.dumps({"name": "s", "kind": "profile", "iteration": 0, "seed": 1})
    values = {
        "step": step,
        "shard": 0,
        "store": "/store",
        "engines": "{}",
        "api_server": "",
        "address": "",
        "log_level": "INFO",
    }
    return WorkerSettings(root=root, **{**values, **changes})  # type: ignore[arg-type]


RUN = {
    "apiVersion": "combee.dev/v1alpha1",
    "kind": "PromptLearningRun",
    "metadata": {"name": "run", "namespace": "team", "uid": "u-1"},
    "spec": {
        "task": {"type": "Formula", "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}}},
        "method": {"type": "ACE"},
        "models": {role: {"endpoint": {"url": "http://h/v1", "model": "m"}} for role in ("task", "proposer")},
    },
}
BROKEN = [
    ("{", {}, "no JSON"),
    (json.dumps({**RUN, "spec": {}}), {}, "spec.task"),
    (json.dumps({**RUN, "metadata": {"name": "run"}}), {}, "no uid"),
    (json.dumps(RUN), {"step": '{"name": 1}'}, "COMBEE_STEP"),
    (json.dumps(RUN), {"engines": "[]"}, "COMBEE_ENGINES"),
    (json.dumps(RUN), {"shard": 1}, "shard 1 of 1"),
]


@pytest.mark.parametrize(("run", "changes", "words"), BROKEN)
def test_what_the_operator_wrote_wrong_is_a_bug(
    tmp_path: Path, run: str, changes: dict[str, object], words: str
) -> None:
    (tmp_path / "etc/combee/run").mkdir(parents=True)
    (tmp_path / "etc/combee/run/run.json").write_text(run)
    with pytest.raises(BugError, match=words):
        read_pod(settings(tmp_path, **changes))


def test_secrets_are_files_and_the_kubelets_own_entries_are_none(tmp_path: Path) -> None:
    (tmp_path / "etc/combee/run").mkdir(parents=True)
    (tmp_path / "etc/combee/run/run.json").write_text(json.dumps(RUN))
    folder = tmp_path / "etc/combee/secrets/train"
    (folder / "..data").mkdir(parents=True)
    (folder / "AWS_REGION").write_text("eu")
    pod = read_pod(settings(tmp_path))
    assert pod.secret("train") == {"AWS_REGION": "eu"} and pod.secret("heldOut") is None
    assert open_store(pod.settings, "/store").uri == str(tmp_path / "store")


def test_a_log_line_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    log = PodLog({"run": "r", "step": "s", "shard": 2}, "INFO")
    log.say("DEBUG", "hidden")
    log.say("WARNING", "two\nlines", modelRole="task")
    (line,) = capsys.readouterr().err.splitlines()
    read = json.loads(line)
    assert read.pop("time").endswith("+00:00")
    assert read == {
        "level": "warning",
        "run": "r",
        "step": "s",
        "shard": 2,
        "modelRole": "task",
        "message": "two lines",
    }


def test_a_pod_has_its_part_of_what_the_run_may_have_in_flight_beside_other_runs() -> None:
    run = SimpleNamespace()
    workers = Workers(concurrency=64)

    def in_flight(shard: int, **params: object) -> int:
        step = Step("run-u-i000-map-a0", "map", 0, 7, shards=3, params=params)
        part = part_of(Pod(run, run, step, shard, None, {}))  # type: ignore[arg-type]
        assert part.limits(workers).concurrency == part.concurrency(workers)
        return part.concurrency(workers)

    assert [in_flight(shard) for shard in range(3)] == [22, 21, 21]
    assert [in_flight(shard, concurrency=16) for shard in range(3)] == [6, 5, 5]
    assert [in_flight(shard, concurrency=1) for shard in range(3)] == [1, 1, 1]
    assert in_flight(0, concurrency=500) == 22, "never more than the run's own"
