"""What a plan and a status say of an evaluator: its tokens, its calls, and whether it is calibrated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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

from combee.algo.calibration import Calibration
from combee.api.conditions import TABLE, ConditionType, Reason
from combee.api.run import RunSpec
from combee.api.status import Phase, RunStatus
from combee.assembly.manifest import read_run
from combee.plan.cluster.decide import decide_cluster
from combee.plan.cluster.engines import EngineWish, gpus_in_use
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, ServiceSeen
from combee.plan.cluster.standing import End, calibrated, standing
from combee.plan.cluster.status import About, run_status
from combee.plan.decide import Identity, decide
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts, RunState
from combee.plan.types import RoleUsage, Snapshot
from combee.steps import EVALUATE, KINDS, MAP, PROFILE

SPEC: RunSpec = read_run(Path(__file__).parents[3] / "examples" / "replies.yaml").spec
FACTS = DataFacts(train_rows=144, select_rows=80, gate_rows=80, test_rows=0, digests={})
LABELLED = DataShape(FACTS, 120.0, labelled=96)


def by_accuracy() -> RunSpec:
    task = SPEC.task.model_copy(update={"metric": "accuracy", "rubric": None})
    return SPEC.model_copy(update={"task": task})


def test_an_evaluator_is_in_use_for_a_rubric_alone_and_no_reduce_sees_its_key() -> None:
    assert "evaluator" in SPEC.roles_in_use() and "evaluator" not in by_accuracy().roles_in_use()
    assert {name for name, kind in KINDS.items() if "evaluator" in kind.roles} == {
        name for name, kind in KINDS.items() if "task" in kind.roles
    }
    assert [name for name, kind in KINDS.items() if "referee" in kind.roles] == ["profile"]


def test_a_preview_counts_the_verdicts_and_what_calibration_adds() -> None:
    scored, plain = preview(SPEC, LABELLED), preview(by_accuracy(), LABELLED)
    assert scored.rollouts == plain.rollouts and scored.likely_tokens > 1.3 * plain.likely_tokens
    refereed = preview(SPEC, DataShape(FACTS, 120.0))
    # 224 rows are there; up to 200 answers are compared, and 80 of them are those on select.
    assert refereed.rollouts.high == scored.rollouts.high + 120
    assert refereed.rollouts.low == scored.rollouts.low


@pytest.mark.parametrize("calibration", [None, Calibration(0.8, 0.71, 0.9, 60)])
def test_a_status_keeps_the_calibration_and_an_older_one_has_none(calibration: Calibration | None) -> None:
    memory = Memory(RunState(calibration=calibration))
    kept = memory.to_status()
    assert Memory.from_status(kept).run.calibration == calibration
    kept["run"].pop("calibration", None)
    assert Memory.from_status(kept) == replace(memory, run=RunState())


@pytest.mark.parametrize(
    ("calibration", "reason", "expected"),
    [
        (None, Reason.LEARNING, ("Unknown", Reason.NOT_EVALUATED)),
        (Calibration(0.8, 0.71, 0.9, 60), Reason.LEARNING, ("True", Reason.CALIBRATED)),
        (Calibration(0.8, 0.6, 0.9, 60), Reason.LEARNING, ("Unknown", Reason.INCONCLUSIVE)),
        (None, Reason.EVALUATOR_NOT_CALIBRATED, ("False", Reason.EVALUATOR_NOT_CALIBRATED)),
    ],
)
def test_a_condition_has_the_figures(
    calibration: Calibration | None, reason: Reason, expected: tuple[str, Reason]
) -> None:
    memory = Memory(RunState(calibration=calibration))
    status, why, message = calibrated(memory, End(Phase.LEARNING, reason, "the sentence"))
    assert (status, why) == expected and message
    assert why in TABLE[ConditionType.EVALUATOR_CALIBRATED, status]


REFUTED = Calibration(0.4, 0.2, 0.55, 200)
ASKED = {"task": RoleUsage(20, 0, 2000, 200), "evaluator": RoleUsage(20, 0, 4000, 100)}
RUBRIC = {
    "type": "Reply",
    "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}},
    "metric": "rubric",
    "rubric": {"criteria": ("It is right",)},
}


def engine(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "vllm": {"model": f"org/{name}", "gpusPerReplica": 2, "modelCache": {"claimName": "c"}},
    }


def of(name: str) -> dict[str, Any]:
    return {"engineRef": {"name": name}}


JUDGED: dict[str, Any] = {
    "task": RUBRIC,
    "engines": [engine(name) for name in ("main", "scores", "second")],
    "models": {
        "task": of("main"),
        "proposer": of("main"),
        "evaluator": of("scores"),
        "referee": of("second"),
    },
}
UP = {name: EngineSeen(name, 1, ready=1) for name in ("main", "scores", "second")}
HELD = dict.fromkeys(UP, NOW - 100)


@pytest.mark.parametrize(
    ("referee", "whose"),
    [({}, "people's labels"), ({"referee": RoleUsage(50, 0, 9, 9)}, "the referee's scores")],
)
def test_a_refuted_evaluator_ends_the_run_and_what_profile_used_stays_in_the_status(
    referee: dict[str, RoleUsage], whose: str
) -> None:
    usage = {**ASKED, **referee}
    profiled = summary("profile", scores={"select": 0.5, **REFUTED.figures()}, usage=usage)
    got = decide(
        spec=spec_of(**JUDGED),
        who=Identity("formula", "3fa9c1d2"),
        state=RunState(),
        snapshot=Snapshot({profiled.step: profiled}),
        elapsed_seconds=0,
    )
    assert got.outcome is not None and got.outcome.name == "Failed" and whose in got.outcome.reason
    assert got.outcome.reason.startswith("EvaluatorNotCalibrated: ") and "below 0.7" in got.outcome.reason
    assert got.state.usage == usage and got.state.spend.rollouts == 20 and got.state.calibration == REFUTED


def test_on_a_cluster_too_and_its_conditions_say_why() -> None:
    profiled = summary("profile", scores={"select": 0.5, **REFUTED.figures()}, usage=ASKED)
    run = run_of(**JUDGED)
    facts = seen(done("profile", summary=profiled), engines=UP)
    got = decide_cluster(run, memory(engines_since=HELD), facts)
    end = standing(got.memory, got, facts)
    assert (end.phase, end.reason) == (Phase.FAILED, Reason.EVALUATOR_NOT_CALIBRATED)
    assert calibrated(got.memory, end)[:2] == ("False", Reason.EVALUATOR_NOT_CALIBRATED)
    status = run_status(About(run.spec, 1, "m", "image", "algorithm", str), RunStatus(), got, facts)
    assert status.usage["evaluator"].prompt_tokens == 4000 and status.usage["task"].calls == 20
    assert got.engines == {name: EngineWish(0, remove=True) for name in UP}


@pytest.mark.parametrize(
    ("state", "job", "asked"),
    [
        (RunState(), placed("profile"), {"main", "scores", "second"}),
        (LEARNING, placed("map"), {"main", "scores"}),
        (STOPPED, placed("evaluate", 3), {"main", "scores"}),
    ],
)
def test_a_referees_engine_goes_once_the_calibration_is_done(
    state: RunState, job: Any, asked: set[str]
) -> None:
    plans = {0: plan()}
    got = decide_cluster(
        run_of(**JUDGED), memory(state, engines_since=HELD), seen(job, engines=UP, plans=plans)
    )
    assert {name for name, wish in got.engines.items() if wish.replicas} == asked
    assert set(got.memory.engines_since) == asked
    again = decide_cluster(
        run_of(**JUDGED), got.memory, seen(job, engines=UP | {"second": EngineSeen("second", 0)}, plans=plans)
    )
    assert {name for name, wish in again.engines.items() if wish.replicas} == asked
    status = run_status(
        About(spec_of(**JUDGED), 1, "m", "image", "algorithm", str), RunStatus(), again, seen(job, engines=UP)
    )
    (ready,) = [one for one in status.conditions if one.type is ConditionType.ENGINES_READY]
    assert ready.status == "True", "one that nobody will ask again is not waited for"


def test_an_engine_that_only_learning_asks_goes_before_gate_is_looked_at() -> None:
    models = {"task": of("main"), "proposer": of("scores")}
    about = {"engines": JUDGED["engines"][:2], "models": models}
    spec = spec_of(**about)
    assert [gpus_in_use(spec, kind) for kind in (PROFILE, MAP, EVALUATE)] == [4, 4, 2]
    held = {name: HELD[name] for name in ("main", "scores")}
    facts = seen(placed("evaluate", 3), engines={name: UP[name] for name in held})
    got = decide_cluster(run_of(**about), memory(STOPPED, engines_since=held), facts)
    assert got.engines == {"main": EngineWish(1), "scores": EngineWish(0)}


@pytest.mark.parametrize(("state", "waits"), [(RunState(), True), (LEARNING, False)])
def test_a_server_of_somebody_elses_that_only_a_referee_asks_is_waited_for_no_longer(
    state: RunState, waits: bool
) -> None:
    ref = {"name": "second", "ref": {"kind": "LLMInferenceService", "name": "large"}}
    about = {**JUDGED, "engines": [*JUDGED["engines"][:2], ref]}
    up = {name: UP[name] for name in ("main", "scores")}
    service = ServiceSeen(waits_for="LLMInferenceService large: it is not ready")
    facts = seen(engines=up, services={"second": service}, plans={0: plan()})
    got = decide_cluster(run_of(**about), memory(state, engines_since=dict.fromkeys(up, NOW - 9)), facts)
    assert ("second" in got.waiting) is waits and bool(got.jobs) is not waits
