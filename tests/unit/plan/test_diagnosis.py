"""A diagnosis of serial learning: what it may take, when it ends a run, and what a plateau gives a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cluster_bench
import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.budget import Spend
from combee.algo.convergence import Headroom
from combee.api.load import parse_run
from combee.api.run import RunSpec
from combee.api.status import RunStatus
from combee.cli.preview import shown_as
from combee.errors import ManifestError
from combee.names import step_name
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.happenings import happenings
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen
from combee.plan.cluster.status import About, run_status
from combee.plan.decide import Identity, decide, effective
from combee.plan.diagnosis import (
    EVALUATIONS,
    GUESS,
    NO_GO_SHARE,
    TARGET_GAIN,
    of_summary,
    shape_of,
    words,
    worth_of,
)
from combee.plan.preview import DataShape, preview
from combee.plan.remaining import seconds_left
from combee.plan.state import DataFacts, RunState
from combee.plan.types import Snapshot, StepSummary

WHO = Identity("run", "abcd1234")
MODEL = {"endpoint": {"url": "http://m/v1", "model": "m"}}
PROFILE, DIAGNOSE = (step_name(WHO.name, WHO.uid, 0, kind) for kind in ("profile", "diagnose"))
LEVEL = [(0, 0.5), (10, 0.6), (20, 0.7), (30, 0.8), (40, 0.8), (50, 0.8), (60, 0.8)]


def spec_of(baseline: dict[str, Any] | None, **changes: Any) -> RunSpec:
    data = {"train": {"uri": "t"}, "heldOut": {"uri": "h"}}
    spec = {
        "task": {"type": "Formula", "data": data},
        "method": {"type": "ACE"},
        "models": {"task": MODEL, "proposer": MODEL},
        **changes,
    }
    if baseline is not None:
        spec["serialBaseline"] = {"method": "ACE", **baseline}
    manifest = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "run"}}
    return parse_run({**manifest, "spec": spec}, "run.yaml").spec


def stated(points: list[tuple[int, float]]) -> dict[str, Any]:
    return {"curve": [{"examples": at, "seconds": 2.0 * at, "score": score} for at, score in points]}


def profiled() -> StepSummary:
    return StepSummary(
        PROFILE,
        "profile",
        outputs={"artifact": "start", "train": "t", "heldOut": "h"},
        counts={"train": 500, "select": 150, "gate": 150, "rollouts": 150},
        scores={"select": 0.5},
        seconds={"wall": 1.0},
    )


def diagnosed(verdict: str = "Plateau", **counts: int) -> StepSummary:
    headroom = {"Rows": 48, "Wrong": 20, "Tried": 16, "Own": 12, "Other": 1}
    found = {"at": 300, "scored": 60, "examples": 80, "rollouts": 400}
    return StepSummary(
        DIAGNOSE,
        "diagnose",
        outputs={"verdict": verdict, "diagnosis": "d"},
        counts={**found, **{f"headroom{name}": value for name, value in headroom.items()}, **counts},
        scores={"start": 0.52, "level": 0.72, "low": 0.6, "high": 0.82, "gainLow": 0.1},
        seconds={"wall": 9.0, "serialExample": 4.0},
    )


def decided(spec: RunSpec, *summaries: StepSummary, **snapshot: Any) -> Any:
    """What decide comes to, asked again until something is to be done."""
    state, seen = RunState(), Snapshot({one.step: one for one in summaries}, **snapshot)
    while True:
        plan = decide(spec=spec, who=WHO, state=state, snapshot=seen, elapsed_seconds=1.0)
        if plan.start or plan.freeze or plan.outcome:
            return plan
        state = plan.state


def test_it_follows_profile_and_nothing_else_starts_before_its_go() -> None:
    spec = spec_of({"measure": True})
    plan = decided(spec, profiled())
    assert [step.kind for step in plan.start] == ["diagnose"]
    assert plan.start[0].inputs == {"artifact": "start", "profile": PROFILE}
    assert plan.state.phase == "Profiling"
    gone = decided(spec, profiled(), diagnosed())
    assert gone.freeze is not None and gone.state.spend.rollouts == 550


def test_without_a_baseline_and_with_given_plans_nothing_is_asked() -> None:
    assert decided(spec_of(None), profiled()).freeze is not None
    assert decided(spec_of({}), profiled()).freeze is not None
    assert decided(spec_of({"measure": True}), profiled(), given_iterations=1).freeze is not None


@pytest.mark.parametrize(
    ("verdict", "counts"),
    [
        ("NotAbove", {}),
        ("NotAbove", {"refused": 20}),
        ("NoHeadroom", {"headroomOwn": 1}),
        ("NoHeadroom", {"headroomWrong": 0, "headroomTried": 0}),
    ],
)
def test_a_no_go_ends_the_run_with_the_alternative(verdict: str, counts: dict[str, int]) -> None:
    plan = decided(spec_of({"measure": True}), profiled(), diagnosed(verdict, **counts))
    assert plan.outcome is not None and plan.outcome.name == "NothingBetter"
    assert plan.outcome.reason.startswith("NotConverging: ")
    assert any(word in plan.outcome.reason for word in ("proposer", "harder rows"))
    assert plan.state.diagnosis is not None and not plan.state.diagnosis.go


def test_what_is_inconclusive_goes_on_and_is_said() -> None:
    plan = decided(spec_of({"measure": True}), profiled(), diagnosed("Inconclusive"))
    assert plan.freeze is not None and plan.state.diagnosis.go
    assert "not shown to be unable to" in words(plan.state.diagnosis)


@pytest.mark.parametrize(("gate", "aimed", "worth"), [(20, 0.01, 0.1), (900, 0.01, 0.0352), (900, 0.3, 0.3)])
def test_what_is_worth_learning_for_is_what_gate_can_show(gate: int, aimed: float, worth: float) -> None:
    spec = spec_of({"measure": True}, stopping={"targetGain": aimed})
    assert worth_of(spec, gate) == pytest.approx(worth, abs=1e-3)


def test_a_failed_diagnosis_fails_the_run() -> None:
    failed = replace(diagnosed(), error="Transient", message="nobody answered")
    plan = decided(spec_of({"measure": True}), profiled(), failed)
    assert plan.outcome.name == "Failed" and "nobody answered" in plan.outcome.reason


def test_a_plateau_gives_the_target_and_the_rollouts_that_nobody_stated() -> None:
    spec = spec_of({"measure": True})
    state = decided(spec, profiled(), diagnosed()).state
    got = effective(spec, state)
    assert got.stopping.target_score == pytest.approx(0.5 + 0.2 + TARGET_GAIN)
    closing = 150 + 2 * 150
    assert got.budget.rollouts == 550 + 4 * 300 + closing
    kept = spec_of({"measure": True}, stopping={"targetScore": 0.9}, budget={"rollouts": 5000})
    assert effective(kept, state) == kept
    rising = decided(spec, profiled(), diagnosed("Rising")).state
    assert effective(spec, rising) == spec


def test_rollouts_that_nobody_stated_end_a_run_as_done() -> None:
    spec = spec_of({"measure": True})
    state = decided(spec, profiled(), diagnosed()).state
    spent = replace(state, spend=replace(state.spend, rollouts=2100))
    plan = decide(spec=spec, who=WHO, state=spent, snapshot=Snapshot(), elapsed_seconds=1.0)
    assert plan.state.stop is not None and plan.state.stop.name == "Done"
    assert "four times" in plan.state.stop.reason


def test_a_stated_curve_is_read_without_running_anything() -> None:
    plan = decided(spec_of(stated(LEVEL)), profiled())
    assert plan.freeze is not None
    diagnosis = plan.state.diagnosis
    assert diagnosis.verdict == "Plateau" and diagnosis.plateau_rollouts == 30 * GUESS
    assert diagnosis.seconds_per_example == 2.0


def flat(to: int) -> list[tuple[int, float]]:
    return [(at * to // 60, 0.5) for at, _ in LEVEL]


def test_a_stated_curve_that_is_flat_to_the_end_of_train_is_a_no_go_where_the_rows_show_it() -> None:
    large = replace(profiled(), counts={"train": 500, "select": 900, "gate": 150, "rollouts": 900})
    ended = decided(spec_of(stated(flat(500))), large)
    assert ended.outcome.name == "NothingBetter" and "State a curve" in ended.outcome.reason


@pytest.mark.parametrize(("to", "select"), [(60, 900), (500, 60)])
def test_a_flat_curve_of_few_rows_or_of_a_short_way_shows_nothing(to: int, select: int) -> None:
    few = replace(profiled(), counts={"train": 500, "select": select, "gate": 150, "rollouts": select})
    plan = decided(spec_of(stated(flat(to))), few)
    assert plan.freeze is not None and plan.state.diagnosis.verdict == "Inconclusive"
    assert "goes on" in words(plan.state.diagnosis)


def test_with_clusters_a_gain_worth_having_is_one_that_so_many_clusters_show() -> None:
    """150 rows cannot rule out a rise of 4 points, which 900 gate rows show; 20 clusters show 10 at best."""
    spec = spec_of(stated(flat(500)))
    rows = replace(profiled(), counts={**profiled().counts, "gate": 900})
    assert decided(spec, rows).state.diagnosis.verdict == "Inconclusive"
    clusters = replace(rows, counts={**rows.counts, "gateClusters": 20})
    assert decided(spec, clusters).state.diagnosis.verdict == "NotAbove"


def test_a_curve_without_a_start_begins_with_the_start_of_this_run() -> None:
    diagnosis = decided(spec_of(stated(LEVEL[1:])), profiled()).state.diagnosis
    assert diagnosis.reading.start == 0.5 and diagnosis.verdict == "Plateau"


def test_an_operator_remembers_it_and_reads_a_status_without_it() -> None:
    state = decided(spec_of({"measure": True}), profiled(), diagnosed()).state
    raw = Memory(run=state).to_status()
    assert Memory.from_status(raw).run.diagnosis == state.diagnosis
    del raw["run"]["diagnosis"]
    assert Memory.from_status(raw).run.diagnosis is None


def ticked(*jobs: JobSeen, before: Memory | None = None) -> tuple[ClusterPlan, RunStatus]:
    """A tick of a run on a cluster that measures its serial baseline, and the status after it."""
    run = cluster_bench.run_of(serialBaseline={"method": "ACE", "measure": True})
    facts = cluster_bench.seen(*jobs)
    plan = decide_cluster(run, before or cluster_bench.memory(), facts)
    return plan, run_status(About(run.spec, 1, "m", "image", "algorithm", str), RunStatus(), plan, facts)


def test_on_a_cluster_it_is_one_job_before_any_map() -> None:
    plan, status = ticked(cluster_bench.done("profile"))
    assert [wish.step.kind for wish in plan.jobs] == ["diagnose"]
    params = plan.jobs[0].step.params
    assert params["digests"] == {"train": "t", "heldOut": "h"} and params["spent"]["rollouts"] == 20
    assert params["kept"]["rollouts"] == 2 * 20, "the look at gate is not spent on a diagnosis"
    assert status.diagnosis is None
    plan, status = ticked(cluster_bench.done("diagnose"), before=plan.memory)
    assert plan.freeze is not None and plan.memory.baseline == "A0"
    assert status.diagnosis is not None and status.diagnosis.verdict == "Plateau"
    assert RunStatus.model_validate(status.dump()) == status


def test_on_a_cluster_a_no_go_ends_the_run_and_says_so_in_a_condition() -> None:
    before = ticked(cluster_bench.done("profile"))[0].memory
    outputs = {"verdict": "NotAbove", "diagnosis": "D"}
    job = cluster_bench.done("diagnose", summary=cluster_bench.summary("diagnose", outputs=outputs))
    plan, status = ticked(job, before=before)
    assert not plan.jobs and plan.outcome is not None and plan.outcome.name == "NothingBetter"
    conditions = {one.type.value: one for one in status.conditions}
    assert conditions["Converging"].status == "False"
    assert conditions["Converging"].reason == "NotConverging"
    assert "another proposer" in conditions["Converging"].message
    assert conditions["Ready"].reason == "NothingBetter"
    events = {one.reason for one in happenings(RunStatus(), status)}
    assert {"Diagnosed", "NothingBetter"} <= events


def test_on_a_cluster_what_is_inconclusive_goes_on_with_a_warning() -> None:
    before = ticked(cluster_bench.done("profile"))[0].memory
    outputs = {"verdict": "Inconclusive", "diagnosis": "D"}
    job = cluster_bench.done("diagnose", summary=cluster_bench.summary("diagnose", outputs=outputs))
    plan, status = ticked(job, before=before)
    assert plan.freeze is not None and plan.outcome is None
    (converging,) = (one for one in status.conditions if one.type.value == "Converging")
    assert (converging.status, converging.reason) == ("Unknown", "Inconclusive")
    (event,) = (one for one in happenings(RunStatus(), status) if one.reason == "Diagnosed")
    assert event.type == "Warning" and "not shown to be unable to" in event.message


rows = st.integers(20, 5000)


@given(rows, rows, rows, st.integers(1, 5), st.one_of(st.none(), st.integers(100, 100_000)))
def test_what_it_may_take_is_a_share_of_the_run(
    train: int, select: int, closing: int, epochs: int, limit: int | None
) -> None:
    budget = {"budget": {"rollouts": limit}} if limit else {}
    spec = spec_of({"measure": True}, method={"type": "ACE", "epochs": epochs}, **budget)
    shape = shape_of(spec, train, select, closing)
    assert 1 <= shape.scored <= select and shape.every >= 1
    assert shape.no_go_rollouts <= shape.most_rollouts
    if limit is not None and not shape.over_share:
        assert shape.no_go_rollouts + select <= NO_GO_SHARE * limit
    if limit is not None:
        more = shape_of(spec_of({"measure": True}, budget={"rollouts": 2 * limit}), train, select, closing)
        assert more.no_go_rollouts >= shape.no_go_rollouts
    assert shape.every <= max(5, train // EVALUATIONS)


def test_every_verdict_has_words() -> None:
    for verdict in ("Plateau", "Rising", "NotAbove", "Inconclusive"):
        said = words(of_summary(diagnosed(verdict)))
        assert "0.720" in said and "0.520" in said
    few = replace(of_summary(diagnosed("NotAbove")), headroom=Headroom(48, 2, 2, 0, 0))
    assert "Few lessons helped" in words(few)


def test_a_baseline_that_cannot_be_measured_is_refused() -> None:
    traces = {"type": "Traces", "data": {"train": {"uri": "t"}}}
    with pytest.raises(ManifestError, match="nothing is scored"):
        spec_of({"measure": True}, task=traces)


@pytest.mark.parametrize(("limit", "warned"), [(10_000, False), (500, True)])
def test_a_preview_says_what_it_may_take(limit: int, warned: bool) -> None:
    shape = DataShape(DataFacts(500, 150, 150, 0, {}), 400.0)
    seen = preview(spec_of({"measure": True}, budget={"rollouts": limit}), shape)
    assert seen.diagnosis is not None
    assert any("serialBaseline.measure" in text for text in seen.warnings) == warned
    assert "diagnosis of serial learning" in shown_as("run", "combee run", seen, as_json=False)
    assert preview(spec_of(None), shape).diagnosis is None
    assert seen.look_rollouts == 300
    assert "kept for the look at gate         300 rollouts" in shown_as("run", "run", seen, as_json=False)


def test_the_time_left_knows_scoring_from_diagnosing() -> None:
    spec = spec_of({"measure": True})
    state = decided(spec, profiled(), diagnosed()).state
    # Of 29 seconds profile took one, the diagnosis nine, and learning from 50 examples the rest.
    assert state.diagnosis is not None
    begun = replace(state, profile_seconds=1.0, examples_done=50, spend=Spend(wall_clock_seconds=29.0))
    with_it = replace(begun, diagnosis=replace(state.diagnosis, wall_seconds=9.0))
    without = replace(begun, diagnosis=None, spend=Spend(wall_clock_seconds=20.0))
    assert seconds_left(spec, with_it, 50) == seconds_left(spec, without, 50)
    unknown = replace(begun, diagnosis=replace(state.diagnosis, wall_seconds=0.0))
    assert seconds_left(spec, with_it, 50) != seconds_left(spec, unknown, 50)
