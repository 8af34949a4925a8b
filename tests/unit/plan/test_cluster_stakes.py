"""The steward of heldOut, its use for tuning and the cost of an error, in a run's condition and its
version."""

from __future__ import annotations

from cluster_bench import LEARNING, STOPPED, memory, seen, spec_of

from combee.api.conditions import ConditionType
from combee.api.load import parse_run
from combee.api.playbook import Origin
from combee.api.run import PromptLearningRun, RunSpec
from combee.api.stakes import Stakes
from combee.api.status import RunStatus
from combee.objects.versions import version_object
from combee.plan.cluster.decide import Run, decide_cluster
from combee.plan.cluster.status import About, run_status
from combee.plan.decide import Identity
from combee.records import Owner

TASK = spec_of().task.dump()
DATA = {**TASK["data"], "heldOut": {"uri": "h.jsonl", "steward": "data-platform", "usedForTuning": True}}
SPEC = spec_of(
    task={**TASK, "data": DATA, "failureCost": "A wrong figure"},
    playbookRef={"name": "formula"},
    serialBaseline={"method": "ACE", "waived": "a test"},
)
OF = Stakes("data-platform", used_for_tuning=True, failure_cost="A wrong figure")


def test_an_accepted_plan_says_what_its_verdicts_are_worth() -> None:
    plan = decide_cluster(Run(Identity("formula", "3fa9c1d2"), SPEC), memory(LEARNING), seen())
    status = run_status(About(SPEC, 1, "m", "image", "algorithm", str), RunStatus(), plan, seen())
    accepted = next(one for one in status.conditions if one.type is ConditionType.PLAN_ACCEPTED)
    assert accepted.message == (
        "the plan is good; the serial baseline is waived, so no speed-up is shown: a test; "
        "not stated: spec.models.task.endpoint.hardware (which GPUs or CPUs answer there, and how many?), "
        "spec.budget (what may it use at most, of rollouts, tokens, "
        "wallClockSeconds, money?); data-platform keeps heldOut; heldOut was used for tuning before, so its "
        "scores can be too good; a wrong answer costs: A wrong figure"
    )


def run_of(spec: RunSpec) -> PromptLearningRun:
    head = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": "formula"},
    }
    return parse_run({**head, "spec": spec.dump()}, "test")


def test_a_version_says_so_too_when_its_run_is_gone() -> None:
    run = run_of(SPEC)
    made = version_object(run, Owner("formula", "team", "3fa9c1d2"), memory(STOPPED))
    origin = {**made["spec"]["origin"], "dataDigests": {}}
    assert Origin.model_validate(origin).stakes == run.spec.task.stakes == OF


def test_a_version_keeps_the_rubric_that_it_was_learned_by() -> None:
    """Its canary judges by the same, also when the run is gone."""
    rubric = {"criteria": ("It answers first.", "It is polite.")}
    evaluator = {"endpoint": {"url": "https://judge/v1", "model": "judge"}}
    spec = spec_of(
        task={**TASK, "metric": "rubric", "rubric": rubric},
        models={**spec_of().models.dump(), "evaluator": evaluator},
        playbookRef={"name": "formula"},
    )
    made = version_object(run_of(spec), Owner("formula", "team", "3fa9c1d2"), memory(STOPPED))
    read = Origin.model_validate({**made["spec"]["origin"], "dataDigests": {}})
    assert read.rubric == spec.task.rubric and read.models["evaluator"] == "judge"
    assert (
        "rubric" not in version_object(run_of(SPEC), Owner("f", "t", "u"), memory(STOPPED))["spec"]["origin"]
    )


def test_a_version_says_what_it_was_learned_without() -> None:
    data = TASK["data"]
    data = {name: {**one, "forgotten": ["5"]} for name, one in data.items()}
    spec = spec_of(task={**TASK, "data": data}, playbookRef={"name": "formula"})
    made = version_object(run_of(spec), Owner("formula", "team", "3fa9c1d2"), memory(STOPPED))
    read = Origin.model_validate({**made["spec"]["origin"], "dataDigests": {}})
    assert read.forgotten == ("5", "heldOut 5")
    assert (
        "forgotten"
        not in version_object(run_of(SPEC), Owner("f", "t", "u"), memory(STOPPED))["spec"]["origin"]
    )
