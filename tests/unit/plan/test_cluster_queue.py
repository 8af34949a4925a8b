"""A run queues as a whole: its engines and their GPUs come, wait and go with what its queue admits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import GPUS, LEARNING, NOW, job, memory, placed, plan, run_of, seen

from combee.api.conditions import ConditionType
from combee.plan.cluster import standing
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, JobSeen, Trouble

QUEUE = {**GPUS, "queue": {"name": "team-a"}}
GATED = Trouble("WaitingForQuota", "pod e is held back by its queue: gated")
UP = {"main": EngineSeen("main", 2, ready=2)}
WAITS = {"main": EngineSeen("main", 2, trouble=GATED, held=True)}
HELD = memory(LEARNING, engines_since={"main": NOW - 50})


def decided(
    before: Memory, *jobs: JobSeen, about: dict[str, Any], **facts: Any
) -> tuple[ClusterPlan, dict[ConditionType, tuple[str, str, str]]]:
    """The plan, and the run's conditions."""
    run, there = run_of(**about), seen(*jobs, plans={0: plan()}, **facts)
    got = decide_cluster(run, before, there)
    told = standing.conditions(run.spec, got.memory, got, there, standing.standing(got.memory, got, there))
    return got, {one.type: (one.status, one.reason.value, one.message) for one in told}


@pytest.mark.parametrize("about", [QUEUE, GPUS], ids=["its own queue", "one that the cluster chose"])
def test_a_queue_that_takes_its_job_back_gets_its_gpus_at_once(about: dict[str, Any]) -> None:
    evicted = job("map", held=True, evicted=True, queue="team-a")
    got, _ = decided(HELD, evicted, about=about, engines=UP)
    assert got.engines == {"main": EngineWish(0)}
    assert got.memory.gpu_seconds == 4 * 50 and not got.memory.engines_since
    _, told = decided(got.memory, evicted, about=about, engines={"main": EngineSeen("main", 0)})
    assert told[ConditionType.ENGINES_READY][2] == "engine main is taken down: its queue took the run back"
    again, _ = decided(got.memory, placed("map"), about=about, engines={"main": EngineSeen("main", 0)})
    assert again.engines == {"main": EngineWish(2)}, "it is admitted again"


def test_one_job_of_two_that_is_taken_back_takes_no_engine_from_the_other() -> None:
    jobs = (placed("map"), job("reduce", held=True, evicted=True))
    got, _ = decided(HELD, *jobs, about=QUEUE, engines=UP)
    assert got.engines == {"main": EngineWish(2)}


def test_a_job_that_is_not_admitted_yet_leaves_loaded_engines_alone() -> None:
    got, _ = decided(HELD, job("map", held=True, queue="team-a"), about=QUEUE, engines=UP)
    assert got.engines == {"main": EngineWish(2)}


def test_an_engine_that_waits_for_its_queue_costs_nothing_and_says_what_it_waits_for() -> None:
    got, told = decided(HELD, placed("map"), about=QUEUE, engines=WAITS)
    assert got.engines == {"main": EngineWish(2)}
    assert (got.memory.gpu_seconds, got.memory.engines_since) == (4 * 50, {})
    assert (got.memory.active_since, got.memory.elapsed(NOW)) == (0.0, 100.0), "its clock stands"
    later = replace(seen(placed("map"), plans={0: plan()}, engines=WAITS), now=NOW + 900)
    after = decide_cluster(run_of(**QUEUE), got.memory, later).memory
    assert (after.gpu_seconds, after.elapsed(NOW + 900)) == (4 * 50, 100.0)
    assert told[ConditionType.QUOTA_RESERVED] == ("False", "WaitingForQuota", f"engine main: {GATED.message}")
    assert told[ConditionType.ENGINES_READY][:2] == ("False", "WaitingForQuota")


def test_weights_that_wait_for_the_queue_stop_the_clock() -> None:
    waits = Trouble(
        "WaitingForQuota", "its weights are not fetched yet: queue team-a has not admitted Job j yet"
    )
    got, told = decided(memory(LEARNING), placed("map"), about=QUEUE, fetching={"main": waits})
    assert got.memory.active_since == 0.0
    assert told[ConditionType.ENGINES_READY] == ("False", "WaitingForQuota", f"engine main: {waits.message}")


def test_a_queue_that_the_run_does_not_name_is_named_and_called_so() -> None:
    _, told = decided(HELD, job("map", held=True, queue="default"), about=GPUS, engines=UP)
    status, reason, message = told[ConditionType.QUOTA_RESERVED]
    assert (status, reason) == ("False", "WaitingForQuota")
    assert message.startswith("queue default has not admitted Job formula-3fa9c1d2-i000-map-a0 yet"), message
    assert "names no queue" in message
    _, told = decided(memory(LEARNING), about=GPUS, engines=WAITS)
    assert told[ConditionType.QUOTA_RESERVED][:2] == ("False", "WaitingForQuota")
    _, told = decided(HELD, placed("map"), about=GPUS, engines=UP)
    assert told[ConditionType.QUOTA_RESERVED][:2] == ("True", "NoQueue")


def test_a_job_that_somebody_suspended_is_in_no_queue() -> None:
    _, told = decided(HELD, job("map", held=True), about=GPUS, engines=UP)
    assert "suspended and in no queue" in told[ConditionType.QUOTA_RESERVED][2]
