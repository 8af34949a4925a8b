"""A run queues as a whole: nothing of it is there before its queue admits it, nor once that takes it back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import GPUS, LEARNING, NOW, done, job, memory, placed, plan, run_of, seen

from combee.api.conditions import ConditionType
from combee.plan.cluster import standing
from combee.plan.cluster.decide import ClusterPlan, QueueWish, decide_cluster
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, JobSeen, QueueSeen, RolloutsSeen, Trouble
from combee.plan.state import RunState
from combee.plan.types import Outcome

QUEUE = {**GPUS, "queue": {"name": "team-a"}}
UP = {"main": EngineSeen("main", 2, ready=2)}
HELD = memory(LEARNING, engines_since={"main": NOW - 50})
NONE_YET, WAITS, ADMITTED = QueueSeen(), QueueSeen(made=True), QueueSeen(made=True, admitted=True, ready=True)
EVICTED = QueueSeen(made=True, evicted=True, because="Preempted to accommodate a workload")
GATED = Trouble("WaitingForQuota", "pod e is held back by a queue that the cluster put it into: gated")


def decided(
    before: Memory, *jobs: JobSeen, about: dict[str, Any] = QUEUE, **facts: Any
) -> tuple[ClusterPlan, dict[ConditionType, tuple[str, str, str]]]:
    """The plan, and the run's conditions."""
    run, there = run_of(**about), seen(*jobs, **{"plans": {0: plan()}, **facts})
    got = decide_cluster(run, before, there)
    told = standing.conditions(run.spec, got.memory, got, there, standing.standing(got.memory, got, there))
    return got, {one.type: (one.status, one.reason.value, one.message) for one in told}


def test_a_new_run_asks_its_queue_for_all_of_itself_and_for_nothing_else() -> None:
    first, _ = decided(Memory(), plans={}, queue=NONE_YET)
    assert (first.queue, first.wake_after_seconds) == ("", 1.0), "its spec may still change"
    assert (first.memory.started, first.memory.active_since) == (NOW, 0.0)
    got, told = decided(first.memory, plans={}, queue=NONE_YET)
    assert (got.queue, got.jobs, got.engines) == ("Join", (), {})
    assert told[ConditionType.QUOTA_RESERVED] == (
        "False",
        "WaitingForQuota",
        "queue team-a has not admitted the run yet",
    )


def test_a_run_that_waits_says_why_in_the_queues_words_and_its_clock_stands() -> None:
    waits = replace(WAITS, because="insufficient unused quota for cpu")
    got, told = decided(memory(LEARNING), queue=waits)
    says = "queue team-a has not admitted the run yet: insufficient unused quota for cpu"
    assert (got.queue, got.jobs, got.engines, got.wake_after_seconds) == ("", (), {}, None)
    assert got.memory.active_since == 0.0 and got.memory.elapsed(NOW + 900) == 100.0
    assert told[ConditionType.QUOTA_RESERVED] == ("False", "WaitingForQuota", says)
    assert told[ConditionType.ENGINES_READY] == ("False", "WaitingForQuota", says)
    assert told[ConditionType.PODS_PLACED][:2] == ("Unknown", "NotStarted")
    assert told[ConditionType.READY][2].endswith(says)


def test_a_queue_that_cannot_be_asked_is_not_asked() -> None:
    got, told = decided(memory(LEARNING), queue=QueueSeen(lacks="Kueue is not installed"))
    assert (got.queue, got.jobs) == ("", ())
    assert told[ConditionType.QUOTA_RESERVED][2] == "queue team-a cannot be asked: Kueue is not installed"


def test_once_it_is_admitted_a_run_goes_on_as_one_without_a_queue() -> None:
    got, told = decided(memory(RunState()), plans={}, queue=ADMITTED)
    alone, _ = decided(memory(RunState()), plans={}, about=GPUS)
    assert got == alone and got.engines == {"main": EngineWish(2)}
    assert told[ConditionType.QUOTA_RESERVED] == ("True", "Reserved", "queue team-a admitted the run")


def test_the_queue_is_told_once_when_a_step_is_at_work() -> None:
    admitted = replace(ADMITTED, ready=False)
    assert decided(HELD, job("map"), engines=UP, queue=admitted)[0].queue == ""
    assert decided(HELD, placed("map"), engines=UP, queue=admitted)[0].queue == "TellReady"
    assert decided(HELD, placed("map"), engines=UP, queue=ADMITTED)[0].queue == ""


def test_steps_of_a_run_in_a_queue_follow_each_other() -> None:
    got, _ = decided(HELD, placed("map"), engines=UP, queue=ADMITTED)
    assert [wish.step.kind for wish in got.jobs] == ["map"]


@pytest.mark.parametrize(
    "queue", [EVICTED, WAITS, NONE_YET], ids=["evicted", "waits", "its place was deleted"]
)
def test_a_queue_that_takes_a_run_back_gets_its_pods_and_gpus_at_once(queue: QueueSeen) -> None:
    rollouts = {"r": RolloutsSeen("r", 0)}
    fetching = {"other": Trouble("Starting", "fetched")}
    got, told = decided(HELD, placed("map"), engines=UP, rollouts=rollouts, fetching=fetching, queue=queue)
    assert (got.jobs, got.delete, got.rollouts.delete) == ((), (placed("map").name,), ("r",))
    assert got.engines == {name: EngineWish(0, remove=True) for name in ("main", "other")}
    assert got.memory.gpu_seconds == 4 * 50 and not got.memory.engines_since
    assert (got.queue, got.wake_after_seconds) == ("", 1.0), "nothing is given back that is still in use"
    assert told[ConditionType.QUOTA_RESERVED][:2] == ("False", "WaitingForQuota")
    assert got.memory.run == HELD.run and not got.memory.attempts


@pytest.mark.parametrize(
    ("left", "queue"),
    [
        ({}, "GiveBack"),
        ({"engines": {"main": EngineSeen("main", 0)}}, ""),
        ({"fetching": {"main": Trouble("Starting", "fetched")}}, ""),
        ({"rollouts": {"r": RolloutsSeen("r", 0, deleting=True)}}, ""),
    ],
    ids=["nothing", "an engine without servers", "a fetch", "rollouts"],
)
def test_the_place_is_given_back_once_nothing_is_left(left: dict[str, Any], queue: QueueWish) -> None:
    got, told = decided(memory(LEARNING), done("map"), queue=EVICTED, **left)
    assert (got.queue, got.wake_after_seconds) == (queue, 1.0)
    says = "queue team-a took back what it had admitted: Preempted to accommodate a workload"
    assert told[ConditionType.QUOTA_RESERVED][2] == says


def test_what_had_ended_before_an_eviction_is_kept_for_after_it() -> None:
    got, _ = decided(memory(LEARNING), done("map"), queue=EVICTED)
    assert (got.delete, got.expire) == ((), ())
    again, _ = decided(got.memory, done("map"), engines=UP, queue=ADMITTED)
    assert [wish.step.kind for wish in again.jobs] == ["reduce"]


def test_a_place_that_somebody_finished_is_left_for_a_new_one() -> None:
    got, _ = decided(memory(LEARNING), queue=QueueSeen(made=True, stale=True))
    assert (got.queue, got.wake_after_seconds) == ("Leave", 1.0)


def test_a_run_that_is_suspended_leaves_its_queue_once_nothing_is_left() -> None:
    got, _ = decided(HELD, engines=UP, suspend=True, queue=ADMITTED)
    assert (got.queue, got.engines) == ("", {"main": EngineWish(0, remove=True)})
    got, told = decided(got.memory, suspend=True, queue=ADMITTED)
    assert (got.queue, got.wake_after_seconds) == ("Leave", 1.0)
    assert told[ConditionType.QUOTA_RESERVED][:2] == ("False", "Suspended")
    got, _ = decided(got.memory, suspend=True, queue=NONE_YET)
    assert (got.queue, got.wake_after_seconds) == ("", None)


@pytest.mark.parametrize(
    ("left", "queue", "wish", "stands"),
    [
        ({"engines": UP}, ADMITTED, "", "Reserved"),
        ({"rollouts": {"r": RolloutsSeen("r", 0)}}, ADMITTED, "", "Reserved"),
        ({}, ADMITTED, "Leave", "Reserved"),
        ({}, EVICTED, "Leave", "Reserved"),
        ({}, QueueSeen(hidden=True, lacks="may not be listed"), "", "Reserved"),
        ({}, QueueSeen(lacks="Kueue is not installed"), "", "NoQueue"),
        ({}, NONE_YET, "", "NoQueue"),
    ],
    ids=[
        "its engine goes",
        "its rollouts go",
        "nothing is seen",
        "it is taken back",
        "nobody can tell",
        "no Kueue",
        "it has left",
    ],
)
def test_a_run_that_is_over_leaves_its_queue_once_nothing_is_left_and_does_not_come_back(
    left: dict[str, Any], queue: QueueSeen, wish: QueueWish, stands: str
) -> None:
    over = replace(LEARNING, phase="Complete", outcome=Outcome("NothingBetter", "x"))
    got, told = decided(memory(over, ended=NOW - 1), queue=queue, **left)
    assert (got.queue, got.wake_after_seconds) == (wish, 1.0 if queue.made else None)
    assert told[ConditionType.QUOTA_RESERVED][:2] == ("True", stands)


def test_a_queue_that_the_run_does_not_name_is_named_and_called_so() -> None:
    held = job("map", held=True, queue="default")
    got, told = decided(HELD, held, about=GPUS, engines=UP)
    status, reason, message = told[ConditionType.QUOTA_RESERVED]
    assert (status, reason) == ("False", "WaitingForQuota")
    assert message.startswith(f"queue default has not admitted Job {held.name} yet: the cluster put"), message
    assert got.memory.active_since == 0.0, "its clock stands"
    _, told = decided(HELD, held, engines=UP, queue=ADMITTED)
    assert told[ConditionType.QUOTA_RESERVED][2] == message, "beside the queue that the run names, too"
    _, told = decided(HELD, placed("map"), about=GPUS, engines=UP)
    assert told[ConditionType.QUOTA_RESERVED][:2] == ("True", "NoQueue")


def test_an_engine_that_such_a_queue_gates_costs_nothing_and_says_what_it_waits_for() -> None:
    gated = {"main": EngineSeen("main", 2, trouble=GATED, held=True)}
    got, told = decided(HELD, about=GPUS, engines=gated)
    assert (got.memory.gpu_seconds, got.memory.engines_since, got.memory.active_since) == (4 * 50, {}, 0.0)
    assert told[ConditionType.QUOTA_RESERVED] == ("False", "WaitingForQuota", f"engine main: {GATED.message}")
    assert told[ConditionType.ENGINES_READY] == ("False", "WaitingForQuota", f"engine main: {GATED.message}")
    at_work, _ = decided(HELD, placed("map"), about=GPUS, engines=gated)
    assert at_work.memory.active_since == NOW - 100, "a pod is at work"


def test_a_job_that_somebody_suspended_is_in_no_queue() -> None:
    _, told = decided(HELD, job("map", held=True), about=GPUS, engines=UP)
    assert "suspended and in no queue" in told[ConditionType.QUOTA_RESERVED][2]
