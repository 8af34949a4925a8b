"""What the API server cannot know is refused by the operator, with the reason and the words it must have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import admission_cases
from combee.api.conditions import TABLE, ConditionType, Reason
from combee.api.run import Budget
from combee.api.status import RunStatus
from combee.cli.cluster.status_text import Shown, next_command, overview
from combee.errors import ManifestError
from combee.objects.engines import check_model_cache, check_run
from combee.objects.types import Settings
from combee.plan.cluster.accept import Policy, RefusedError, accept, question
from combee.plan.cluster.hardware import EngineGpus, engine_gpus
from combee.plan.cluster.status import refused_status
from escalations import ESCALATIONS, escalated

SETTINGS = Settings(worker_image="worker:1", vllm_image="vllm:1", engine_images=("ghcr.io/acme",))
POLICY = Policy(allow_custom_tasks=True, secret_policy=False, discipline="Advisory")
KIND = "PromptLearningRun"
NOTHING_KNOWN = EngineGpus()
EXAMPLES = Path(__file__).parents[3] / "examples"
QUICKSTART = EXAMPLES / "quickstart.yaml"


def verdict(manifest: dict[str, Any]) -> tuple[str, str]:
    """The reason and message of PlanAccepted=False; empty when the plan is good."""
    try:
        run = accept(manifest, POLICY)
        check_run(run, SETTINGS)
        question(run.spec, POLICY, engine_gpus(run.spec, None), started=False)
        for index, engine in enumerate(run.spec.engines):
            check_model_cache(engine, ("ReadWriteOnce",), index)
    except RefusedError as error:
        return error.reason, str(error)
    except ManifestError as error:
        return Reason.INVALID_MANIFEST, str(error)
    return "", ""


@pytest.mark.parametrize("case", [c for c in admission_cases.bad() if c.operator], ids=lambda case: case.name)
def test_what_only_the_operator_can_know_is_refused_with_a_reason(case: Any) -> None:
    reason, message = verdict(case.manifest)
    assert reason == case.reason
    assert case.says in message
    assert reason in TABLE[ConditionType.PLAN_ACCEPTED, "False"]


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in admission_cases.bad()
        if not c.operator and c.manifest.get("kind") == KIND and "specs" not in c.manifest
    ],
    ids=lambda case: case.name,
)
def test_what_the_api_server_refuses_the_operator_refuses_too(case: Any) -> None:
    # An older CRD may have let it through.
    assert verdict(case.manifest)[0] == Reason.INVALID_MANIFEST


def test_a_run_that_is_refused_is_called_refused_until_it_is_good() -> None:
    refused = refused_status(RunStatus(), 1, Reason.UNSOUND, "no", "2026-01-01T00:00:00Z")
    assert refused.phase == "Refused" and not refused.phase.over
    where = Shown("r", "team", refused, Budget(), now=0.0)
    assert " Refused " in f"{overview([where], namespaces=False)} " and next_command(where) == "why r"


def test_a_good_run_is_accepted() -> None:
    assert verdict(admission_cases.base(KIND)) == ("", "")


def judged(here: Any, *, started: bool = False, nodes: EngineGpus = NOTHING_KNOWN, **spec: Any) -> str:
    """The reason of a good run that states nothing, on a cluster of that discipline."""
    manifest = admission_cases.changed(
        admission_cases.base(KIND), {f"spec.{name}": value for name, value in spec.items()}
    )
    policy = Policy(True, True, here)
    try:
        question(accept(manifest, policy).spec, policy, nodes, started=started)
    except RefusedError as error:
        return error.reason
    return ""


def test_a_run_that_states_no_inputs_starts_only_where_discipline_is_advisory() -> None:
    assert judged("Strict") == "MissingInput"
    assert judged("Advisory") == ""
    assert judged("Strict", discipline="Advisory") == ""
    assert judged("Advisory", discipline="Strict") == "MissingInput"


def test_neither_an_upgrade_nor_another_value_of_the_chart_stops_a_run_that_is_at_work() -> None:
    assert judged("Strict", started=True) == ""
    assert judged("Strict") == "MissingInput"


def test_gpus_that_the_nodes_do_not_tell_are_asked_for() -> None:
    """They are no question where the nodes tell them, where the run says them, and after it started."""
    base = admission_cases.base(KIND)
    engine = base["spec"]["models"]["task"]["engineRef"]["name"]
    unknown = EngineGpus(unknown={engine: "Two kinds fit."})
    policy = Policy(True, True, "Strict")
    spec = accept(base, policy).spec
    with pytest.raises(RefusedError, match=r"spec\.engines\[0\]\.hardware \(which .* Two kinds fit\.\)"):
        question(spec, policy, unknown, started=False)
    question(spec, policy, unknown, started=True)
    with pytest.raises(RefusedError) as refused:
        question(spec, policy, EngineGpus({engine: "2 x 1 H100"}), started=False)
    assert "hardware" not in str(refused.value)


@pytest.mark.parametrize("name", ["endpoint", "formula-gpus", "kueue", "quickstart", "s3"])
def test_an_example_of_a_cluster_states_what_one_that_reads_no_nodes_asks(name: str) -> None:
    policy = Policy(True, True, "Strict")
    parts = list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))
    (run,) = (made for made in parts if made["kind"] == KIND)
    spec = accept(run, policy).spec
    question(spec, policy, engine_gpus(spec, None), started=False)


@pytest.mark.parametrize("name", ESCALATIONS)
def test_each_escalation_is_refused_with_its_message(name: str) -> None:
    values, reason, message = ESCALATIONS[name]
    objects = list(yaml.safe_load_all(QUICKSTART.read_text()))
    policy = Policy(True, True, "Strict")
    question(accept(escalated(objects, "run", {}), policy).spec, policy, NOTHING_KNOWN, started=False)
    spec = accept(escalated(objects, "run", values), policy).spec
    with pytest.raises(RefusedError) as refused:
        question(spec, policy, NOTHING_KNOWN, started=False)
    assert (refused.value.reason, str(refused.value)) == (reason, message)


def test_what_is_wrong_is_said_before_what_is_missing() -> None:
    assert judged("Strict", **{"method.type": "Ace"}) == "InvalidManifest"
