"""decide_cluster() on pods of a user's image: when a run has them, and when their next Job comes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import LEARNING, NOW, STOPPED, done, job, memory, placed, plan, run_of, seen, summary

from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.memory import Gate, Memory
from combee.plan.cluster.rollouts import LOOK_SECONDS, RolloutsWish, by_warm_pool, rollouts_wished
from combee.plan.cluster.seen import JobSeen, RolloutsSeen, Trouble
from combee.plan.cluster.standing import conditions, standing
from combee.plan.state import RunState
from combee.plan.types import Outcome, Step

CONTAINER = {
    "task": {
        "type": "Custom",
        "custom": {"container": {"image": "i", "command": ["solve"]}},
        "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}},
    }
}
MAP = Step("garden-3fa9c1d2-i000-map", "map", 0, 7)
FULL = Trouble("Unschedulable", "pod x finds no node")
PUBLISHING = replace(STOPPED, phase="Publishing", outcome=Outcome("Learned", "it rose"))


def pods(attempt: int = 0, **changes: Any) -> RolloutsSeen:
    return RolloutsSeen(f"r-a{attempt}", attempt, **changes)


def ask(
    state: RunState | Memory,
    *jobs: JobSeen,
    rollouts: tuple[RolloutsSeen, ...] = (),
    about: dict[str, Any] = CONTAINER,
    **facts: Any,
) -> ClusterPlan:
    known = state if isinstance(state, Memory) else memory(state)
    there = {one.name: one for one in rollouts}
    return decide_cluster(
        run_of(**about), known, seen(*jobs, rollouts=there, **{"plans": {0: plan()}, **facts})
    )


NONE = RolloutsWish()
FIRST = RolloutsWish((0,))

COMES = {
    "no step's Job is there": ((), NONE),
    "its pod is not at work": ((job("map"),), NONE),
    "a pod of it is at work": ((job("map", ready=1),), FIRST),
    "all of them are": ((placed("map"),), FIRST),
    "the next step waits early": ((done("map"), placed("reduce"), placed("finish")), FIRST),
    "only a step without rollouts": ((done("map"), placed("reduce")), NONE),
    "the last step of an iteration": ((done("reduce"), job("finish", ready=1)), FIRST),
}


@pytest.mark.parametrize(("jobs", "expected"), COMES.values(), ids=COMES)
def test_pods_come_with_the_first_step_that_is_at_work(
    jobs: tuple[JobSeen, ...], expected: RolloutsWish
) -> None:
    assert ask(LEARNING, *jobs).rollouts == expected


def test_profile_rolls_out_too() -> None:
    assert ask(Memory(), job("profile", ready=1)).rollouts == FIRST


def test_a_run_whose_rollouts_are_calls_has_none() -> None:
    assert ask(LEARNING, placed("map"), about={}).rollouts == NONE


FOLLOWS = {
    "one serves": ((pods(),), RolloutsWish((0,))),
    "the same for the next step": ((pods(3),), RolloutsWish((3,))),
    "used up": ((pods(used_up=True),), RolloutsWish((0, 1))),
    "used up, and the next one is there": ((pods(used_up=True), pods(1)), RolloutsWish((0, 1))),
    "over": ((pods(over=True),), RolloutsWish((1,), ("r-a0",))),
    "over, and the next one is there": ((pods(over=True), pods(1)), RolloutsWish((1,), ("r-a0",))),
    "over and on its way out": ((pods(over=True, deleting=True),), RolloutsWish((1,))),
    "somebody deletes it": ((pods(2, deleting=True),), RolloutsWish((3,))),
}


@pytest.mark.parametrize(("rollouts", "expected"), FOLLOWS.values(), ids=FOLLOWS)
def test_one_job_follows_the_other(rollouts: tuple[RolloutsSeen, ...], expected: RolloutsWish) -> None:
    for step in (placed("map"), job("finish", ready=1)):
        jobs = (step,) if step.kind == "map" else (done("reduce"), step)
        assert ask(LEARNING, *jobs, rollouts=rollouts).rollouts == expected


@pytest.mark.parametrize(
    "jobs", [(done("map"), placed("reduce")), (done("reduce"),)], ids=["reduce", "between"]
)
def test_pods_stay_from_one_step_to_the_next(jobs: tuple[JobSeen, ...]) -> None:
    assert ask(LEARNING, *jobs, rollouts=(pods(),)).rollouts == FIRST


def claim(attempt: int, **changes: Any) -> RolloutsSeen:
    return RolloutsSeen(f"r-c{attempt}", attempt, "SandboxClaim", used_up=True, **changes)


def warm(*attempts: int, delete: tuple[str, ...] = ()) -> RolloutsWish:
    return RolloutsWish(attempts, delete, kind="SandboxClaim", pool=True)


CLAIMS = {
    "none yet": ((), warm(0, 1, 2)),
    "all are at work": ((claim(4), claim(5), claim(6)), warm(4, 5, 6)),
    "one is over": ((claim(4), claim(5, over=True), claim(6)), warm(4, 6, 7, delete=("r-c5",))),
    "over and on its way out": (
        (claim(4), claim(5), claim(6, over=True, deleting=True)),
        warm(4, 5, 7),
    ),
    "somebody deletes all": ((claim(0, deleting=True), claim(1, deleting=True)), warm(2, 3, 4)),
    "a Job is there from before": ((pods(2), claim(3)), RolloutsWish((2,), ("r-c3",))),
    "a Job from before is used up": ((pods(2, used_up=True),), RolloutsWish((2, 3))),
    "a Job from before is over": ((pods(2, over=True),), warm(3, 4, 5, delete=("r-a2",))),
}
THREE_AT_ONCE = {
    "task": {
        **CONTAINER["task"],
        "custom": {"container": {"image": "i", "command": ["solve"], "concurrency": 3}},
    }
}


@pytest.mark.parametrize(("rollouts", "expected"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_for_each_pod_at_work_takes_the_place_of_jobs(
    rollouts: tuple[RolloutsSeen, ...], expected: RolloutsWish
) -> None:
    found = ask(LEARNING, placed("map"), rollouts=rollouts, about=THREE_AT_ONCE, warm_pools=True)
    assert found.rollouts == expected


QUOTA = Trouble("WaitingForQuota", "no room")
PULL = Trouble("ImagePullFailed", "no such image")
STUCK = {
    "pods are ready": ((4, 5), 2, warm(6, 7, 8, delete=("r-c4", "r-c5")), FULL),
    "by a quota": ((4, 5), 2, warm(6, 7, 8, delete=("r-c4", "r-c5")), QUOTA),
    "no more than are ready": ((4, 5), 1, warm(5, 6, 7, delete=("r-c4",)), QUOTA),
    "none is ready": ((4, 5), 0, warm(4, 5, 6), FULL),
    "none is stuck": ((), 2, warm(4, 5, 6), FULL),
    "for another reason": ((4, 5), 2, warm(4, 5, 6), PULL),
}


@pytest.mark.parametrize(("stuck", "ready", "expected", "trouble"), STUCK.values(), ids=STUCK)
def test_a_claim_without_room_is_made_anew_where_a_pod_of_the_pool_is_ready(
    stuck: tuple[int, ...], ready: int, expected: RolloutsWish, trouble: Trouble
) -> None:
    there = tuple(claim(k, trouble=trouble if k in stuck else None) for k in (4, 5, 6))
    facts: dict[str, Any] = {"warm_pools": True, "pool": True, "pool_ready": ready}
    found = ask(LEARNING, placed("map"), rollouts=there, about=THREE_AT_ONCE, **facts)
    assert found.rollouts == expected


def test_a_pool_waits_for_the_first_step_and_goes_with_the_last_claim() -> None:
    early = ask(LEARNING, job("map"), about=THREE_AT_ONCE, warm_pools=True, pool=True)
    assert early.rollouts == RolloutsWish(pool=True)
    stuck = job("map", trouble=FULL)
    for rollouts in ((), (claim(0),)):
        wish = ask(LEARNING, stuck, rollouts=rollouts, about=THREE_AT_ONCE, warm_pools=True, pool=True)
        delete = tuple(one.name for one in rollouts)
        assert wish.rollouts == RolloutsWish(delete=delete, remove=True)


def test_a_run_in_a_queue_keeps_jobs_and_a_pool_that_it_had_goes() -> None:
    queued = {**THREE_AT_ONCE, "queue": {"name": "team-a"}}
    spec = run_of(**queued).spec
    assert not by_warm_pool(spec, seen(warm_pools=True))
    wish = rollouts_wished(
        spec, seen(placed("map"), rollouts={"r-c0": claim(0)}, warm_pools=True, pool=True), MAP
    )
    assert wish == RolloutsWish((1,), ("r-c0",))


GONE = RolloutsWish((), ("r-a0",), remove=True)


@pytest.mark.parametrize("trouble", ["Unschedulable", "WaitingForQuota"])
def test_pods_that_wait_for_a_step_never_hold_its_place(trouble: str) -> None:
    stuck = job("map", trouble=Trouble(trouble, "no place"))
    assert ask(LEARNING, stuck, rollouts=(pods(),)).rollouts == GONE


def test_they_go_when_nothing_is_rolled_out_any_more() -> None:
    learnt = memory(PUBLISHING, gate=Gate(0.5, 0.7, 0.1, 0.3, 20, 6))
    assert ask(learnt, rollouts=(pods(),)).rollouts == GONE


def test_they_go_when_the_run_is_suspended_or_over_and_it_looks_again() -> None:
    held = ask(LEARNING, rollouts=(pods(),), suspend=True)
    assert (held.rollouts, held.wake_after_seconds) == (GONE, 1.0)
    over = memory(replace(PUBLISHING, phase="Complete"), ended=NOW)
    ended = ask(over, rollouts=(pods(),))
    assert (ended.rollouts, ended.wake_after_seconds) == (GONE, 1.0)
    assert ask(over).wake_after_seconds is None


def test_a_failed_step_takes_them_down() -> None:
    failed = job("finish", summary=replace(summary("finish"), error="Transient", outputs={}), complete=True)
    got = ask(LEARNING, done("reduce"), failed, rollouts=(pods(),))
    assert got.outcome is not None and got.rollouts == GONE


LOOKS = {
    "none ended yet": ((pods(),), LOOK_SECONDS),
    "one ended well": ((pods(proven=True),), None),
    "the next Job's did not yet": ((pods(proven=True, used_up=True), pods(1)), LOOK_SECONDS),
    "a queue holds it": ((pods(held=True),), None),
    "over": ((pods(over=True),), None),
    "none is there": ((), None),
}


@pytest.mark.parametrize(("rollouts", "expected"), LOOKS.values(), ids=LOOKS)
def test_a_pod_that_cannot_start_tells_nobody_so_they_are_looked_at(
    rollouts: tuple[RolloutsSeen, ...], expected: float | None
) -> None:
    assert ask(LEARNING, placed("map"), rollouts=rollouts).wake_after_seconds == expected


def test_a_pod_that_finds_no_place_is_told_in_the_conditions() -> None:
    known, facts = memory(LEARNING), (placed("map"),)
    there = {"r-a0": pods(trouble=FULL)}
    run, now = run_of(**CONTAINER), seen(*facts, rollouts=there, plans={0: plan()})
    got = decide_cluster(run, known, now)
    end = standing(got.memory, got, now)
    assert end.message.endswith("; pod x finds no node")
    placement = next(
        c for c in conditions(run.spec, got.memory, got, now, end) if c.type.value == "PodsPlaced"
    )
    assert (placement.status, placement.reason.value, placement.message) == (
        "False",
        "Unschedulable",
        "pod x finds no node",
    )
