"""What the pods of a Job tell about another one for its step: not yet, or that it was not their fault."""

from __future__ import annotations

from typing import Any

import pytest

from combee.plan.cluster.diagnose import only_disrupted, still_at_work

NOW = "2023-11-14T22:13:20Z"
BEFORE, AFTER = "2023-11-14T22:13:19Z", "2023-11-14T22:13:25Z"


def pod(name: str, phase: str, deleted: str | None = None) -> dict[str, Any]:
    meta = {"name": name, **({"deletionTimestamp": deleted} if deleted else {})}
    return {"metadata": meta, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "left"),
    [
        ([], ""),
        ([pod("a", "Succeeded"), pod("b", "Failed")], ""),
        ([pod("b", "Running"), pod("a", "Pending")], "a"),
        ([pod("a", "Failed"), pod("b", "Running")], "b"),
        # Its grace is not over: it may be writing down its last answer.
        ([pod("a", "Running", AFTER)], "a"),
        # Its node is lost: nobody will ever say that it ended.
        ([pod("a", "Running", BEFORE)], ""),
        ([{"metadata": {"name": "a"}}], "a"),
    ],
)
def test_a_pod_that_may_work_holds_the_next_job_back(pods: list[dict[str, Any]], left: str) -> None:
    assert still_at_work(pods, NOW) == left


def died(name: str, *conditions: tuple[str, str]) -> dict[str, Any]:
    told = [{"type": type, "status": status} for type, status in conditions]
    return {"metadata": {"name": name}, "status": {"phase": "Failed", "conditions": told}}


@pytest.mark.parametrize(
    ("pods", "disrupted"),
    [
        ([], True),
        ([died("a", ("DisruptionTarget", "True"))], True),
        ([died("a", ("DisruptionTarget", "True")), died("b")], False),
        ([died("a", ("Ready", "False"))], False),
        ([died("a", ("DisruptionTarget", "False"))], False),
        ([pod("a", "Running"), pod("b", "Succeeded")], True),
    ],
)
def test_pods_that_were_taken_away_are_told_from_those_that_died(
    pods: list[dict[str, Any]], disrupted: bool
) -> None:
    assert only_disrupted(pods) is disrupted
