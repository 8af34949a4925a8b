"""Runs that a Playbook makes: named by what they learn from, one at a time, never twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from playbook_bench import World

from combee.api.playbook import Learn
from combee.plan.playbook.datawatch import places, wait_seconds

TEMPLATE: dict[str, Any] = {
    "task": {
        "type": "Formula",
        "data": {"train": {"uri": "s3://d/train.jsonl"}, "heldOut": {"uri": "s3://d/heldout.jsonl"}},
    },
    "method": {"type": "ACE"},
    "models": {
        "task": {"endpoint": {"url": "http://llm:8000/v1", "model": "m"}},
        "proposer": {"endpoint": {"url": "http://llm:8000/v1", "model": "m"}},
    },
}


def learner(**learn: Any) -> World:
    return World().change(learn={"template": TEMPLATE, **learn})


def names(world: World) -> list[str]:
    return list(world.runs)


def finish(world: World) -> None:
    """All its runs are over."""
    world.runs = {name: replace(run, over=True) for name, run in world.runs.items()}


def test_a_playbook_without_learn_makes_no_run() -> None:
    assert World().tick().runs == ()


def test_on_change_one_run_is_made_for_each_template() -> None:
    world = learner()
    plan = world.tick()
    (wish,) = plan.runs
    assert wish.name.startswith("formula-")
    assert wish.spec.playbook_ref is not None and wish.spec.playbook_ref.name == "formula"
    assert wish.spec.task.data.train.uri == "s3://d/train.jsonl"
    assert plan.events == ()
    plan = world.tick()
    assert [event.reason for event in plan.events] == ["RunCreated"]
    assert (world.status.run_name, plan.runs) == (wish.name, ())
    assert world.tick().events == ()
    finish(world)
    assert world.tick().runs == ()
    world.change(learn={"template": {**TEMPLATE, "seed": 8}})
    assert len(world.tick().runs) == 1
    assert len(set(names(world))) == 2


@pytest.mark.parametrize("trigger", ["OnChange", "Schedule", "Manual"])
def test_a_wish_that_came_to_nothing_comes_again(trigger: str) -> None:
    world = learner(trigger=trigger, **({"schedule": "* * * * *"} if trigger == "Schedule" else {}))
    world.learn_request = "now" if trigger == "Manual" else ""
    world.tick()
    world.runs.clear()
    world.status = world.status.model_copy(update={"state": {**world.status.state, "made": []}})
    plan = world.tick(90)
    world.runs.clear()
    assert [wish.name for wish in world.tick(5).runs] == [wish.name for wish in plan.runs] != []


def test_a_run_that_is_gone_is_not_made_again() -> None:
    world = learner()
    world.tick()
    world.tick()
    world.runs.clear()
    assert world.tick().runs == ()


def test_a_playbook_applied_again_knows_its_runs_and_what_they_made() -> None:
    world = learner()
    world.tick()
    (name,) = names(world)
    world.status = type(world.status)()
    assert world.tick().runs == ()
    world.runs.clear()
    world.status = type(world.status)()
    world.add("a", runRef={"name": name})
    assert world.tick().runs == ()


def place(template: dict[str, Any] = TEMPLATE, split: str = "train") -> str:
    """The key of a split's source."""
    learn = Learn.model_validate({"template": template})
    return next(key for key in places(learn) if key.startswith(f"{split}-"))


def test_changed_data_make_one_run_and_the_first_look_only_remembers() -> None:
    world = learner()
    world.tick()
    finish(world)
    world.data_marks = {place(): "etag-1", place(split="heldOut"): "etag-9"}
    assert world.tick().runs == ()
    # What could not be told this time is as it was.
    world.data_marks = {}
    assert world.tick().runs == ()
    world.data_marks = {place(): "etag-2"}
    assert len(world.tick().runs) == 1
    world.tick()
    finish(world)
    assert (world.tick().runs, len(names(world))) == ((), 2)


def test_data_that_change_while_a_run_is_at_work_make_one_more_when_it_is_over() -> None:
    world = learner()
    for mark in ("etag-1", "etag-2", "etag-3"):
        world.data_marks = {place(): mark}
        world.tick()
    assert len(names(world)) == 1
    finish(world)
    world.tick()
    finish(world)
    assert (world.tick().runs, len(names(world))) == ((), 2)


def test_another_address_is_a_change_of_the_template_alone() -> None:
    world = learner()
    world.data_marks = {place(): "etag-1"}
    world.tick()
    finish(world)
    moved = {
        **TEMPLATE,
        "task": {
            **TEMPLATE["task"],
            "data": {**TEMPLATE["task"]["data"], "train": {"uri": "s3://e/t.jsonl"}},
        },
    }
    world.change(learn={"template": moved})
    world.tick()
    finish(world)
    world.data_marks = {place(moved): "etag-7"}
    assert (world.tick().runs, len(names(world))) == ((), 2)


@pytest.mark.parametrize("learn", [{"trigger": "Manual"}, {"trigger": "Schedule", "schedule": "0 3 * * 1"}])
def test_changed_data_are_nothing_to_other_triggers(learn: dict[str, str]) -> None:
    world = learner(**learn)
    for mark in ("etag-1", "etag-2"):
        world.data_marks = {place(): mark}
        assert world.tick().runs == ()


@pytest.mark.parametrize(("last", "wait"), [(None, 0.0), (900.0, 200.0), (700.0, 0.0), (100.0, 0.0)])
def test_the_next_look_is_a_poll_after_the_last(last: float | None, wait: float) -> None:
    assert wait_seconds(last, 300, 1000.0) == wait


def test_one_run_at_a_time() -> None:
    world = learner()
    world.tick()
    world.change(learn={"template": {**TEMPLATE, "seed": 8}})
    assert world.tick().runs == ()
    finish(world)
    assert len(world.tick().runs) == 1


@pytest.mark.parametrize("trigger", ["Manual", "OnChange"])
def test_somebody_asks_for_a_run(trigger: str) -> None:
    world = learner(trigger=trigger)
    world.tick()
    finish(world)
    before = len(names(world))
    world.learn_request = "2026-11-21T14:50:00Z"
    assert len(world.tick().runs) == 1
    finish(world)
    assert world.tick().runs == ()
    world.learn_request = "2026-11-21T14:51:00Z"
    assert len(world.tick().runs) == 1
    assert len(set(names(world))) == before + 2


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_on_schedule_runs_are_made_when_they_are_due() -> None:
    world = learner(trigger="Schedule", schedule="0 3 * * 1")
    world.now = at("2026-11-21T12:00:00")
    plan = world.tick(0)
    assert plan.runs == ()
    assert plan.wake_after_seconds == 1.0
    assert world.tick(0).wake_after_seconds == at("2026-11-23T03:00:00") - world.now
    assert world.status.next_run_time == f"t{at('2026-11-23T03:00:00'):.0f}"
    world.now = at("2026-11-23T03:00:05")
    assert len(world.tick(0).runs) == 1
    assert world.tick(60).runs == ()
    finish(world)
    world.now = at("2026-12-22T00:00:00")
    assert len(world.tick(0).runs) == 1, "of four that were missed, one is made up for"
    assert world.tick(60).runs == ()
    assert len(set(names(world))) == 2


def test_what_comes_due_while_a_run_is_under_way_is_left_out() -> None:
    world = learner(trigger="Schedule", schedule="0 * * * *")
    world.now = at("2026-11-21T12:30:00")
    world.tick(0)
    for hour in ("13", "14"):
        world.now = at(f"2026-11-21T{hour}:00:01")
        world.tick(0)
    assert len(names(world)) == 1
    finish(world)
    assert world.tick(60).runs == ()


def test_a_schedule_that_is_none_is_warned_of_and_nothing_is_made() -> None:
    world = learner(trigger="Schedule", schedule="61 * * * *")
    plan = world.tick()
    assert plan.runs == ()
    assert "'61 * * * *' is not a schedule: bad minute" in world.status.warnings[-1]
    before = world.status.warnings
    world.tick()
    assert world.status.warnings == before


def test_finished_runs_beyond_the_limit_go() -> None:
    world = learner(historyLimit=2)
    for seed in range(5):
        world.change(learn={"template": {**TEMPLATE, "seed": seed}, "historyLimit": 2})
        world.tick()
        finish(world)
    world.tick()
    assert len(world.runs) == 2
    assert list(world.runs) == sorted(world.runs, key=lambda name: world.runs[name].created)


def test_names_fit_whatever_the_playbook_is_called() -> None:
    world = learner(trigger="Manual")
    world.learn_request = "now"
    plan = world.plan()
    assert all(len(wish.name) <= 63 for wish in plan.runs)
