"""A run on rows that were changed after a bad result waits before it learns, until somebody says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import GPUS, NOW, done, job, memory, run_of, seen, spec_of
from playbook_bench import HELD_OUT, World
from test_playbook_discipline import OTHER, lost

from combee.api.conditions import Reason
from combee.api.status import Phase, RunStatus
from combee.plan.cluster.accept import Policy, RefusedError, asks_for_reasons, question
from combee.plan.cluster.decide import decide_cluster
from combee.plan.cluster.hardware import EngineGpus
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, QueueSeen
from combee.plan.cluster.status import About, run_status
from combee.plan.playbook.changed import Looks, looks_of, unexplained

STRICT = Policy(True, True, "Strict")
UP = {"main": EngineSeen("main", 2, ready=2)}


def looks(world: World) -> Looks:
    """What a run reads of a Playbook and its versions on the API server."""
    playbook = {"metadata": {"name": "formula"}, "spec": world.spec, "status": world.status.dump()}
    return looks_of(playbook, [{"status": one.status.dump()} for one in world.versions.values()])


MESSAGE = (
    f"the last look at heldOut {HELD_OUT[:12]} passed nothing, and this run's is {OTHER[:12]}: rows that are "
    "changed after a bad result are a leak; say in spec.heldOut.reason of Playbook formula why they were "
    f"changed, beside digest: {OTHER}"
)


def test_the_run_is_told_what_the_gate_would_tell_its_candidate() -> None:
    world = lost().settle()
    assert unexplained(looks(world), OTHER) == MESSAGE
    assert unexplained(looks(world), HELD_OUT) == "", "the same rows again"
    assert unexplained(looks(world), "") == "", "nobody knows the rows yet, and the Playbook names none"
    world.change(heldOut={"digest": OTHER}).settle()
    assert world.why("HeldOutPassed", "c") == ("Unknown", "ChangeUnexplained")
    assert unexplained(looks(world), "") == unexplained(looks(world), OTHER) == MESSAGE
    world.change(heldOut={"digest": OTHER, "reason": "rows of this quarter"})
    assert unexplained(looks(world), OTHER) == ""
    world.settle()
    world.change(heldOut={"digest": OTHER})
    assert unexplained(looks(world), OTHER) == "", "it was explained once"


def test_a_look_that_passed_and_a_playbook_without_looks_ask_for_nothing() -> None:
    assert unexplained(looks(World().add("a").settle()), OTHER) == ""
    assert unexplained(looks_of({"metadata": {"name": "p"}}, []), OTHER) == ""


BAD = Looks("formula", (("old", 3),))
"""Three looks at other rows, and no version that passed the last."""


def waiting(**changes: Any) -> Any:
    """A run whose profile is done, as its Playbook's looks are."""
    run = run_of(playbookRef={"name": "formula"}, **GPUS, **changes)
    facts = seen(done("profile"), engines=UP, looks=BAD)
    return run, facts, decide_cluster(run, memory(engines_since={"main": NOW - 10}), facts)


def test_it_waits_after_its_rows_were_read_with_no_engine_up_and_no_clock_running() -> None:
    run, facts, plan = waiting()
    assert plan.held == unexplained(BAD, "h") and "passed nothing" in plan.held
    assert (plan.freeze, plan.jobs, plan.memory.active_since) == (None, (), 0.0)
    assert [wish.replicas for wish in plan.engines.values()] == [0]
    assert decide_cluster(run, plan.memory, facts).held == plan.held
    status = run_status(About(run.spec, 1, "m", "i", "a", str), RunStatus(), plan, facts)
    told = {one.type: (one.status, one.reason) for one in status.conditions}
    assert (status.phase, status.message) == (Phase.PREPARING, plan.held)
    assert told["PlanAccepted"] == told["Reconciling"] == ("False", "ChangeUnexplained")
    assert told["Stalled"] == ("True", "ChangeUnexplained")


def test_it_goes_on_where_it_was_as_soon_as_a_reason_is_there() -> None:
    run, facts, plan = waiting()
    known = Memory.from_status(plan.memory.to_status())
    explained = replace(facts, looks=replace(BAD, reason="rows of this quarter"), engines={})
    after = decide_cluster(run, known, explained)
    assert (after.held, after.freeze is not None and after.freeze.iteration) == ("", 0)
    status = run_status(About(run.spec, 1, "m", "i", "a", str), RunStatus(), after, explained)
    assert {one.type: one.status for one in status.conditions}["PlanAccepted"] == "True"


def test_it_leaves_its_queue_and_asks_for_no_place_until_somebody_says_why() -> None:
    run, facts, _ = waiting(queue={"name": "team-a"})
    placed = replace(facts, engines={}, queue=QueueSeen(made=True, admitted=True))
    left = decide_cluster(run, memory(), placed)
    assert (left.held, left.queue) == (unexplained(BAD, "h"), "Leave")
    gone = replace(placed, queue=QueueSeen())
    again = decide_cluster(run, left.memory, gone)
    assert (again.held, again.queue) == (left.held, "")
    explained = replace(gone, looks=replace(BAD, reason="rows of this quarter"))
    assert decide_cluster(run, again.memory, explained).queue == "Join"


def test_it_waits_before_serial_learning_is_measured_too() -> None:
    _, _, plan = waiting(serialBaseline={"method": "ACE", "measure": True})
    assert plan.held and plan.jobs == ()


def test_a_run_that_learns_is_never_held() -> None:
    run, facts, _ = waiting()
    frozen = decide_cluster(run, memory(), replace(facts, looks=None)).freeze
    assert frozen is not None
    begun = seen(done("profile"), job("map"), plans={0: frozen}, engines=UP, looks=BAD)
    assert decide_cluster(run, memory(), begun).held == ""


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"playbookRef": {"name": "p"}}, True),
        ({"playbookRef": {"name": "p"}, "discipline": "Advisory"}, False),
        ({}, False),
    ],
)
def test_only_a_strict_run_of_a_playbook_is_asked(changes: dict[str, Any], asked: bool) -> None:
    spec = spec_of(**changes)
    assert asks_for_reasons(Memory(), spec, STRICT) is asked
    assert asks_for_reasons(Memory(ended=NOW), spec, STRICT) is False


def test_a_run_does_not_start_for_rows_that_its_playbook_names_without_a_reason() -> None:
    stated = {
        "task": {
            "type": "Formula",
            "data": {
                "train": {"uri": "t.jsonl"},
                "heldOut": {"uri": "h.jsonl", "steward": "data", "usedForTuning": False},
            },
            "failureCost": "A wrong figure",
        },
        "models": {
            role: {"endpoint": {"url": "http://m/v1", "model": "m", "hardware": "CPU"}}
            for role in ("task", "proposer")
        },
        "serialBaseline": {"method": "ACE", "waived": "a test"},
        "budget": {"rollouts": 1000},
    }
    spec, named = spec_of(**stated), replace(BAD, digest="new")
    with pytest.raises(RefusedError) as refused:
        question(spec, STRICT, EngineGpus(), started=False, looks=named)
    assert (refused.value.reason, refused.value.what) == (Reason.CHANGE_UNEXPLAINED, unexplained(named, ""))
    question(spec, STRICT, EngineGpus(), started=True, looks=named)
    question(spec, STRICT, EngineGpus(), started=False, looks=replace(named, reason="fresh rows"))
