"""A run queues as a whole: its engines and their GPUs come, wait and go with what its queue admits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import ENDPOINT, GPUS, LEARNING, NOW, STOPPED, job, memory, placed, plan, run_of, seen

from combee.api.conditions import ConditionType
from combee.names import step_name
from combee.plan.cluster import standing
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, JobSeen, Seen, Trouble

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


@pytest.mark.parametrize(
    ("jobs", "asked_now", "stands"),
    [
        ((placed("evaluate", 3),), "proposer", False),
        ((placed("map"),), "proposer", False),
        ((), "proposer", True),
        ((placed("map"),), "evaluator", True),
    ],
    ids=["of no step to come", "while the run works", "between steps", "all that can answer"],
)
def test_the_clock_goes_on_while_a_run_works_though_an_engine_of_another_role_is_held_back(
    jobs: tuple[JobSeen, ...], asked_now: str, stands: bool
) -> None:
    small = {"name": "small", "vllm": {"model": "s", "gpusPerReplica": 1, "replicas": 1}}
    other = {"engineRef": {"name": "small"}}
    models = {"task": ENDPOINT, "proposer": ENDPOINT} if asked_now == "evaluator" else dict(GPUS["models"])
    about = {**QUEUE, "engines": [*GPUS["engines"], small], "models": {**models, "proposer": other}}
    engines = {"small": EngineSeen("small", 1, trouble=GATED, held=True), **UP}
    state = STOPPED if jobs and jobs[0].kind == "evaluate" else LEARNING
    got = decide_cluster(run_of(**about), memory(state), seen(*jobs, plans={0: plan()}, engines=engines))
    assert (got.memory.active_since == 0.0) is stands


def test_an_engine_keeps_its_place_in_the_queue_between_two_steps() -> None:
    got, _ = decided(memory(LEARNING), about=QUEUE, engines=WAITS)
    assert got.engines == {"main": EngineWish(2)} and not got.jobs, "and no Job comes before it"
    up, _ = decided(got.memory, about=QUEUE, engines={"main": EngineSeen("main", 2)})
    assert up.engines == {"main": EngineWish(2)} and up.jobs, "it was admitted, and loads"


JOB_CPU, ENGINE_CPU = 2, 5


class Team:
    """A queue with some cpu, first come first served, and runs that each need a Job and an engine at once."""

    def __init__(self, cpu: int, runs: int) -> None:
        self.cpu, self.now = cpu, NOW
        self.memories = {f"{index}fa9c1d2": memory(LEARNING) for index in range(runs)}
        self.works = dict.fromkeys(self.memories, 60)
        self.since: dict[tuple[str, str], float] = {}
        """what each run has in the queue -> since when."""
        self.admitted: set[tuple[str, str]] = set()

    def tick(self) -> None:
        self.now += 1.0
        for uid in self.memories:
            self._decide(uid)
        for one in sorted(self.since, key=lambda one: (self.since[one], one)):
            sizes = (JOB_CPU if what == "job" else ENGINE_CPU for _, what in {*self.admitted, one})
            if sum(sizes) <= self.cpu:
                self.admitted.add(one)

    def _decide(self, uid: str) -> None:
        mine = {what for owner, what in self.since if owner == uid}
        let_in = {what for owner, what in self.admitted if owner == uid}
        if self.works[uid] <= 0:
            self._remove(uid, mine)
            return
        self.works[uid] -= let_in == {"job", "engine"}
        name = step_name("formula", uid, 0, "map")
        there = JobSeen(
            name, name, "map", completions=4, ready=4 * ("job" in let_in), held="job" not in let_in
        )
        gated = "engine" not in let_in
        engine = EngineSeen("main", 2, 0 if gated else 2, GATED if gated else None, held=gated)
        facts = replace(
            Seen(now=self.now, plans={0: plan()}),
            jobs={name: there} if "job" in mine else {},
            engines={"main": engine} if "engine" in mine else {},
        )
        got = decide_cluster(run_of(uid=uid, **QUEUE), self.memories[uid], facts)
        self.memories[uid] = got.memory
        self._remove(uid, {"job"} if got.delete else set())
        for what, wanted in (("job", got.jobs), ("engine", got.engines and got.engines["main"].replicas)):
            if wanted:
                self.since.setdefault((uid, what), self.now)
        if got.engines and not got.engines["main"].replicas:
            self._remove(uid, {"engine"})

    def _remove(self, uid: str, what: set[str]) -> None:
        for one in what:
            self.since.pop((uid, one), None)
            self.admitted.discard((uid, one))


@pytest.mark.parametrize(("cpu", "runs"), [(7, 2), (7, 3), (8, 5), (9, 5), (11, 3)])
def test_runs_whose_jobs_took_the_room_of_all_engines_do_not_wait_for_ever(cpu: int, runs: int) -> None:
    team = Team(cpu, runs)
    for _ in range(1800):
        team.tick()
    assert all(left <= 0 for left in team.works.values()), team.works


def test_a_job_that_waits_for_an_engine_in_the_queue_gives_its_place_back_and_counts_no_attempt() -> None:
    got, _ = decided(HELD, placed("map"), about=QUEUE, engines=WAITS)
    assert not got.delete and got.wake_after_seconds is not None and got.wake_after_seconds <= 30
    later = replace(seen(placed("map"), plans={0: plan()}, engines=WAITS), now=NOW + 30)
    back = decide_cluster(run_of(**QUEUE), got.memory, later)
    assert back.delete == (placed("map").name,) and not back.jobs and not back.memory.attempts
    assert back.engines == {"main": EngineWish(2)} and "give their quota back" in back.waiting


def test_which_jobs_a_queue_let_go_is_remembered_while_they_live() -> None:
    got, _ = decided(HELD, placed("map"), job("reduce", held=True), about=QUEUE, engines=UP)
    assert got.memory.admitted == (placed("map").name,)
    back, _ = decided(got.memory, job("map", held=True, evicted=True), about=QUEUE, engines=UP)
    assert back.memory.admitted == got.memory.admitted
    gone, _ = decided(back.memory, replace(placed("map"), deleting=True), about=QUEUE, engines=UP)
    assert gone.memory.admitted == ()
