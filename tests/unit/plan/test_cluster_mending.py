"""A file that a step left in the store is damaged: that step is done again, then those that read it."""

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
    memory,
    placed,
    plan,
    run_of,
    seen,
    step,
    summary,
)

from combee.api.status import RunStatus
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.engines import EngineWish
from combee.plan.cluster.happenings import happenings
from combee.plan.cluster.memory import IterationNote, Memory
from combee.plan.cluster.mending import MAX_MENDED
from combee.plan.cluster.seen import EngineSeen, JobSeen
from combee.plan.types import Outcome, StepSummary

FILE = "blobs/ab/abc"
ENGINES_UP = {"main": EngineWish(2)}
NOTES = tuple(IterationNote(n, 0, 40, "test", 9.0, 70, 7000, 70, f"A{n + 1}") for n in range(3))
OVER = memory(STOPPED, notes=NOTES, baseline="A0")


def met(kind: str, writer: str, iteration: int = 0) -> StepSummary:
    """What the pod of a step leaves that met a damaged file."""
    outputs = {"damaged": FILE, "writer": writer} if writer else {}
    text = "blobs/ab/abc: the file is missing"
    return StepSummary(step(kind, iteration), kind, outputs=outputs, error="Damaged", message=text)


def ask(known: Memory, *jobs: JobSeen) -> ClusterPlan:
    plans = {known.run.iteration: plan(known.run.iteration)}
    return decide_cluster(run_of(), known, seen(*jobs, plans=plans))


def names(got: ClusterPlan) -> list[str]:
    return [wish.name.removeprefix("formula-3fa9c1d2-") for wish in got.jobs]


def test_a_map_is_done_again_and_then_the_reduce_that_met_the_damage() -> None:
    broken = done("reduce", summary=met("reduce", step("map")))
    got = ask(memory(LEARNING), done("map"), broken, placed("finish"))
    assert names(got) == ["i000-map-a1"] and got.delete == (placed("finish").name,)
    assert got.jobs[0].step.params["damaged"] == FILE
    jobs = (done("map"), broken, done("map", attempt=1))
    later = ask(got.memory, *jobs)
    assert names(later) == ["i000-reduce-a1"] and later.memory.mended == 1
    whole = ask(later.memory, *jobs, done("reduce", attempt=1), done("finish", attempt=1))
    assert (whole.memory.run.iteration, whole.outcome, whole.memory.damaged) == (1, None, "")


@pytest.mark.parametrize(
    ("writer", "inputs"),
    [
        (step("finish", 2), {"artifact": "A2", "map": step("map", 2), "reduce": step("reduce", 2)}),
        (step("finish", 0), {"artifact": "A0", "map": step("map", 0), "reduce": step("reduce", 0)}),
        (step("profile"), {}),
    ],
    ids=["finish", "the first finish", "profile"],
)
def test_a_settled_step_is_done_again_as_it_was(writer: str, inputs: dict[str, str]) -> None:
    broken = done("evaluate", 3, summary=met("evaluate", writer, 3))
    got = ask(OVER, broken)
    again = got.jobs[0].step
    assert (again.name, got.jobs[0].attempt, got.memory.mending) == (writer, 1, writer)
    assert again.inputs == (inputs and {**inputs, "profile": step("profile")})
    assert Memory.from_status(got.memory.to_status()) == got.memory
    assert ask(got.memory, broken).jobs == got.jobs
    of_it = done(again.kind, again.iteration, attempt=1)
    later = ask(got.memory, broken, of_it)
    assert names(later) == ["i003-evaluate-a1"] and later.memory.mending == ""
    over = ask(later.memory, broken, of_it, done("evaluate", 3, attempt=1))
    assert over.memory.gate is not None


def test_a_file_of_an_attempt_that_was_made_before_has_the_next_one() -> None:
    broken = done("evaluate", 3, summary=met("evaluate", step("finish", 2), 3))
    assert names(ask(OVER, broken, done("finish", 2, attempt=4))) == ["i002-finish-a5"]


@pytest.mark.parametrize(
    ("known", "writer"),
    [
        (OVER, ""),
        (OVER, step("map", 1)),
        (OVER, step("finish", 7)),
        (OVER, "another-3fa9c1d2-i000-profile-a0"),
        (replace(OVER, notes=NOTES[1:]), step("finish", 1)),
        (replace(OVER, mended=MAX_MENDED), step("profile")),
    ],
    ids=["nobody", "of a map", "of the future", "of another run", "of long ago", "too many"],
)
def test_what_is_not_made_again_ends_the_run_with_its_name(known: Memory, writer: str) -> None:
    got = ask(known, done("evaluate", 3, summary=met("evaluate", writer, 3)))
    assert got.outcome == Outcome("Failed", "blobs/ab/abc: the file is missing")
    assert got.memory.error == "Damaged"


def test_a_file_that_comes_out_otherwise_ends_the_run() -> None:
    got = ask(OVER, done("evaluate", 3, summary=met("evaluate", step("finish", 2), 3)))
    failed = replace(summary("finish", 2), error="Store", message="artifact comes out otherwise")
    end = ask(got.memory, done("finish", 2, attempt=1, summary=failed))
    assert (end.outcome, end.memory.error) == (Outcome("Failed", "artifact comes out otherwise"), "Store")


def test_two_damaged_files_of_settled_steps_are_made_again_one_after_the_other() -> None:
    """The later one cannot be made before the earlier one is there."""
    earlier, later = step("finish", 1), step("finish", 2)
    broken = done("evaluate", 3, summary=met("evaluate", later, 3))
    got = ask(OVER, broken)
    jobs = [broken, done("finish", 2, attempt=1, summary=met("finish", earlier, 2))]
    got = ask(got.memory, *jobs)
    assert names(got) == ["i001-finish-a1"] and got.memory.mending == earlier
    jobs.append(done("finish", 1, attempt=1))
    got = ask(got.memory, *jobs)
    assert names(got) == ["i003-evaluate-a1"] and got.memory.mending == ""
    jobs.append(done("evaluate", 3, attempt=1, summary=met("evaluate", later, 3)))
    got = ask(got.memory, *jobs)
    (again,) = got.jobs
    assert (again.step.name, again.attempt, got.memory.mended) == (later, 3, 3)
    jobs.append(done("finish", 2, attempt=3))
    got = ask(got.memory, *jobs)
    assert names(got) == ["i003-evaluate-a2"]
    assert ask(got.memory, *jobs, done("evaluate", 3, attempt=2)).memory.gate is not None


def test_a_store_that_damages_one_file_again_and_again_ends_the_run_with_its_name() -> None:
    known, jobs = OVER, list[JobSeen]()
    for attempt in range(MAX_MENDED + 1):
        jobs.append(done("evaluate", 3, attempt, summary=met("evaluate", step("profile"), 3)))
        got = ask(known, *jobs)
        known = got.memory
        if got.outcome is None:
            jobs.append(done("profile", attempt=got.jobs[0].attempt))
            known = ask(known, *jobs).memory
    assert got.outcome == Outcome("Failed", "blobs/ab/abc: the file is missing")
    assert known.mended == MAX_MENDED


def test_three_damaged_artifacts_that_build_on_each_other_count_as_six() -> None:
    def meets(kind: str, iteration: int, attempt: int) -> JobSeen:
        writer = step("finish", iteration - 1)
        return done(kind, iteration, attempt, summary=met(kind, writer, iteration))

    known, jobs, whole = OVER, [meets("evaluate", 3, 0)], {-1}
    got = ask(known, *jobs)
    while got.outcome is None:
        (again,) = got.jobs
        kind, iteration, attempt = again.step.kind, again.step.iteration, again.attempt
        reads = iteration - 1
        if reads in whole:
            whole.add(iteration)
        jobs.append(done(kind, iteration, attempt) if reads in whole else meets(kind, iteration, attempt))
        got = ask(got.memory, *jobs)
    assert (got.outcome.name, got.memory.mended, whole) == ("Failed", MAX_MENDED, {-1, 0, 1})


def test_engines_are_not_brought_up_for_a_step_that_asks_nobody_and_stay_for_the_one_after_it() -> None:
    def ask_with(known: Memory, *jobs: JobSeen, **facts: Any) -> ClusterPlan:
        return decide_cluster(run_of(**GPUS), known, seen(*jobs, **facts))

    broken = done("evaluate", 3, summary=met("evaluate", step("finish", 2), 3))
    got = ask_with(OVER, broken)
    assert (names(got), got.engines) == (["i002-finish-a1"], {})
    up = {"main": EngineSeen("main", 2, ready=2)}
    assert ask_with(replace(OVER, engines_since={"main": NOW}), broken, engines=up).engines == ENGINES_UP
    of_it = done("finish", 2, attempt=1)
    after = ask_with(got.memory, broken, of_it)
    assert (names(after), after.engines) == ([], ENGINES_UP), "evaluate asks"
    assert names(ask_with(after.memory, broken, of_it, engines=up)) == ["i003-evaluate-a1"]


@pytest.mark.parametrize("why", ["its receipt is damaged", "it failed"])
def test_engines_are_brought_up_for_a_step_that_is_done_as_if_for_the_first_time(why: str) -> None:
    writer = step("profile")
    known = replace(OVER, mending=writer, damaged=FILE, attempts={writer: 1})
    if why == "it failed":
        known = replace(known, failures={writer: 1})
    else:
        known = replace(known, damaged=f"runs/r/steps/{writer}/00000.manifest.json")
    got = decide_cluster(run_of(**GPUS), known, seen())
    assert (names(got), got.engines) == ([], ENGINES_UP)
    up = {"main": EngineSeen("main", 2, ready=2)}
    assert names(decide_cluster(run_of(**GPUS), got.memory, seen(engines=up))) == ["i000-profile-a1"]


LIMITED = {"wallClockSeconds": 600}


@pytest.mark.parametrize("kind", ["evaluate", "publish"])
def test_time_that_is_up_ends_a_run_that_is_mended_as_any_other_unless_it_is_only_published(
    kind: str,
) -> None:
    learned = Outcome("Learned", "held-out gate rose")
    state = replace(STOPPED, phase="Publishing", outcome=learned) if kind == "publish" else STOPPED
    known = memory(state, notes=NOTES, baseline="A0", mending=step("finish", 2), active_seconds=700.0)
    got = decide_cluster(run_of(budget=LIMITED), known, seen())
    if kind == "publish":
        assert names(got) == ["i002-finish-a0"] and got.outcome is None
    else:
        assert got.outcome == Outcome("BudgetExhausted", "the budget of 600 wallClockSeconds is spent")
        assert (got.memory.mending, got.jobs) == ("", ())


def test_an_event_names_the_file() -> None:
    before, after = RunStatus(), RunStatus(state={"mended": 1, "damaged": FILE})
    (event,) = happenings(before, after)
    assert (event.type, event.reason) == ("Warning", "FileDamaged") and FILE in event.message
    assert list(happenings(after, after)) == []
