"""The conditions that tools wait for, Ready, Reconciling and Stalled, of a Playbook's written statuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playbook_bench import World, digest_of

from combee.plan.playbook.conditions import READY, Statement, merge


def blocked() -> World:
    world = World().add("a")
    world.blocked = "a ConfigMap of this name is there that is not ours"
    world.tick()
    world.delivered = digest_of("other")
    world.tick()
    return world


def delivering() -> World:
    world = World().add("a")
    world.tick()
    return world


def nothing() -> World:
    world = World()
    world.tick()
    return world


def taken_back() -> World:
    """The refused version still lies where services find it."""
    world = World().add("a").settle().decide("a", "Refuse")
    world.tick()
    return world


STATES: dict[str, tuple[Callable[[], World], str, str, str, str]] = {
    "nothing yet": (nothing, "Delivering", "False", "True", "False"),
    "nothing": (lambda: World().settle(), "NothingActive", "True", "False", "False"),
    "taken back": (taken_back, "Delivering", "False", "True", "False"),
    "nothing any more": (lambda: taken_back().settle(), "NothingActive", "True", "False", "False"),
    "delivering": (delivering, "Delivering", "False", "True", "False"),
    "delivered": (lambda: World().add("a").settle(), "Delivered", "True", "False", "False"),
    "blocked": (blocked, "DeliveryBlocked", "False", "False", "True"),
}


@pytest.mark.parametrize("state", STATES)
def test_what_a_playbook_waits_for_is_in_its_conditions(state: str) -> None:
    make, reason, *expected = STATES[state]
    status = make().status
    found = {c.type: c for c in status.conditions}
    assert [found[name].status for name in ("Ready", "Reconciling", "Stalled")] == expected
    assert {found[name].reason for name in ("Ready", "Reconciling", "Stalled")} == {reason}
    assert len({found[name].message for name in ("Ready", "Reconciling", "Stalled")}) == 1


def test_what_is_in_the_way_is_forgotten_once_it_is_delivered() -> None:
    world = blocked()
    assert "not ours" in world.says("Stalled")
    world.blocked = ""
    assert world.settle().why("Stalled") == ("False", "Delivered")
    world.blocked = "said of something else before"
    assert world.settle().why("Stalled") == ("False", "Delivered")


LEARNED = {"origin": {"models": {"task": "small", "proposer": "large"}}}
SERVED: dict[str, tuple[World, str | None, tuple[str, str]]] = {
    "the same": (World().add("a", **LEARNED), "small", ("True", "SameModel")),
    "another": (World().add("a", **LEARNED), "large", ("False", "AnotherModel")),
    "another spelling": (World().add("a", **LEARNED), "org/small", ("False", "AnotherModel")),
    "not stated": (World().add("a", **LEARNED), None, ("Unknown", "ModelNotStated")),
    "no gateway": (World(spec={"delivery": {}}).add("a", **LEARNED), "", ("Unknown", "ModelNotStated")),
    "made by hand": (World().add("a"), "small", ("Unknown", "NoTaskModel")),
    "no version": (World(), "small", ("Unknown", "NothingActive")),
}


@pytest.mark.parametrize("case", SERVED)
def test_a_model_that_is_served_and_was_not_learned_with_is_a_condition(case: str) -> None:
    world, model, expected = SERVED[case]
    if model != "":
        upstream = {"url": "http://llm/v1", **({"model": model} if model else {})}
        world.change(delivery={"gateway": {"upstream": upstream}})
    world.settle()
    assert world.why("ServedAsLearned") == expected
    if expected[1] == "AnotherModel":
        says = world.says("ServedAsLearned")
        assert f"services ask {model}" in says and "learned with small" in says
        assert "activeVersion: true" in says and f"{model} as models.task" in says
        assert world.why("Ready") == ("True", "Delivered"), "it is served all the same"


def test_the_model_of_a_manifest_that_cannot_be_read_is_as_it_was() -> None:
    world = World(spec={"delivery": {"gateway": {"upstream": {"url": "http://llm/v1", "model": "large"}}}})
    world.add("a", **LEARNED).settle()
    world.spec, world.unreadable = {"delivery": {}}, "no"
    assert world.settle().why("ServedAsLearned") == ("False", "AnotherModel")


def test_a_manifest_that_cannot_be_read_is_stalled_and_keeps_what_else_was_said() -> None:
    before = World().add("a").settle().status.conditions
    after = merge(before, (Statement(READY, "InvalidManifest", "no"),), 2, "t9")
    assert [(c.type, c.status) for c in after][:3] == [
        ("Ready", "False"),
        ("Reconciling", "False"),
        ("Stalled", "True"),
    ]
    assert after[3:] == before[3:]
    again = merge(after, (Statement(READY, "InvalidManifest", "no"),), 2, "t10")
    assert again == after
