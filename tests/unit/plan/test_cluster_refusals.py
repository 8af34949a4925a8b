"""What the API server cannot know is refused by the operator, with the reason and the words it must have."""

from __future__ import annotations

from typing import Any

import pytest

import admission_cases
from combee.api.conditions import TABLE, ConditionType, Reason
from combee.errors import ManifestError
from combee.objects.engines import check_model_cache, check_run
from combee.objects.types import Settings
from combee.plan.cluster.accept import Policy, RefusedError, accept

SETTINGS = Settings(worker_image="worker:1", vllm_image="vllm:1", engine_images=("ghcr.io/acme",))
POLICY = Policy(allow_custom_tasks=True, secret_policy=False, discipline="Advisory")
KIND = "PromptLearningRun"


def verdict(manifest: dict[str, Any]) -> tuple[str, str]:
    """The reason and message of PlanAccepted=False; empty when the plan is good."""
    try:
        run = accept(manifest, POLICY)
        check_run(run, SETTINGS)
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


def test_a_good_run_is_accepted() -> None:
    assert verdict(admission_cases.base(KIND)) == ("", "")
