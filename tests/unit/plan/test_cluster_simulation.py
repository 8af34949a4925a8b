"""Runs on a cluster that is cruel to them: they end, and with the same playbooks as undisturbed.

Hypothesis draws what happens and when: pods die, Jobs and results vanish, statuses are not written,
snapshots are old, operators stop, runs are suspended. Once that stops, every run has to end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from cluster_bench import GPUS, run_of
from cluster_fake import FakeJob, FakeRun, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from combee.plan.cluster.decide import decide_cluster
from combee.plan.cluster.jobs import MAX_LOST_RESULTS
from combee.plan.cluster.seen import Seen

TICK = 2.0
ENOUGH_TICKS = 900
"""of two seconds: far more than any of these runs needs once it is left alone."""
KINDS: dict[str, dict[str, Any]] = {
    "endpoint": {},
    "in series": {"workers": {"parallelism": 4, "overlap": "Never"}},
    "engines": GPUS,
    "queue": {"queue": {"name": "team-a"}},
    "engines and queue": {**GPUS, "queue": {"name": "team-a"}},
}


def world(kind: str, names: tuple[str, ...] = ("one",), quota: int = 99) -> World:
    runs = {name: FakeRun(run_of(name, f"{k:08d}", **KINDS[kind])) for k, name in enumerate(names)}
    return World(runs, quota=quota)


def finish(here: World, ticks: int = ENOUGH_TICKS) -> None:
    """Leave the runs alone until they are over and everything of them is gone."""
    for run in here.runs.values():
        run.suspend = False
    for _ in range(ticks):
        here.pass_seconds(TICK)
        for name in here.runs:
            settle(here, name)
        left = (*here.jobs, *here.engines, *here.places)
        if all(run.memory.ended for run in here.runs.values()) and not left:
            return
    raise AssertionError(
        f"not over after {ticks} ticks: "
        + "; ".join(
            f"{name} {run.memory.run.phase} {run.memory.run.iteration}" for name, run in here.runs.items()
        )
        + f"; {here.jobs}; {here.engines}"
    )


def settle(here: World, name: str) -> None:
    """Reconcile as an operator does: when something happened or the plan asked for it, until nothing
    changes. Then deciding again, also a moment later, gives an equal plan and an equal memory."""
    run = here.runs[name]
    if not here.due(name):
        return
    for _ in range(12):
        before, facts = run.memory, here.see(name)
        plan = here.tick(name)
        if plan.memory == before and here.see(name) == facts:
            break
    else:
        raise AssertionError(f"the memory of {name} changes for ever: {before} {plan.memory}")
    assert decide_cluster(run.run, before, facts) == plan
    later = replace(facts, now=facts.now + min(0.5, (plan.wake_after_seconds or 1.0) / 2))
    assert decide_cluster(run.run, before, later).memory == before, "the clock alone changes the memory"
    for job in facts.jobs.values():
        assert not job.live or job.attempt == before.attempt(job.step), f"{job.name} was left behind"
    here.settled(name, plan)


def artifacts(here: World, name: str) -> list[str]:
    return [artifact for run, _, artifact in here.finished if run == name]


def outcome(here: World, name: str) -> tuple[Any, ...]:
    """What must not depend on what happened on the way."""
    memory = here.runs[name].memory
    learned = [(n.iteration, n.batch_size, n.select, n.artifact) for n in memory.notes]
    return (memory.run, learned, memory.gate, memory.published, memory.error)


@pytest.fixture(scope="module")
def undisturbed() -> dict[tuple[str, int], World]:
    """Every kind of run left alone, by kind and number of runs."""
    calm = {(kind, 1): world(kind) for kind in KINDS}
    calm |= {(kind, 2): world(kind, ("one", "two")) for kind in KINDS}
    for here in calm.values():
        finish(here)
    return calm


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_left_alone_learns(kind: str, undisturbed: dict[tuple[str, int], World]) -> None:
    here = undisturbed[kind, 1]
    memory = here.runs["one"].memory
    assert memory.run.outcome is not None and memory.run.outcome.name == "Learned"
    assert memory.published == "formula-a3"
    assert len(artifacts(here, "one")) == 4  # profile's and three iterations'
    assert (memory.attempts, memory.failures, memory.lost, memory.in_turn) == ({}, {}, {}, ())


@pytest.mark.parametrize("kind", ["engines", "engines and queue"])
def test_gpu_seconds_are_the_stretches_that_engines_were_held(
    kind: str, undisturbed: dict[tuple[str, int], World]
) -> None:
    run = undisturbed[kind, 1].runs["one"]
    assert run.memory.gpu_seconds == pytest.approx(run.gpu_seconds)
    assert run.gpu_seconds > 4 * 20


def test_engines_come_up_once_for_a_whole_run_in_a_queue() -> None:
    here, ups, before = world("engines and queue"), 0, 0
    for _ in range(200):
        here.pass_seconds(TICK)
        settle(here, "one")
        now = sum(engine.replicas for engine in here.engines.values())
        ups += now > before
        before = now
    assert here.runs["one"].memory.ended
    assert ups == 1


def test_five_runs_in_a_queue_with_room_for_one_come_one_after_another_and_end(
    undisturbed: dict[tuple[str, int], World],
) -> None:
    names = ("one", "two", "three", "four", "five")
    here = world("engines and queue", names)
    here.room = 1
    finish(here, 5 * ENOUGH_TICKS)
    assert outcome(here, "one") == outcome(undisturbed["engines and queue", 1], "one")
    spans = sorted((run.memory.active_seconds, name) for name, run in here.runs.items())
    assert spans[-1][0] < 2 * spans[0][0], f"time in the queue counts for somebody: {spans}"


@pytest.mark.parametrize("kind", ["endpoint", "in series", "queue"])
@pytest.mark.parametrize("quota", [1, 2, 3, 4, 5, 7])
def test_two_runs_share_a_quota_without_a_deadlock(
    kind: str, quota: int, undisturbed: dict[tuple[str, int], World]
) -> None:
    here = world(kind, ("one", "two"), quota=quota)
    finish(here)
    for name in here.runs:
        assert outcome(here, name) == outcome(undisturbed[kind, 2], name)
        assert sorted(artifacts(here, name)) == sorted(artifacts(undisturbed[kind, 2], name))


@cache
def apart(names: tuple[str, ...]) -> World:
    """The same runs, each with an engine of its own, left alone."""
    here = world("engines", names)
    finish(here)
    return here


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pauses=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.booleans()), max_size=8))
def test_runs_that_share_an_engine_end_as_alone_and_pay_for_it_once(
    pauses: list[tuple[int, int, bool]],
) -> None:
    """They are suspended and resumed at any time; the engine is there exactly while one of them needs it."""
    names = ("one", "two", "three")
    shared = {**GPUS, "engines": [{**GPUS["engines"][0], "shared": True}]}
    here = World({name: FakeRun(run_of(name, f"{k:08d}", **shared)) for k, name in enumerate(names)})
    changes = 2 * len(names)
    for number, ticks, suspend in pauses:
        here.runs[names[number]].suspend = suspend
        changes += 2
        for _ in range(ticks):
            here.pass_seconds(TICK)
            for name in names:
                settle(here, name)
            users = {user for engine in here.engines.values() for user in engine.users}
            assert len(here.engines) <= 1
            assert users == {name for name in names if here.runs[name].memory.engines_since}
    finish(here)
    for name in names:
        assert here.runs[name].memory.run.outcome == apart(names).runs[name].memory.run.outcome
        assert set(artifacts(here, name)) == set(artifacts(apart(names), name))
    # A run notices at its next look that another came or left: four GPUs for one tick at most.
    noticed_late = 4 * TICK * changes * len(names)
    told, held = (
        sum(each(run) for run in here.runs.values())
        for each in (lambda run: run.memory.gpu_seconds, lambda run: run.gpu_seconds)
    )
    assert told == pytest.approx(held, abs=noticed_late)


EVENTS = (
    "evict",
    "delete job",
    "lose results",
    "suspend",
    "resume",
    "operator down",
    "stale jobs",
    "status not written",
    "job fails",
    "engine restarts",
    "engine deleted",
    "preempted",
    "cut short",
)
happenings = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(EVENTS), st.integers(0, 999)), min_size=1, max_size=25
)


class Cruelty:
    """Does what was drawn to a world, and knows which ticks an operator does not do well."""

    def __init__(self, here: World) -> None:
        self.here = here
        self.down = 0
        self.unwritten = 0
        self.old: dict[str, Seen] = {}
        self.old_for = 0
        self.failed: set[str] = set()
        self.losses = 0

    def tick(self) -> None:
        self.here.pass_seconds(TICK)
        self.down, self.unwritten, self.old_for = (
            max(0, n - 1) for n in (self.down, self.unwritten, self.old_for)
        )
        if self.down:
            return
        for name, run in self.here.runs.items():
            seen = None
            if self.old_for:
                fresh = self.here.see(name)
                seen = replace(fresh, jobs=self.old[name].jobs)
            if self.unwritten or self.old_for:
                self.here.tick(name, seen=seen, writes=not self.unwritten)
            else:
                settle(self.here, name)
            assert run.memory.version == 1

    def happen(self, event: str, pick: int) -> None:
        here = self.here
        live = sorted(name for name, job in here.jobs.items() if job.live)
        run = sorted(here.runs)[pick % len(here.runs)]
        if event == "evict" and live:
            self._evict(here.jobs[live[pick % len(live)]], pick)
        elif event == "delete job" and here.jobs:
            here.jobs.pop(sorted(here.jobs)[pick % len(here.jobs)])
        elif event == "lose results" and self.losses < MAX_LOST_RESULTS:
            self.losses += 1
            for job in here.jobs.values():
                job.said = None if job.complete else job.said
        elif event in ("suspend", "resume"):
            here.runs[run].suspend = event == "suspend"
        elif event == "operator down":
            self.down = 1 + pick % 40
        elif event == "stale jobs":
            self.old, self.old_for = {name: here.see(name) for name in here.runs}, 2 + pick % 6
        elif event == "status not written":
            self.unwritten = 2 + pick % 4
        elif event == "job fails" and live:
            self._fail(here.jobs[live[pick % len(live)]])
        elif event == "cut short" and not self.down:
            here.tick(run, writes=False)
        else:
            self._to_engines(event, run, pick)

    def _to_engines(self, event: str, run: str, pick: int) -> None:
        if event == "engine restarts" and (run, "main") in self.here.engines:
            self.here.engines[run, "main"].loading = 20 + pick % 60
        elif event == "engine deleted":
            self.here.engines.pop((run, "main"), None)
        elif event == "preempted" and (place := self.here.places.get(run)) and place.admitted:
            place.admitted, place.evicted, place.waits = False, True, 5 + pick % 60

    def _evict(self, job: FakeJob, pick: int) -> None:
        pod = job.pods[pick % len(job.pods)]
        if pod.at_work:
            pod.at_work = False
            pod.tries += job.step.name not in self.failed and pod.tries < 5

    def _fail(self, job: FakeJob) -> None:
        """Only once a step: twice is the end of the run."""
        if job.step.name not in self.failed:
            self.failed.add(job.step.name)
            job.failed = "BackoffLimitExceeded"
            for pod in job.pods:
                pod.at_work = False


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(happenings=happenings, quota=st.sampled_from([4, 6, 99]))
def test_a_run_ends_with_the_same_artifacts_whatever_happens(
    kind: str, happenings: list[tuple[int, str, int]], quota: int, undisturbed: dict[tuple[str, int], World]
) -> None:
    here = world(kind, ("one", "two"), quota=quota)
    cruelty = Cruelty(here)
    for ticks, event, pick in happenings:
        for _ in range(ticks):
            cruelty.tick()
        cruelty.happen(event, pick)
    finish(here)
    for name in here.runs:
        assert outcome(here, name) == outcome(undisturbed[kind, 2], name)
        assert artifacts(here, name) == artifacts(undisturbed[kind, 2], name)
