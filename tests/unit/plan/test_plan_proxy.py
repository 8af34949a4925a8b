"""What a plan and a status say of an evaluator's proxy: who scores, what it takes, and which engines stay."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import (
    LEARNING,
    NOW,
    STOPPED,
    done,
    memory,
    placed,
    plan,
    run_of,
    seen,
    spec_of,
    summary,
)
from test_plan_evaluator import FACTS, JUDGED, SPEC, UP, engine, of

from combee.algo.calibration import PROXY, Calibration
from combee.api.conditions import TABLE, ConditionType, Reason
from combee.api.parts import Models
from combee.api.run import RunSpec
from combee.api.status import Phase
from combee.plan.calibrated import who_scores
from combee.plan.cluster.decide import decide_cluster
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen
from combee.plan.cluster.standing import End, calibrated, proxied, standing
from combee.plan.decide import Identity, Plan, decide
from combee.plan.preview import DataShape, preview
from combee.plan.spending import closing_cost, tokens_a_rollout
from combee.plan.state import VERDICT_COST, RunState
from combee.plan.types import SCORER_VERSION, IterationPlan, RoleUsage, Snapshot, StepSummary
from combee.steps import KINDS

HOLDS, REFUTED = Calibration(0.9, 0.8, 0.95, 80), Calibration(0.4, 0.2, 0.55, 80)
FEW = Calibration(0.0, -1.0, 1.0, 20)
WHO = Identity("formula", "3fa9c1d2")
BOUNDED: dict[str, Any] = {
    **JUDGED,
    "engines": [*JUDGED["engines"], engine("small")],
    "models": {
        **JUDGED["models"],
        "evaluator": {**of("scores"), "ceiling": {"tokens": 1000}},
        "proxy": of("small"),
    },
}
ENGINES = UP | {"small": EngineSeen("small", 1, ready=1)}
HELD = dict.fromkeys(ENGINES, NOW - 100)


def profiled(cost: float, compared: Calibration | None = None, **changes: Any) -> StepSummary:
    figures = {} if compared is None else compared.figures(PROXY)
    return summary("profile", scores={"select": 0.5, VERDICT_COST: cost, **figures}, **changes)


def decided(found: StepSummary, **snapshot: Any) -> Plan:
    """Return the Plan after profile's summary was folded in."""
    facts = Snapshot({found.step: found}, **snapshot)
    got = decide(spec=spec_of(**BOUNDED), who=WHO, state=RunState(), snapshot=facts, elapsed_seconds=0)
    if got.outcome is not None:
        return got
    return decide(spec=spec_of(**BOUNDED), who=WHO, state=got.state, snapshot=facts, elapsed_seconds=0)


def test_the_proxy_is_for_the_steps_that_learn_and_never_for_gate() -> None:
    assert {name for name, kind in KINDS.items() if "proxy" in kind.roles} == {
        "profile",
        "diagnose",
        "map",
        "finish",
    }
    assert "proxy" in spec_of(**BOUNDED).roles_in_use()
    assert "proxy" not in spec_of(**BOUNDED | {"task": spec_of().task.dump()}).roles_in_use()


@pytest.mark.parametrize(
    ("cost", "compared", "scored_by"),
    [(900.0, None, "evaluator"), (1200.0, HOLDS, "proxy"), (1200.0, FEW, "proxy")],
    ids=["within", "holds", "inconclusive"],
)
def test_who_scores_is_frozen_with_the_plan(
    cost: float, compared: Calibration | None, scored_by: str
) -> None:
    got = decided(profiled(cost, compared))
    assert got.freeze is not None and got.freeze.scored_by == scored_by
    assert got.state.verdict_cost == cost and got.state.proxy == compared
    data = got.freeze.to_json()
    assert IterationPlan.from_json(data, where="here") == got.freeze
    assert json.loads(data)["version"] == (SCORER_VERSION if scored_by == "proxy" else 2)
    assert ("scored_by" in json.loads(data)) is (scored_by == "proxy")


def test_a_refuted_proxy_ends_the_run_with_nothing_learned() -> None:
    got = decided(profiled(1200.0, REFUTED))
    assert got.outcome is not None and got.outcome.name == "Failed" and not got.start
    assert got.outcome.reason.startswith("ProxyNotCalibrated: the proxy does not order answers as the ")
    assert "below 0.7" in got.outcome.reason


@pytest.mark.parametrize(
    ("code", "reason", "evaluated", "by_proxy"),
    [
        ("NoVerdict", Reason.EVALUATOR_NOT_CALIBRATED, "False", "Unknown"),
        ("NoProxyVerdict", Reason.PROXY_NOT_CALIBRATED, "Unknown", "False"),
    ],
)
def test_of_evaluator_and_proxy_the_one_without_verdicts_is_named(
    code: str, reason: Reason, evaluated: str, by_proxy: str
) -> None:
    said = summary("profile", outputs={}, scores={}, error=code, message="nothing but line breaks")
    run, facts = run_of(**BOUNDED), seen(done("profile", summary=said), engines=ENGINES)
    got = decide_cluster(run, memory(engines_since=HELD), facts)
    end = standing(got.memory, got, facts)
    assert (end.phase, end.reason, end.message) == (Phase.FAILED, reason, "nothing but line breaks")
    assert calibrated(got.memory, end)[0] == evaluated
    assert proxied(run.spec, got.memory, end)[0] == by_proxy


def test_plans_of_a_run_that_another_model_scored_are_not_obeyed() -> None:
    given = replace(plan(), scored_by="proxy")
    got = decided(profiled(900.0), plans={0: given}, given_iterations=1)
    assert got.outcome is not None and got.outcome.name == "Failed"
    assert "scored by the proxy, and the start of this run by the evaluator" in got.outcome.reason
    same = decided(profiled(1200.0, HOLDS), plans={0: given}, given_iterations=1)
    assert same.outcome is None and same.start[0].kind == "map"


@pytest.mark.parametrize("compared", [None, HOLDS])
def test_a_status_keeps_it_and_an_older_one_has_none(compared: Calibration | None) -> None:
    state = RunState(verdict_cost=1200.0, proxy=compared)
    kept = Memory(state).to_status()
    assert Memory.from_status(kept).run == state
    for name in ("verdict_cost", "proxy"):
        kept["run"].pop(name, None)
    assert Memory.from_status(kept).run == RunState()


@pytest.mark.parametrize(
    ("cost", "compared", "reason", "expected", "says"),
    [
        (None, None, Reason.LEARNING, ("Unknown", Reason.NOT_EVALUATED), "not known yet"),
        (1000.0, None, Reason.LEARNING, ("Unknown", Reason.WITHIN_CEILING), "the proxy is not asked"),
        (1200.0, HOLDS, Reason.LEARNING, ("True", Reason.CALIBRATED), "over the ceiling of 1,000 tokens"),
        (1200.0, FEW, Reason.LEARNING, ("Unknown", Reason.INCONCLUSIVE), "give more rows of heldOut"),
        (1200.0, REFUTED, Reason.PROXY_NOT_CALIBRATED, ("False", Reason.PROXY_NOT_CALIBRATED), "the end"),
    ],
)
def test_a_condition_says_who_scores_and_why(
    cost: float | None,
    compared: Calibration | None,
    reason: Reason,
    expected: tuple[str, Reason],
    says: str,
) -> None:
    state = RunState(verdict_cost=cost, proxy=compared)
    status, why, message = proxied(spec_of(**BOUNDED), Memory(state), End(Phase.LEARNING, reason, "the end"))
    assert (status, why) == expected and says in message
    assert why in TABLE[ConditionType.PROXY_CALIBRATED, status]


def test_on_a_cluster_too_a_refuted_proxy_ends_the_run() -> None:
    facts = seen(done("profile", summary=profiled(1200.0, REFUTED)), engines=ENGINES)
    got = decide_cluster(run_of(**BOUNDED), memory(engines_since=HELD), facts)
    end = standing(got.memory, got, facts)
    assert (end.phase, end.reason) == (Phase.FAILED, Reason.PROXY_NOT_CALIBRATED)


@pytest.mark.parametrize(
    ("state", "job", "asked"),
    [
        (RunState(), placed("profile"), {"main", "scores", "second", "small"}),
        (replace(LEARNING, verdict_cost=900.0), placed("map"), {"main", "scores"}),
        (replace(LEARNING, verdict_cost=1200.0, proxy=HOLDS), placed("map"), {"main", "scores", "small"}),
        (replace(STOPPED, verdict_cost=1200.0, proxy=HOLDS), placed("evaluate", 3), {"main", "scores"}),
    ],
    ids=["profile", "map of a run that needs none", "map", "gate"],
)
def test_a_proxys_engine_stays_for_as_long_as_it_is_asked(state: RunState, job: Any, asked: set[str]) -> None:
    frozen = {0: replace(plan(), scored_by=state.scored_by)}
    facts = seen(job, engines=ENGINES, plans=frozen)
    got = decide_cluster(run_of(**BOUNDED), memory(state, engines_since=HELD), facts)
    assert {name for name, wish in got.engines.items() if wish.replicas} == asked


def test_select_is_priced_by_the_proxy_and_gate_by_the_evaluator() -> None:
    usage = {
        "task": RoleUsage(80, 0, 8000, 0),
        "evaluator": RoleUsage(80, 0, 80_000, 0),
        "proxy": RoleUsage(80, 0, 16_000, 0),
    }
    by_evaluator = RunState(facts=FACTS, usage=usage)
    by_proxy = replace(by_evaluator, proxy=HOLDS)
    assert (tokens_a_rollout(by_proxy), tokens_a_rollout(by_proxy, "proxy")) == (1100.0, 300.0)
    assert closing_cost(by_evaluator).tokens == 240 * 1100
    assert closing_cost(by_proxy).tokens == 80 * 300 + 160 * 1100


def priced(**ceiling: Any) -> RunSpec:
    """The example's spec with prices, a ceiling and a proxy."""
    models = SPEC.models.dump()
    models["evaluator"] |= {"ceiling": ceiling}
    models["proxy"] = {"endpoint": {"url": "http://small/v1", "model": "small"}}
    names = ("openai/gpt-oss-120b", "Qwen/Qwen3-8B", "small")
    rows = [
        {"name": name, "promptPerMillionTokens": 1.0, "completionPerMillionTokens": 2.0} for name in names
    ]
    document = SPEC.dump() | {"models": models, "prices": {"currency": "EUR", "models": rows}}
    return RunSpec.model_validate(document)


def test_a_ceiling_in_money_is_told_in_its_currency() -> None:
    spec = priced(money=0.002)
    assert who_scores(spec, 0.0015, None).startswith(
        "a verdict takes 0.0015 EUR, within the ceiling of 0.002 EUR: the evaluator scores"
    )
    assert "0.0025 EUR, over the ceiling of 0.002 EUR: the proxy scores" in who_scores(spec, 0.0025, HOLDS)


def test_a_preview_counts_what_comparing_the_proxy_may_take() -> None:
    spec = priced(tokens=1000)
    alone = spec.model_copy(update={"models": Models.model_validate(SPEC.models.dump())})
    shape = DataShape(FACTS, 120.0, labelled=96)
    with_proxy, without = preview(spec, shape), preview(alone, shape)
    assert with_proxy.most_tokens > without.most_tokens and with_proxy.tokens.low == without.tokens.low


@pytest.mark.parametrize(("compared", "gpus"), [(None, 4.0), (HOLDS, 6.0)], ids=["within", "asked"])
def test_a_proxy_that_is_not_needed_is_not_charged(compared: Calibration | None, gpus: float) -> None:
    state = replace(LEARNING, proxy=compared)
    facts = seen(plans={0: plan(scored_by=state.scored_by)}, engines=ENGINES)
    got = decide_cluster(run_of(**BOUNDED), memory(state, engines_since=HELD), facts)
    assert got.jobs[0].step.params["gpus"] == gpus
