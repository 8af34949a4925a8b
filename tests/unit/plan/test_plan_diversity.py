"""Diversity as a decision: frozen in the plan, derived from what iterations left, and told to people."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from test_plan_gepa import FACTS, spec

from combee.api.conditions import Condition, ConditionType, Reason
from combee.api.status import RunStatus
from combee.plan.cluster.happenings import happenings
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.standing import _converging
from combee.plan.decide import iteration_plan
from combee.plan.diversity import HOTTEST, diversity_of
from combee.plan.state import Best, RunState, after_iteration, repeats
from combee.plan.types import IterationPlan, StepSummary
from combee.records import Diversity
from sample_plan import PLAN

ON = spec({"diversity": True})
STATE = RunState(phase="Learning", facts=FACTS, best=Best("A", 0.5, -1), last_select=0.5, artifact="A")


def finished(**counts: int) -> StepSummary:
    return StepSummary("run-i000-finish-a0", "finish", outputs={"artifact": "B"}, counts=counts)


def after(state: RunState, *, size: int = 10, **counts: int) -> RunState:
    return after_iteration(state, replace(PLAN, batch_size=size), finished(**counts))


def test_without_the_field_nothing_of_a_plan_changes_byte_for_byte() -> None:
    plan = iteration_plan(spec({}), STATE)
    assert plan.diversity is None and plan.least_temperature == 0
    body = json.loads(plan.to_json())
    assert body["version"] == 2 and not {"diversity", "variants"} & body.keys()
    assert json.loads(replace(plan, variants=2).to_json())["version"] == 3


def test_a_plan_with_diversity_is_read_back_and_older_ones_are() -> None:
    plan = replace(PLAN, diversity=Diversity(0.7, True, (("delete", 0.25), ("insert", 0.75))))
    assert IterationPlan.from_json(plan.to_json(), where="a plan") == plan
    assert json.loads(plan.to_json())["version"] == 4
    for old in (PLAN, replace(PLAN, variants=3)):
        assert IterationPlan.from_json(old.to_json(), where="a plan") == old


@pytest.mark.parametrize(
    ("flat", "stated", "hot"), [(0, 0.0, 0.0), (1, 0.0, 0.2), (1, 0.7, 0.9), (2, 0.7, HOTTEST), (2, 1.4, 1.4)]
)
def test_the_proposer_gets_hotter_while_nothing_improves(flat: int, stated: float, hot: float) -> None:
    document = ON.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["models"]["proposer"]["sampling"] = {"temperature": stated}
    state = replace(STATE, evaluations_since_best=flat)
    found = diversity_of(type(ON).model_validate(document), state)
    assert found is not None and found.temperature == pytest.approx(hot)
    assert iteration_plan(type(ON).model_validate(document), state).least_temperature == found.temperature


@pytest.mark.parametrize(
    ("repeating", "flat", "fresh"), [(0, 0, False), (1, 1, False), (2, 0, True), (0, 2, True), (0, 3, True)]
)
def test_a_stuck_run_starts_afresh(repeating: int, flat: int, fresh: bool) -> None:
    found = diversity_of(ON, replace(STATE, repeating=repeating, evaluations_since_best=flat))
    assert found is not None and found.fresh == fresh


def test_a_patience_of_one_does_not_start_every_iteration_afresh() -> None:
    document = ON.model_dump(mode="json", by_alias=True, exclude_none=True) | {"stopping": {"patience": 1}}
    found = diversity_of(type(ON).model_validate(document), STATE)
    assert found is not None and not found.fresh


def test_weights_count_from_the_fifth_iteration_on() -> None:
    summary = replace(finished(proposed=1), scores={"edit.insert": 0.8, "edit.delete": 0.2, "train": 0.1})
    state = after_iteration(STATE, PLAN, summary)
    assert state.edit_weights == (("delete", 0.2), ("insert", 0.8))
    assert after(state).edit_weights == state.edit_weights
    for iteration, weights in ((3, ()), (4, state.edit_weights)):
        found = diversity_of(ON, replace(state, iteration=iteration))
        assert found is not None and found.weights == weights


def test_a_proposer_that_repeats_itself_is_told_of_once_enough_examples_speak_for_it() -> None:
    once = after(STATE, proposed=4, repeated=4)
    assert "in the last iteration with proposals (10 examples) each of them was known" in repeats(once)
    assert (after(once).repeating, after(once, proposed=2, repeated=2).repeating) == (1, 2)
    assert "in the last 2 iterations with proposals (20 examples)" in repeats(
        after(once, proposed=2, repeated=2)
    )
    assert repeats(after(once, proposed=4, repeated=3)) == ""
    few = after(STATE, size=1, proposed=1, repeated=1)
    assert few.repeating == 1 and repeats(few) == ""


def test_a_status_says_so_and_an_event_does_once() -> None:
    stuck = Memory(run=after(STATE, proposed=4, repeated=4))
    assert _converging(ON, stuck)[:2] == ("False", Reason.PROPOSER_REPEATS)
    assert _converging(ON, Memory(run=STATE))[1] is Reason.IMPROVING
    flat = Memory(run=replace(stuck.run, evaluations_since_best=3))
    assert _converging(ON, flat)[1] is Reason.PLATEAU
    read = Memory.from_status(stuck.to_status())
    assert read.run.repeating == 1
    old = stuck.to_status()
    for name in ("repeating", "repeating_examples", "edit_weights"):
        del old["run"][name]
    assert Memory.from_status(old).run.repeating == 0

    def status(memory: Memory) -> RunStatus:
        told = dict(zip(("status", "reason", "message"), _converging(ON, memory), strict=True))
        return RunStatus(conditions=(Condition.model_validate({"type": ConditionType.CONVERGING, **told}),))

    before, now = status(Memory(run=STATE)), status(stuck)
    assert [(one.type, one.reason) for one in happenings(before, now)] == [("Warning", "ProposerRepeats")]
    assert list(happenings(now, status(stuck))) == []
