"""A run of traces scores nothing: the latest artifact with content is the result and is published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import NOW, UID, run_of, spec_of

from combee.algo.ranges import Range
from combee.api.conditions import ConditionType, Reason
from combee.api.load import parse_run
from combee.api.status import RunStatus
from combee.errors import ManifestError
from combee.names import attempt_name, step_name
from combee.objects.jobs import step_job
from combee.objects.types import Settings
from combee.objects.versions import version_object
from combee.plan.cluster.accept import Policy, RefusedError, accept
from combee.plan.cluster.decide import Run, decide_cluster
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen, Seen
from combee.plan.cluster.standing import conditions, standing
from combee.plan.cluster.status import About, run_status
from combee.plan.decide import decide, iteration_plan
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts, RunState
from combee.plan.types import RoleUsage, Snapshot, Step, StepSummary
from combee.records import Owner

TASK = {"type": "Traces", "data": {"train": {"uri": "t.jsonl"}}}
FACTS = DataFacts(100, 0, 0, 0, {"train": "t"})
ENGINE = {"engineRef": {"name": "main"}}


def traces(**changes: Any) -> Run:
    return run_of(task=TASK, **{"batching": {"mode": "Fixed", "size": 100, "reason": "test"}, **changes})


def summary(kind: str, **changes: Any) -> StepSummary:
    made = {
        "profile": {
            "outputs": {"artifact": "A0", "train": "t"},
            "counts": {"train": 100, "select": 0, "gate": 0, "test": 0, "rollouts": 0},
            "scores": {"select": 0.0},
        },
        "finish": {
            "outputs": {"artifact": "A1"},
            "counts": {"rollouts": 0, "evaluated": 0, "iteration": 0, "rendered": 5},
            "scores": {"train": 0.4},
            "usage": {"proposer": RoleUsage(100, 0, 9000, 900, 0)},
            "observations": ((100, 3.0),),
        },
        "publish": {"outputs": {"configMap": "formula-a1"}},
    }.get(kind, {})
    return StepSummary(
        step_name("formula", UID, 1 if kind == "publish" else 0, kind), kind, **{**made, **changes}
    )


def through(run: Run, *finished: StepSummary) -> Any:
    """What is decided once these steps are finished."""
    snapshot = Snapshot({one.step: one for one in finished})
    state = RunState()
    for _ in range(9):
        plan = decide(spec=run.spec, who=run.who, state=state, snapshot=snapshot, elapsed_seconds=0.0)
        state = plan.state
        if plan.freeze is not None:
            snapshot = replace(snapshot, plans={**snapshot.plans, plan.freeze.iteration: plan.freeze})
        elif plan.start or plan.outcome:
            return plan
    raise AssertionError("nothing to do")


def learned(**finish: Any) -> Any:
    steps = (summary("profile"), summary("map"), summary("reduce"), replace(summary("finish"), **finish))
    return through(traces(), *steps)


def test_no_score_is_made_and_no_evaluation_is_due() -> None:
    plan = through(traces(), summary("profile"))
    assert [step.kind for step in plan.start] == ["map"]
    assert plan.state.last_select is None
    frozen = iteration_plan(traces().spec, plan.state)
    assert not frozen.evaluate
    assert frozen.verify == "Support"


def test_what_was_learned_is_the_outcome_and_nothing_looks_at_a_gate() -> None:
    plan = learned()
    assert plan.outcome is not None
    assert plan.outcome.name == "Learned"
    assert (
        plan.outcome.reason == "learned from 100 traces, and scored on nothing; 1 epoch of 100 examples done"
    )
    assert plan.state.best.artifact == "A1"


def test_nothing_shown_is_nothing_better() -> None:
    plan = learned(counts={"rendered": 0})
    assert plan.outcome.name == "NothingBetter"
    assert "two traces support it" in plan.outcome.reason


@pytest.mark.parametrize("verify", ["Replay", "Support", "Off"])
def test_what_cannot_be_replayed_needs_support(verify: str) -> None:
    spec = spec_of(task=TASK, aggregation={"verify": verify})
    assert spec.verify == ("Support" if verify == "Replay" else verify)
    assert spec_of(aggregation={"verify": verify}).verify == verify


def test_a_budget_of_rollouts_does_not_bind() -> None:
    plan = through(traces(budget={"rollouts": 1}), summary("profile"))
    assert [step.kind for step in plan.start] == ["map"]


def test_the_task_model_is_not_in_use() -> None:
    own = {"name": "other", "vllm": {"model": "m"}}
    spec = spec_of(
        task=TASK,
        engines=[{"name": "main", "vllm": {"model": "m"}}, own],
        models={"task": {"engineRef": {"name": "other"}}, "proposer": ENGINE},
    )
    assert list(spec.roles_in_use()) == ["proposer"]


def test_gepa_has_nothing_to_try_out() -> None:
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "r"},
        "spec": {**traces().spec.dump(), "method": {"type": "GEPA"}},
    }
    with pytest.raises(ManifestError, match=r"method GEPA tries out what it learned.*Set method\.type: ACE"):
        parse_run(document, "r.yaml")


def test_a_preview_counts_reflections_and_no_rollout() -> None:
    shown = preview(traces().spec, DataShape(FACTS, 2000.0))
    assert (shown.rollouts, shown.reflections, shown.refused) == (Range(0, 0), Range(100, 100), "")
    assert shown.outlook is None
    assert not shown.warnings
    assert sum(batch.replays.high for batch in shown.batches) == 0


def finished(kind: str) -> JobSeen:
    said = summary(kind)
    pods = 4 if kind == "map" else 1
    job = JobSeen(attempt_name(said.step, 0), said.step, kind, said.step.count("i001"), 0, completions=pods)
    return replace(job, succeeded=pods, complete=True, summary=None if kind == "map" else said)


def as_kept(value: Any) -> Any:
    """What a status keeps of plain data: everything but nulls."""
    if isinstance(value, dict):
        return {name: as_kept(one) for name, one in value.items() if one is not None}
    return [as_kept(one) for one in value] if isinstance(value, list) else value


def on_cluster(run: Run, *kinds: str) -> tuple[Any, Seen]:
    seen = Seen(now=NOW, jobs={job.name: job for job in map(finished, kinds)})
    memory = Memory()
    for _ in range(9):
        plan = decide_cluster(run, memory, seen)
        memory = Memory.from_status(as_kept(plan.memory.to_status()))
        if plan.freeze is None:
            return plan, seen
        seen = replace(seen, plans={**seen.plans, plan.freeze.iteration: plan.freeze})
    raise AssertionError("it freezes for ever")


def test_a_cluster_publishes_what_was_learned_without_a_gate() -> None:
    run = traces()
    plan, _ = on_cluster(run, "profile", "map", "reduce", "finish")
    assert [job.step.kind for job in plan.jobs] == ["publish"]
    plan, seen = on_cluster(run, "profile", "map", "reduce", "finish", "publish")
    assert plan.outcome.name == "Learned"
    assert Memory.from_status(as_kept(plan.memory.to_status())) == plan.memory
    assert plan.memory.published == "formula-a1"
    status = run_status(
        About(run.spec, 1, "d", "i", "a", lambda at: "2026-01-01T00:00:00Z"), RunStatus(), plan, seen
    )
    assert status.held_out.baseline is None
    assert status.gain is None
    end = standing(plan.memory, plan, seen)
    told = {one.type: one for one in conditions(run.spec, plan.memory, plan, seen, end)}
    assert told[ConditionType.CONVERGING].status == "Unknown"
    owned = parse_run(
        {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": "formula"},
            "spec": {**run.spec.dump(), "playbookRef": {"name": "playbook"}},
        },
        "r",
    )
    version = version_object(owned, Owner("formula", "team", UID), plan.memory)
    assert version["spec"]["scores"] == {}
    assert version["spec"]["origin"]["dataDigests"] == {"train": "t"}


def test_pods_of_steps_get_the_image_of_the_class_and_the_one_that_publishes_does_not() -> None:
    task = {
        "type": "Custom",
        "custom": {"class": "routing:Routing", "image": "registry.example.com/routing:1"},
        "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
    }
    run = parse_run(
        {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": "formula"},
            "spec": {**spec_of(task=task).dump(), "playbookRef": {"name": "p"}},
        },
        "r",
    )
    owner, settings = Owner("formula", "team", UID), Settings("localhost/worker:1")
    images = {}
    for kind in ("profile", "map", "reduce", "finish", "evaluate", "publish"):
        params = {"playbook": "p", "name": "p-1", "digest": "d"} if kind == "publish" else {}
        made = step_job(run, owner, Step(f"s-{kind}-a0", kind, 0, 7, params=params), 0, settings)
        images[kind] = made["spec"]["template"]["spec"]["containers"][0]["image"]
    assert images.pop("publish") == "localhost/worker:1"
    assert set(images.values()) == {"registry.example.com/routing:1"}


def test_a_class_is_loaded_only_where_the_administrator_allows_it() -> None:
    task = {
        "type": "Custom",
        "custom": {"class": "routing:Routing"},
        "data": {"train": {"uri": "s3://b/t"}, "heldOut": {"uri": "s3://b/h"}},
    }
    raw = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "formula"},
        "spec": {**spec_of(task=task).dump(), "playbookRef": {"name": "p"}},
    }
    assert (
        accept(raw, Policy(allow_custom_tasks=True, secret_policy=True, discipline="Advisory")).spec.task.type
        == "Custom"
    )
    with pytest.raises(RefusedError, match="custom tasks are not allowed on this cluster") as refused:
        accept(raw, Policy(allow_custom_tasks=False, secret_policy=True, discipline="Advisory"))
    assert refused.value.reason is Reason.PODS_NOT_ALLOWED


def test_a_run_of_traces_mounts_train_alone() -> None:
    run = parse_run(
        {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": "formula"},
            "spec": {
                **traces().spec.dump(),
                "task": {
                    "type": "Traces",
                    "data": {"train": {"configMap": {"name": "rows", "key": "t.jsonl"}}},
                },
            },
        },
        "r",
    )
    step = Step("s-profile-a0", "profile", 0, 7)
    made = step_job(run, Owner("formula", "team", UID), step, 0, Settings("localhost/worker:1"))
    volumes = [volume["name"] for volume in made["spec"]["template"]["spec"]["volumes"]]
    assert [name for name in volumes if name.startswith("data-")] == ["data-train"]
