"""What an accepted prompt cost, and what the serial baseline took to the same score."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_up import result

from combee.algo.convergence import Reading
from combee.api.baseline import SerialBaseline
from combee.api.load import parse_run
from combee.api.run import RunSpec
from combee.plan.diagnosis import Diagnosis, of_curve
from combee.plan.state import RunState
from combee.plan.types import RoleUsage, StepSummary
from combee.report.cost import accepted, serial_baseline, whole_cost, with_serial
from combee.report.diagnosed import diagnosis_of
from combee.report.diagnosis import diagnosis_table
from combee.report.parts import DiagnosisRecord
from combee.report.result import Paired
from combee.report.tables import tables
from combee.report.words import cost_per_point
from sample_plan import PLAN

CURVE = [
    {"examples": 0, "seconds": 0, "score": 0.5},
    {"examples": 40, "seconds": 800, "score": 0.6},
    {"examples": 90, "seconds": 1800, "score": 0.7},
    {"examples": 120, "seconds": 2400, "score": 0.7},
]
NO_STORE: Any = SimpleNamespace()
"""A stated curve is in no store."""


def spec_of(curve: list[dict[str, float]] | None = None, **more: Any) -> RunSpec:
    """A spec; ``curve``: of a serial baseline, which manifests cannot state yet."""
    role = {"engineRef": {"name": "main"}}
    spec = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE"},
        "engines": [{"name": "main", "vllm": {"model": "m"}}],
        "models": {"task": role, "proposer": role},
        **more,
    }
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "r"}}
    made = parse_run({**head, "spec": spec}, "test").spec
    stated = None if curve is None else SerialBaseline.model_validate({"method": "ACE", "curve": curve})
    return made.model_copy(update={"serial_baseline": stated})


PRICES = {
    "currency": "EUR",
    "models": [{"name": "m", "promptPerMillionTokens": 10, "completionPerMillionTokens": 30}],
}


def session_of(spec: RunSpec, *scores: float) -> Any:
    """A session whose profile scored 0.5 and whose iterations scored so; each step asks 1,000 tokens in."""
    usage = {"task": RoleUsage(calls=10, prompt_tokens=1000)}
    counts = {"train": 100, "select": 50, "gate": 50, "rollouts": 10}
    profile = StepSummary("p", "profile", {"artifact": "a"}, counts, {"select": 0.5}, usage, {"wall": 2.0})
    plans, summaries = {}, {"p": profile}
    for number, score in enumerate(scores):
        plans[number] = replace(PLAN, iteration=number, offset=10 * number, batch_size=10)
        summaries[f"f{number}"] = StepSummary(
            f"f{number}",
            "finish",
            {"artifact": f"a{number}"},
            {"iteration": number, "rollouts": 30, "playbookTokens": 100},
            {"select": score},
            usage,
            {"wall": 4.0},
        )
    return SimpleNamespace(run=SimpleNamespace(spec=spec), summaries=summaries, plans=plans)


def test_each_prompt_that_took_the_lead_has_what_was_used_until_then() -> None:
    spec = spec_of(CURVE, prices=PRICES)
    first, second = accepted(session_of(spec, 0.55, 0.54, 0.75))
    assert (first.iteration, first.select, first.rollouts, first.tokens) == (1, 0.55, 40, 2000)
    assert (first.wall_seconds, first.money, first.serial_seconds) == (6.0, 0.02, 800)
    assert first.cost_per_point is not None and first.cost_per_point.tokens == pytest.approx(400)
    assert first.cost_per_point.money == pytest.approx(0.004)
    assert (second.iteration, second.rollouts, second.serial_seconds) == (3, 100, None), "it never got there"


async def test_measured_serial_learning_is_compared_in_rollouts() -> None:
    record = (await diagnosis_from(spec_of(CURVE))).model_copy(update={"measured": True})
    reached, beyond = with_serial(accepted(session_of(spec_of(), 0.55, 0.75)), record)
    assert (reached.serial_rollouts, reached.serial_seconds, beyond.serial_rollouts) == (40, None, None)
    stated = record.model_copy(update={"measured": False})
    assert with_serial([reached], stated)[0].serial_rollouts is None


def test_nothing_is_invented_without_prices_baseline_or_gain() -> None:
    spec = spec_of()
    (only,) = accepted(session_of(spec, 0.6))
    assert (only.money, only.serial_seconds) == (None, None)
    assert accepted(session_of(spec, 0.4)) == ()
    assert serial_baseline(spec, None) is None


async def diagnosis_from(spec: RunSpec) -> DiagnosisRecord:
    """What a result says of a stated curve."""
    read = of_curve(spec, 0.5, train_rows=100, select_rows=50, gate_units=50)
    record = await diagnosis_of(spec, RunState(diagnosis=read), (), NO_STORE, None)
    assert record is not None
    return record


async def test_the_serial_baseline_is_what_the_diagnosis_was_read_from() -> None:
    spec, short = spec_of(CURVE), spec_of(CURVE[:1])
    record = await diagnosis_from(spec)
    baseline = serial_baseline(spec, record)
    assert baseline is not None
    assert [one.model_dump() for one in baseline.curve] == CURVE
    assert "#time" in diagnosis_table(record).columns
    measured = record.model_copy(
        update={"points": tuple(one.model_copy(update={"seconds": None}) for one in record.points)}
    )
    assert serial_baseline(spec, measured) is None
    assert "#time" not in diagnosis_table(measured).columns
    assert (baseline.converged, baseline.examples_to_converge) == (0.7, 90)
    assert baseline.seconds_per_point == pytest.approx(90)
    flat = serial_baseline(short, await diagnosis_from(short))
    assert flat is not None and flat.seconds_per_point is None


@pytest.mark.parametrize(
    ("here", "there", "same", "seconds"),
    [
        ("6x H100", "6X  h100", True, 800),
        ("6x H100", "8x H200", False, None),
        (None, "8x H200", None, 800),
        ("6x H100", None, None, 800),
    ],
)
async def test_seconds_of_a_curve_count_where_its_hardware_is_not_another(
    here: str | None, there: str | None, same: bool | None, seconds: float | None
) -> None:
    spec = spec_of(CURVE, engines=[{"name": "main", "hardware": here, "vllm": {"model": "m"}}])
    assert spec.serial_baseline is not None
    stated = spec.serial_baseline.model_copy(update={"hardware": there, "source": "we, in May"})
    spec = spec.model_copy(update={"serial_baseline": stated})
    baseline = serial_baseline(spec, await diagnosis_from(spec))
    assert baseline is not None and (baseline.measured_here, baseline.source) == (same, "we, in May")
    assert accepted(session_of(spec, 0.55))[0].serial_seconds == seconds


def test_a_point_of_gate_has_its_money_and_gpu_seconds() -> None:
    spec = spec_of(prices={**PRICES, "perGpuHour": 3.6})
    session = session_of(spec)
    session.gpu_seconds, session.wall_seconds = 1000.0, 50.0
    session.state = SimpleNamespace(
        usage={"task": RoleUsage(prompt_tokens=100_000)}, spend=SimpleNamespace(tokens=100_000, rollouts=50)
    )
    gate = Paired(baseline=0.5, best=0.6, gain=0.1, low=0.05, high=0.15, n=50, discordant=5)
    cost = whole_cost(session, gate)
    assert cost is not None
    assert (cost.tokens, cost.rollouts, cost.wall_seconds, cost.gpu_seconds) == (10_000, 5, 5, 100)
    assert cost.money == pytest.approx((1.0 + 1.0) / 10)
    assert whole_cost(session, gate.model_copy(update={"gain": 0.0})) is None


async def test_a_diagnosis_costs_its_tokens_and_its_share_of_the_gpus() -> None:
    used = {"task": RoleUsage(prompt_tokens=100_000)}
    measured = StepSummary("d", "diagnose", {"diagnosis": "D"}, {}, {}, used, {"wall": 50.0})
    store: Any = SimpleNamespace(aget_blob=read_points)
    state = RunState(diagnosis=Diagnosis(Reading("Rising", 9, 0.5, 0.6, 0.5, 0.7, 0.1), 20))
    paid = spec_of(prices={**PRICES, "perGpuHour": 3.6})
    record = await diagnosis_of(paid, state, (measured,), store, None, 20.0)
    assert record is not None and record.gpu_seconds == 1000.0
    assert record.money == pytest.approx(1.0 + 1.0)
    laptop = await diagnosis_of(paid, state, (measured,), store, None)
    assert laptop is not None and (laptop.gpu_seconds, laptop.money) == (None, pytest.approx(1.0))


async def read_points(digest: str) -> bytes:
    return json.dumps({"points": [{"at": 0, "score": 0.5, "n": 20, "error": None}]}).encode()


def test_the_report_tells_money_where_there_is_any() -> None:
    budget = [{"name": "money", "spent": 5.0, "currency": "EUR"}]
    paid = {"tokens": 10_000.0, "rollouts": 5.0, "gpuSeconds": 100.0, "money": 0.2}
    prompt = {"iteration": 4, "select": 0.856, "rollouts": 900, "tokens": 90_000, "wallSeconds": 9.0}
    told = result(budget=budget, costPerPoint=paid, accepted=[{**prompt, "money": 1.0}])
    assert cost_per_point(told) == (
        "10.0 k tokens, 5.0 rollouts, 100.0 GPU seconds and 0.2 EUR for each point (0.01) of gain"
    )
    table = tables(told)["accepted"]
    assert table.rows == (
        ("4", "0.856", "900", "90.0 k", "9.0 s", "1.00", "not shown", "not shown", "not shown"),
    )
    assert "None was stated or measured" in tables(told)["serial"].missing
