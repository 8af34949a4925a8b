"""decide_cluster() as a table: memory and facts in, ClusterPlan out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import (
    GPUS,
    LEARNING,
    NOW,
    STOPPED,
    done,
    job,
    memory,
    placed,
    plan,
    run_of,
    seen,
    step,
    summary,
)

from combee.api.status import RunStatus
from combee.names import LABEL_ITERATION, LABEL_STEP
from combee.observe.runs import job_seen
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.jobs import MAX_LOST_RESULTS
from combee.plan.cluster.memory import Gate, Memory
from combee.plan.cluster.seen import YIELDED, EngineSeen, JobSeen, Trouble
from combee.plan.cluster.status import About, run_status
from combee.plan.state import RunState
from combee.plan.types import Outcome, StepSummary

UP = {"main": EngineSeen("main", 2, ready=2)}
LOADING = {"main": EngineSeen("main", 2)}
DOWN = {"main": EngineSeen("main", 0)}
HELD = {"engines_since": {"main": NOW - 100}}
LEARNT = Gate(0.5, 0.7, 0.1, 0.3, 20, 6)
PUBLISHING = replace(STOPPED, phase="Publishing", outcome=Outcome("Learned", "it rose"))


def ask(
    state: RunState | Memory, *jobs: JobSeen, about: dict[str, Any] | None = None, **facts: Any
) -> ClusterPlan:
    """The plan of a run with the plan of iteration 0 frozen unless told otherwise."""
    known = state if isinstance(state, Memory) else memory(state)
    return decide_cluster(run_of(**about or {}), known, seen(*jobs, **{"plans": {0: plan()}, **facts}))


def names(got: ClusterPlan) -> list[str]:
    return [wish.name.removeprefix("formula-3fa9c1d2-") for wish in got.jobs]


def in_i0(got: ClusterPlan) -> str:
    return " ".join(name.removeprefix("i000-") for name in names(got))


def test_a_status_tells_of_a_step_since_when_it_is_there_and_how_many_of_its_pods_failed() -> None:
    made = "2026-01-01T00:00:00Z"
    labels = {LABEL_STEP: "map", LABEL_ITERATION: "0"}
    raw = {
        "metadata": {"name": step("map"), "labels": labels, "creationTimestamp": made},
        "spec": {"completions": 4},
        "status": {"ready": 2, "succeeded": 1, "failed": 3},
    }
    got = ask(LEARNING, there := job_seen(raw))
    about = About(run_of().spec, 1, "d", "i", "a", str)
    (told,) = run_status(about, RunStatus(), got, seen(there)).steps
    counts = {"shards": 4, "succeeded": 1, "failed": 3}
    assert told.dump() == {"name": step("map"), "kind": "map", **counts, "since": made}


# -- the way there -------------------------------------------------------------------------------------


def test_a_new_run_profiles_at_once() -> None:
    got = ask(Memory())
    assert names(got) == ["i000-profile-a0"]
    assert (got.memory.started, got.memory.active_since) == (NOW, NOW)
    assert (got.freeze, got.delete, got.expire, got.outcome) == (None, (), (), None)


def test_engines_come_before_the_first_job() -> None:
    got = ask(Memory(), about=GPUS)
    assert names(got) == []
    assert got.engines == {"main": EngineWish(2)}
    assert got.waiting == "its engines are not ready yet"
    assert got.memory.engines_since == {"main": NOW}


@pytest.mark.parametrize(("engines", "expected"), [(LOADING, []), (DOWN, []), (UP, ["i000-profile-a0"])])
def test_a_job_is_made_when_its_engines_serve(engines: dict[str, EngineSeen], expected: list[str]) -> None:
    assert names(ask(memory(**HELD), about=GPUS, engines=engines)) == expected


def test_a_step_whose_result_was_cut_is_told_how_much_its_pod_may_leave() -> None:
    cut = done("profile", summary=None, message_bytes=1755)
    (wish,) = ask(memory(RunState()), cut, plans={}).jobs
    assert wish.name.endswith("profile-a1") and wish.step.params["summaryBytes"] == 1755
    (wish,) = ask(memory(RunState()), plans={}).jobs
    assert "summaryBytes" not in wish.step.params


def test_what_a_pod_may_leave_is_known_after_its_job_is_gone() -> None:
    """A map may take longer than a finished Job stays."""
    got = ask(RunState(), done("profile", message_bytes=1755), plans={})
    later = Memory.from_status(got.memory.to_status())
    (wish,) = ask(later, plans={0: plan()}).jobs
    assert wish.name.endswith("map-a0") and wish.step.params["summaryBytes"] == 1755


def test_profile_leads_to_a_frozen_plan() -> None:
    got = ask(RunState(), done("profile"), plans={})
    assert got.freeze is not None and got.freeze.iteration == 0
    assert (got.memory.run.phase, got.memory.baseline, names(got)) == ("Learning", "A0", [])


STEPS = [
    ((), "map-a0"),
    ((job("map"),), "map-a0"),
    ((job("map", ready=3),), "map-a0"),
    ((job("map", ready=2, succeeded=2),), "map-a0 reduce-a0"),
    ((placed("map", held=True),), "map-a0"),
    ((placed("map", deleting=True),), "map-a0"),
    ((placed("map"),), "map-a0 reduce-a0"),
    ((placed("map"), job("reduce")), "map-a0 reduce-a0"),
    ((placed("map"), placed("reduce")), "map-a0 reduce-a0 finish-a0"),
    ((placed("map"), placed("reduce"), placed("finish")), "map-a0 reduce-a0 finish-a0"),
    ((done("map"), job("reduce")), "reduce-a0"),
    ((done("map"), placed("reduce")), "reduce-a0 finish-a0"),
    ((done("map"), done("reduce")), "finish-a0"),
    ((done("reduce"),), "finish-a0"),
]


@pytest.mark.parametrize(("jobs", "expected"), STEPS)
def test_an_iteration_places_its_steps_one_behind_the_other(jobs: tuple[JobSeen, ...], expected: str) -> None:
    got = ask(LEARNING, *jobs)
    assert in_i0(got) == expected
    waits = ["waitSeconds" in wish.step.params for wish in got.jobs]
    assert waits == [False, *[True] * (len(waits) - 1)]


@pytest.mark.parametrize(("jobs", "expected"), STEPS)
def test_without_overlap_there_is_one_step_at_a_time(jobs: tuple[JobSeen, ...], expected: str) -> None:
    got = ask(LEARNING, *(one for one in jobs if one.complete), about={"workers": {"overlap": "Never"}})
    assert len(got.jobs) == 1


def test_a_finished_iteration_is_noted_and_the_next_is_frozen() -> None:
    before = memory(
        LEARNING,
        attempts={step("map"): 1, step("map", 1): 1},
        failures={step("map"): 1},
        lost={step("finish"): 2},
        in_turn=(step("reduce"), step("reduce", 1)),
    )
    got = ask(before, done("map", attempt=1), done("reduce"), done("finish"))
    after = got.memory
    assert got.freeze is not None and got.freeze.iteration == 1
    assert (after.run.iteration, after.run.artifact) == (1, "A1")
    assert [(n.iteration, n.select, n.calls, n.tokens, n.artifact) for n in after.notes] == [
        (0, 0.6, 70, 7700, "A1")
    ]
    assert (after.attempts, after.failures, after.lost) == ({step("map", 1): 1}, {}, {})
    assert after.in_turn == (step("reduce", 1),)


def test_finish_stands_for_the_steps_before_it() -> None:
    got = ask(LEARNING, done("finish"), job("map", failed="gone"), done("reduce", summary=None))
    assert got.memory.run.iteration == 1
    assert got.outcome is None


def test_the_best_artifact_is_evaluated_then_published_then_the_run_is_over() -> None:
    first = ask(STOPPED)
    assert names(first) == ["i003-evaluate-a0"]
    second = ask(first.memory, done("evaluate", 3))
    assert names(second) == ["i003-publish-a0"]
    told = second.jobs[0].step
    named = {"playbook": "formula", "digest": "A3", "name": "formula-A3"}
    digests = second.memory.run.facts.digests
    assert told.params == {**named, **{split: digests.get(split, "") for split in ("heldOut", "train")}}
    assert told.inputs == {"artifact": "A3", "record": "R3"} and second.memory.record == "R3"
    assert (second.memory.run.phase, second.memory.gate) == ("Publishing", replace(LEARNT))
    assert second.outcome is None and not second.memory.ended
    last = ask(second.memory, done("evaluate", 3), done("publish", 3))
    assert last.outcome is not None and last.outcome.name == "Learned"
    assert (last.memory.ended, last.memory.published, last.memory.run.phase) == (
        NOW,
        "formula-a3",
        "Complete",
    )
    assert last.memory.run.spend.rollouts == 40


def test_a_look_at_the_gate_is_not_taken_again_when_its_pod_vanishes() -> None:
    known = memory(PUBLISHING, gate=LEARNT)
    got = ask(known, done("evaluate", 3, summary=None), placed("publish", 3))
    assert names(got) == ["i003-publish-a0"]
    assert got.memory == known
    assert got.expire == (step("evaluate", 3),)


def test_engines_let_go_while_the_playbook_is_published() -> None:
    got = ask(memory(PUBLISHING, gate=LEARNT, **HELD), about=GPUS, engines=UP)
    assert got.engines == {"main": EngineWish(0)}
    assert (got.memory.gpu_seconds, got.memory.engines_since) == (400.0, {})


@pytest.mark.parametrize(
    ("scores", "outcome"),
    [({"gateBest": 0.5}, "NothingBetter"), ({"gateBest": 0.4}, "NothingBetter")],
)
def test_nothing_better_publishes_nothing(scores: dict[str, float], outcome: str) -> None:
    said = summary("evaluate", 3)
    got = ask(STOPPED, done("evaluate", 3, summary=replace(said, scores={**said.scores, **scores})))
    assert (got.outcome and got.outcome.name, got.jobs, got.memory.published) == (outcome, (), "")


def test_a_gain_that_chance_could_make_is_published_all_the_same() -> None:
    said = summary("evaluate", 3)
    second = ask(STOPPED, done("evaluate", 3, summary=replace(said, scores={**said.scores, "gateLow": -0.1})))
    assert names(second) == ["i003-publish-a0"]
    last = ask(second.memory, done("publish", 3))
    assert last.outcome is not None and last.outcome.name == "Unsure"
    assert last.memory.published == "formula-a3"


def test_a_run_that_never_beat_its_start_ends_without_a_look_at_the_gate() -> None:
    got = ask(replace(STOPPED, best=LEARNING.best))
    assert got.outcome is not None and got.outcome.name == "NothingBetter"


def test_a_spent_budget_publishes_what_holds_on_gate() -> None:
    state = replace(STOPPED, stop=Outcome("BudgetExhausted", "spent"))
    second = ask(state, done("evaluate", 3))
    assert names(second) == ["i003-publish-a0"]
    last = ask(second.memory, done("publish", 3))
    assert last.outcome is not None and last.outcome.name == "BudgetExhausted"
    assert last.outcome.reason.startswith("held-out gate rose by") and last.outcome.reason.endswith("; spent")


# -- over, suspended, out of budget --------------------------------------------------------------------

OVER = memory(replace(STOPPED, phase="Complete", outcome=Outcome("Learned", "x")), ended=NOW - 5)


def test_an_ended_run_takes_its_engines_and_live_jobs_away_and_lets_the_others_expire() -> None:
    got = ask(OVER, placed("map", 2), done("finish", 2), job("reduce", 1, failed="x"), about=GPUS, engines=UP)
    assert got.delete == (step("map", 2),)
    assert got.expire == (step("reduce", 1), step("finish", 2))
    assert got.engines == {"main": EngineWish(0, remove=True)}
    assert (got.memory, got.outcome, got.wake_after_seconds) == (OVER, Outcome("Learned", "x"), 1.0)


@pytest.mark.parametrize("suspend", [True, False])
def test_an_ended_run_stays_ended(suspend: bool) -> None:
    got = ask(OVER, done("finish", 2, expiring=True), suspend=suspend)
    assert got == ClusterPlan(OVER, outcome=Outcome("Learned", "x"))


@pytest.mark.parametrize("state", [RunState(), LEARNING, STOPPED, PUBLISHING], ids=lambda s: s.phase)
def test_suspend_takes_live_jobs_and_gpus_down_at_any_moment(state: RunState) -> None:
    known = memory(state, idle_since=NOW - 3, unplaced_since=NOW - 3, **HELD)
    live = (placed("map"), job("reduce"))
    got = ask(known, *live, done("profile"), about=GPUS, engines=UP, suspend=True)
    assert got.delete == (step("map"), step("reduce"))
    assert (got.jobs, got.engines, got.wake_after_seconds) == ((), {"main": EngineWish(0)}, 1.0)
    after = got.memory
    assert (after.active_since, after.active_seconds, after.gpu_seconds) == (0.0, 100.0, 400.0)
    assert (after.engines_since, after.idle_since, after.unplaced_since) == ({}, 0.0, 0.0)
    assert after.run == state
    later = decide_cluster(run_of(**GPUS), after, seen(now=NOW + 999, suspend=True, engines=DOWN))
    assert later == ClusterPlan(after, engines={"main": EngineWish(0)})


def test_suspend_takes_an_engine_down_that_is_not_seen_yet() -> None:
    assert ask(memory(**HELD), about=GPUS, suspend=True).engines == {"main": EngineWish(0)}


def test_a_run_applied_suspended_has_not_started() -> None:
    got = ask(Memory(), suspend=True)
    assert got == ClusterPlan(Memory())


def test_resume_goes_on_where_it_was_and_suspended_time_does_not_count() -> None:
    known = memory(LEARNING, active_since=0.0, active_seconds=70.0)
    got = ask(known, done("map"))
    assert in_i0(got) == "reduce-a0"
    assert got.memory.elapsed(NOW + 5) == 75.0


def test_a_job_on_its_way_out_keeps_its_name_until_it_is_gone() -> None:
    got = ask(LEARNING, placed("map", deleting=True))
    assert (in_i0(got), got.delete) == ("map-a0", ())


WALL = {"budget": {"wallClockSeconds": 100}}


@pytest.mark.parametrize("state", [RunState(), LEARNING, STOPPED], ids=lambda s: s.phase)
@pytest.mark.parametrize(
    ("about", "known", "name"),
    [
        (WALL, {"active_since": NOW - 100.5}, "100 wallClockSeconds"),
        (WALL, {"active_seconds": 50.0, "active_since": NOW - 51}, "100 wallClockSeconds"),
        ({**GPUS, "budget": {"gpuSeconds": 399}}, HELD, "399 gpuSeconds"),
    ],
    ids=["at once", "in two stretches", "gpuSeconds"],
)
def test_what_time_uses_up_ends_a_run_at_any_moment(
    state: RunState, about: dict[str, Any], known: dict[str, Any], name: str
) -> None:
    got = ask(memory(state, **known), placed("map"), about=about, engines=UP if "engines" in about else {})
    assert got.outcome == Outcome("BudgetExhausted", f"the budget of {name} is spent")
    assert (got.delete, got.memory.ended, got.jobs) == ((step("map"),), NOW, ())


@pytest.mark.parametrize(
    ("about", "known", "wake"),
    [
        (WALL, {"active_since": NOW - 40}, 60.0),
        (WALL, {"active_since": NOW - 100}, 1.0),
        (WALL, {"active_since": NOW - 90, "active_seconds": 5.0}, 5.0),
        ({**GPUS, "budget": {"gpuSeconds": 480}}, HELD, 20.0),
    ],
)
def test_a_run_wakes_for_its_deadline(about: dict[str, Any], known: dict[str, Any], wake: float) -> None:
    engines = UP if "engines" in about else {}
    assert (
        ask(memory(LEARNING, **known), placed("map"), about=about, engines=engines).wake_after_seconds == wake
    )


def test_publishing_outlives_the_deadline() -> None:
    got = ask(memory(PUBLISHING, gate=LEARNT, active_since=NOW - 500), about=WALL)
    assert names(got) == ["i003-publish-a0"]


def test_a_larger_budget_counts_at_once() -> None:
    known = memory(LEARNING, active_since=NOW - 150)
    assert ask(known, about=WALL).outcome is not None
    assert ask(known, about={"budget": {"wallClockSeconds": 1000}}).outcome is None


def test_rollouts_stop_learning_between_iterations_only() -> None:
    state = replace(LEARNING, spend=replace(LEARNING.spend, rollouts=101))
    about = {"budget": {"rollouts": 100}}
    assert in_i0(ask(state, about=about)) == "map-a0"
    assert ask(state, about=about, plans={}).outcome == Outcome(
        "BudgetExhausted", "the budget of 100 rollouts is spent"
    )


def test_more_parallelism_leaves_a_frozen_iteration_alone() -> None:
    assert ask(LEARNING, about={"workers": {"parallelism": 9}}).jobs[0].step.shards == 4


# -- failures ------------------------------------------------------------------------------------------

BAD = Trouble("", "out of memory: give workers more")


@pytest.mark.parametrize("kind", ["map", "reduce", "finish"])
def test_a_failed_job_is_tried_once_more_in_its_turn(kind: str) -> None:
    before = {"map": (), "reduce": ("map",), "finish": ("map", "reduce")}[kind]
    there = [done(one) for one in before]
    first = ask(LEARNING, *there, job(kind, failed="BackoffLimitExceeded"))
    assert in_i0(first).split()[0] == f"{kind}-a1"
    assert (first.memory.failures, first.memory.in_turn) == ({step(kind): 1}, (step(kind),))
    assert first.expire == ()  # not before that is written
    failed = (job(kind, failed="x"), job(kind, attempt=1, failed="BackoffLimitExceeded", trouble=BAD))
    second = ask(first.memory, *there, *failed)
    assert second.outcome == Outcome(
        "Failed", f"step {step(kind)} failed for good (BackoffLimitExceeded): {BAD.message}"
    )
    assert failed[0].name in second.expire and failed[1].name not in second.expire
    assert second.memory.error == ""


@pytest.mark.parametrize(
    ("attempt", "failures", "next_one"), [(0, 0, "map-a1"), (9, 1, "map-a10"), (10, 1, "")]
)
def test_pods_that_were_evicted_again_and_again_do_not_fail_their_step(
    attempt: int, failures: int, next_one: str
) -> None:
    known = memory(LEARNING, attempts={step("map"): attempt}, failures={step("map"): failures})
    got = ask(known, job("map", attempt=attempt, failed="FailedIndexes: ", disrupted=True))
    assert in_i0(got).split()[:1] == [next_one][: bool(next_one)]
    assert (got.outcome is None) == bool(next_one)
    assert got.memory.failures == ({step("map"): failures} if next_one else {})


def test_a_step_that_yielded_and_lost_its_result_may_still_fail_once() -> None:
    known = memory(LEARNING, attempts={step("reduce"): 3}, lost={step("reduce"): 2})
    got = ask(known, done("map"), job("reduce", attempt=3, failed="x"))
    assert (in_i0(got), got.outcome) == ("reduce-a4", None)


YIELD = StepSummary(step("reduce"), "reduce", error=YIELDED)


def test_a_step_that_yielded_comes_again_in_its_turn() -> None:
    got = ask(LEARNING, placed("map"), done("reduce", summary=YIELD))
    assert (in_i0(got), got.memory.attempts) == ("map-a0", {step("reduce"): 1})
    after = ask(got.memory, done("map"), done("reduce", summary=YIELD))
    assert [(w.name, "waitSeconds" in w.step.params) for w in after.jobs] == [
        (f"{step('reduce')[:-1]}1", False)
    ]
    assert after.expire == (step("reduce"),)


UNREADABLE = {
    "gone": None,
    "of another step": summary("finish", 1),
    "of another kind": replace(summary("finish"), kind="reduce"),
    "without an artifact": replace(summary("finish"), outputs={}),
    "no number": replace(summary("finish"), scores={"select": float("nan")}),
    "not even a count": replace(summary("finish"), counts={"rollouts": "many"}),
    "below zero": replace(summary("finish"), counts={"rollouts": -5}),
}


@pytest.mark.parametrize("left", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_finished_pod_without_a_readable_summary_runs_again(left: StepSummary | None) -> None:
    got = ask(LEARNING, done("map"), done("reduce"), done("finish", summary=left))
    assert (in_i0(got), got.memory.lost, got.memory.in_turn) == ("finish-a1", {step("finish"): 1}, ())
    worst = memory(LEARNING, attempts={step("finish"): 5}, lost={step("finish"): MAX_LOST_RESULTS})
    last = ask(worst, done("map"), done("reduce"), done("finish", attempt=5, summary=left))
    assert last.outcome == Outcome(
        "Failed", f"step {step('finish')} ended 6 times without a result that can be read"
    )


@pytest.mark.parametrize("kind", ["profile", "evaluate", "publish"])
def test_an_incomplete_summary_of_any_step_is_none(kind: str) -> None:
    state = {"profile": RunState(), "evaluate": STOPPED, "publish": PUBLISHING}[kind]
    said = replace(summary(kind, state.iteration), outputs={}, scores={}, counts={})
    got = ask(memory(state, gate=LEARNT), done(kind, state.iteration, summary=said))
    assert names(got) == [f"i{state.iteration:03d}-{kind}-a1"]


def test_a_map_that_is_complete_needs_no_summary_and_one_deleted_is_done_again() -> None:
    assert in_i0(ask(LEARNING, done("map"))) == "reduce-a0"
    assert in_i0(ask(LEARNING, placed("reduce"))) == "map-a0"


@pytest.mark.parametrize("kind", ["profile", "reduce", "finish", "evaluate", "publish"])
@pytest.mark.parametrize("error", ["InvalidData", "Endpoint", "Store", "ArtifactTooLarge"])
def test_a_permanent_error_ends_the_run_in_its_own_words(kind: str, error: str) -> None:
    state = {"profile": RunState(), "evaluate": STOPPED, "publish": PUBLISHING}.get(kind, LEARNING)
    said = StepSummary(step(kind, state.iteration), kind, error=error, message="line 3: no answer")
    got = ask(memory(state, gate=LEARNT), done(kind, state.iteration, summary=said))
    assert got.outcome == Outcome("Failed", "line 3: no answer")
    assert (got.memory.error, got.memory.published, got.memory.ended) == (error, "", NOW)


def test_a_later_attempt_that_is_there_counts() -> None:
    got = ask(LEARNING, done("map"), placed("reduce", attempt=1))
    assert (in_i0(got), got.memory.attempts) == ("reduce-a1 finish-a0", {step("reduce"): 1})


def test_live_jobs_of_earlier_attempts_and_iterations_go() -> None:
    known = memory(replace(LEARNING, iteration=1), attempts={step("map", 1): 1})
    old = (placed("finish", 0), placed("map", 1), placed("profile"))
    got = ask(known, *old, placed("map", 1, attempt=1), plans={1: plan(1)})
    assert set(got.delete) == {one.name for one in old}
    got = ask(STOPPED, placed("map", 3))
    assert got.delete == (step("map", 3),)


@pytest.mark.parametrize(
    ("state", "job_seen", "expected"),
    [
        (LEARNING, done("profile"), True),
        (RunState(), done("profile"), False),
        (LEARNING, done("map"), False),
        (replace(LEARNING, iteration=1), done("map"), True),
        (replace(LEARNING, iteration=1), done("map", expiring=True), False),
        (replace(LEARNING, iteration=1), done("map", deleting=True), False),
        (replace(LEARNING, iteration=1), placed("map"), False),
        (STOPPED, done("finish", 3), True),
        (STOPPED, done("evaluate", 3), False),
        (PUBLISHING, done("evaluate", 3), True),
        (PUBLISHING, done("publish", 3), False),
    ],
)
def test_only_what_the_written_memory_has_taken_in_expires(
    state: RunState, job_seen: JobSeen, expected: bool
) -> None:
    got = ask(memory(state, gate=LEARNT), job_seen, plans={})
    assert got.expire == ((job_seen.name,) if expected else ())


def test_a_pod_that_ended_is_a_result_before_its_job_is_complete() -> None:
    ended = replace(done("finish"), complete=False, ended=True)
    got = ask(LEARNING, done("map"), done("reduce"), ended, plans={0: plan(), 1: plan(1)})
    assert (got.memory.run.iteration, names(got)) == (1, ["i001-map-a0"])
    # Its Job ends by itself: deleted now, it would take the pod and its log with it.
    later = ask(got.memory, ended, placed("map", 1), plans={1: plan(1)})
    assert (later.delete, later.expire) == ((), ())
    # A pod that took its place does nothing new.
    assert ask(got.memory, placed("finish"), plans={1: plan(1)}).delete == (ended.name,)


def test_the_job_of_a_pod_that_found_no_place_goes_once_the_others_did_its_step() -> None:
    ended = replace(done("reduce"), complete=False, ended=True, completions=3, succeeded=2)
    later = memory(replace(LEARNING, iteration=1))
    assert ask(later, ended, placed("map", 1), plans={1: plan(1)}).delete == (ended.name,)
    counted = replace(ended, succeeded=3)
    assert ask(later, counted, placed("map", 1), plans={1: plan(1)}).delete == ()


def test_a_place_given_up_is_taken_anew_when_the_job_says_so() -> None:
    gave_up = replace(summary("reduce"), error=YIELDED)
    job_of_it = job("reduce", ended=True, summary=gave_up)
    assert ask(LEARNING, done("map"), job_of_it).memory.attempts == {}
    over = replace(job_of_it, ended=False, complete=True)
    assert ask(LEARNING, done("map"), over).memory.attempts == {step("reduce"): 1}


# -- places and idle engines ---------------------------------------------------------------------------

CROWDED = (job("map", ready=3), placed("reduce"), job("finish"))


def test_a_map_pod_without_a_place_takes_those_that_wait_for_it_down() -> None:
    first = ask(LEARNING, *CROWDED)
    assert (first.delete, first.wake_after_seconds, first.memory.unplaced_since) == ((), 30.0, NOW)
    again = ask(first.memory, *CROWDED, now=NOW + 29)
    assert (again.delete, again.wake_after_seconds, again.memory) == ((), 1.0, first.memory)
    last = ask(first.memory, *CROWDED, now=NOW + 30)
    assert last.delete == (step("reduce"), step("finish"))
    assert in_i0(last) == "map-a0"
    assert last.memory.attempts == {step("reduce"): 1, step("finish"): 1}
    assert last.memory.in_turn == (step("reduce"), step("finish"))
    assert in_i0(ask(last.memory, placed("map"), now=NOW + 60)) == "map-a0"


def test_a_place_found_in_time_is_forgotten() -> None:
    got = ask(memory(LEARNING, unplaced_since=NOW - 29), placed("map"), placed("reduce"))
    assert (got.memory.unplaced_since, got.delete) == (0.0, ())


IDLE = {**GPUS, "engines": [{**GPUS["engines"][0], "idleTimeoutSeconds": 600}]}


@pytest.mark.parametrize(
    ("idle_for", "replicas", "wake"), [(0.0, 2, 600.0), (599.0, 2, 1.0), (600.0, 0, None), (9e9, 0, None)]
)
def test_work_that_waits_for_a_place_holds_no_gpu_for_ever(
    idle_for: float, replicas: int, wake: float | None
) -> None:
    known = memory(LEARNING, idle_since=NOW - idle_for, **HELD)
    got = ask(known, job("map"), about=IDLE, engines=UP)
    assert (got.engines, got.wake_after_seconds) == ({"main": EngineWish(replicas)}, wake)
    assert got.memory.idle_since == NOW - idle_for


def test_engines_come_back_when_a_pod_found_its_place() -> None:
    got = ask(memory(LEARNING, idle_since=NOW - 999), placed("map"), about=IDLE, engines=DOWN)
    assert (got.engines, got.memory.idle_since) == ({"main": EngineWish(2)}, 0.0)


def test_an_engine_in_trouble_is_waited_for() -> None:
    bad = {"main": EngineSeen("main", 2, trouble=Trouble("ImagePullFailed", "no such image"))}
    got = ask(memory(**HELD), about=GPUS, engines=bad)
    assert (got.engines, got.outcome, got.waiting) == (
        {"main": EngineWish(2)},
        None,
        "its engines are not ready yet",
    )
