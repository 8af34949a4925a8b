"""Money in a run's life: what is planned, when it ends, what its status says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from cluster_bench import LEARNING, NOW, memory, run_of, seen

from combee.algo.budget import Spend
from combee.api.load import parse_run
from combee.api.run import RunSpec
from combee.api.status import RunStatus
from combee.errors import ManifestError
from combee.operator.statuspatch import status_patch
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.engines import deadline
from combee.plan.cluster.status import About, run_status
from combee.plan.decide import decide
from combee.plan.money import money_of
from combee.plan.types import RoleUsage, Snapshot

OWN = {"engines": [{"name": "main", "vllm": {"model": "m", "gpusPerReplica": 2, "replicas": 2}}]}
ROLE = {"engineRef": {"name": "main"}}
ASKED = {"endpoint": {"url": "http://localhost:1/v1", "model": "vendor"}}
TABLE = {
    "currency": "EUR",
    "models": [
        {
            "name": "vendor",
            "promptPerMillionTokens": 2.0,
            "cachedPerMillionTokens": 0.5,
            "completionPerMillionTokens": 8.0,
        }
    ],
    "perGpuHour": 3.0,
}


def spec(**changes: object) -> RunSpec:
    """The task model on GPUs of the run's own, the proposer a vendor's."""
    base: dict[str, object] = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE"},
        **OWN,
        "models": {"task": ROLE, "proposer": ASKED},
        "prices": TABLE,
        **changes,
    }
    kind = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "formula"}}
    return parse_run({**kind, "spec": base}, "test").spec


USAGE = {
    "task": RoleUsage(100, 0, 1_000_000, 1_000_000),
    "proposer": RoleUsage(100, 0, 1_000_000, 500_000, 400_000),
}


def test_tokens_cost_by_model_and_gpus_by_the_hour() -> None:
    cost = money_of(spec(), USAGE, gpu_seconds=4 * 1800)
    assert cost == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.5 * 8.0 + 2 * 3.0)
    assert money_of(spec(prices=None), USAGE, gpu_seconds=7200) == 0.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": {"money": 5}, "prices": None}, "budget.money without prices"),
        ({"prices": {**TABLE, "models": []}}, "prices say nothing of models.proposer (vendor)"),
        ({"prices": {**TABLE, "perGpuHour": 0.0}}, "prices say nothing of models.task (m)"),
        ({"prices": {**TABLE, "currency": "euro"}}, "currency"),
        (
            {"prices": {**TABLE, "models": [*TABLE["models"], *TABLE["models"]]}},
            "two models are named vendor",
        ),
        ({"budget": {"money": 0}}, "money"),
    ],
)
def test_what_cannot_be_told_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ManifestError, match=said.replace("(", r"\(").replace(")", r"\)")):
        spec(**changes)


def test_spent_money_ends_learning_and_what_is_left_caps_the_batch() -> None:
    run = run_of()
    limited = spec(budget={"money": 10.0}, batching={"mode": "Fixed", "size": 50, "reason": "test"})
    state = replace(LEARNING, usage=USAGE, spend=Spend(rollouts=100, tokens=3_500_000))

    def stop_at(gpu_seconds: float, **changes: object) -> str:
        got = decide(
            spec=limited,
            who=run.who,
            state=replace(state, **changes),
            snapshot=Snapshot(),
            elapsed_seconds=0.0,
            gpu_seconds=gpu_seconds,
        )
        return got.state.stop.reason if got.state.stop else f"batch of {got.freeze.batch_size}"

    assert stop_at(7200.0) == "the budget of 10 in money is spent"
    dear = Spend(rollouts=2, tokens=87_500)
    assert stop_at(0.0, per_example=dear) == "batch of 20"
    assert "does not pay for another iteration" in stop_at(0.0, per_example=Spend(2, 3_500_000))
    assert stop_at(1200.0, per_example=dear) == "batch of 8", "6.4 of 10 is spent, 1 of it on GPUs"


def test_the_clock_of_gpus_is_a_deadline_for_money() -> None:
    limited = spec(budget={"money": 20.0})
    held = memory(replace(LEARNING, usage=USAGE), engines_since={"main": NOW - 3600})
    left = deadline(limited, held, NOW)
    assert left.passed is None
    assert left.seconds_left == pytest.approx((20.0 - 5.4 - 4 * 3.0) / (4 * 3.0 / 3600))
    passed = deadline(limited, held, NOW + 3600).passed
    assert passed is not None and passed.reason == "the budget of 20 in money is spent"


def test_the_status_says_what_it_cost() -> None:
    limited = spec(budget={"money": 25.0}, playbookRef={"name": "formula"})
    at = ClusterPlan(memory(replace(LEARNING, usage=USAGE)))
    about = About(limited, 1, "d", "i", "a", lambda at: "2026-01-01T00:00:00Z")
    status = run_status(about, RunStatus(), at, seen())
    assert (status.spend.money, status.spend.currency) == (5.4, "EUR")
    assert status.shown.cost == "5.40/25 EUR"
    plain = run_status(replace(about, spec=spec(prices=None)), RunStatus(), at, seen())
    assert plain.spend.money is None and plain.shown.cost == ""


def test_the_status_counts_gpus_that_are_up_and_does_not_move_with_the_clock_alone() -> None:
    held = memory(replace(LEARNING, usage=USAGE), engines_since={"main": NOW - 3600})
    about = About(spec(), 1, "d", "i", "a", lambda at: "2026-01-01T00:00:00Z" if at else "")
    first = run_status(about, RunStatus(), ClusterPlan(held), seen())
    assert (first.spend.gpu_seconds, first.spend.money) == (4 * 3600, pytest.approx(5.4 + 4 * 3.0))
    assert first.shown.cost == "17.40 EUR"
    kept = {name: value for name, value in first.dump().items() if value != ""}
    assert "null" not in json.dumps(kept), "a server removes what a patch says null of"
    written = RunStatus.model_validate(kept)
    later = seen(now=NOW + 1800)
    again = run_status(about, written, ClusterPlan(held), later)
    assert status_patch({"metadata": {"resourceVersion": "1"}, "status": kept}, again.dump()) is None
    changed = run_status(about, written, ClusterPlan(replace(held, let_goes=1)), later)
    assert (changed.spend.gpu_seconds, changed.shown.cost) == (4 * 5400, "23.40 EUR")
