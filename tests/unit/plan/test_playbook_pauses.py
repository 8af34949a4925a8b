"""What a test on traffic has gathered is kept while it pauses, and no test begins anew for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playbook_bench import CANARY, NOW, WAIVED, World, digest_of, when

from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import PlaybookStatus
from combee.plan.playbook.decide import decide_playbook
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.serving import Version
from combee.plan.playbook.types import About, PlaybookSeen

GOOD = [0.0, 0.2, -0.1, 0.3] * 40


def under_test(**canary: object) -> World:
    """``a`` is active, ``b`` has eight pairs of its canary."""
    world = World().add("a").settle().change(canary={**CANARY, **canary}).add("b", parent="a")
    world.tick()
    world.judged("b", GOOD[:8]).tick(10)
    return world


def pin(world: World, name: str) -> World:
    return world.change(version={"pinnedDigest": digest_of(name)} if name else {})


def content(world: World, there: bool) -> World:
    return world.change_version("b", has_content=there)


PAUSES: dict[str, tuple[Callable[[World], World], Callable[[World], World]]] = {
    "a pin": (lambda world: pin(world, "a"), lambda world: pin(world, "")),
    "a promotion by name": (
        lambda world: world.decide("a", "Promote"),
        lambda world: world.decide("a", "Auto"),
    ),
    "its content": (lambda world: content(world, False), lambda world: content(world, True)),
}


@pytest.mark.parametrize("pause", PAUSES.values(), ids=PAUSES)
def test_a_test_that_was_held_up_goes_on_where_it_was(
    pause: tuple[Callable[[World], World], Callable[[World], World]],
) -> None:
    world = under_test()
    before, memory = world.versions["b"].status.test, world.versions["b"].status.state
    stop, resume = pause
    for _ in range(2):
        stop(world).tick(5)
        assert world.versions["b"].status.test is None and world.active == "a"
        plan = resume(world).tick(5)
        assert world.versions["b"].status.test == before
        assert plan.canaries[0].pairs == 8 and plan.events == ()
    assert (world.versions["b"].status.restarts, world.versions["b"].status.state) == (0, memory)
    world.judged("b", GOOD).tick(60)
    assert world.active == "b"


def test_other_thresholds_in_the_pause_begin_it_anew_and_say_so() -> None:
    world = pin(under_test(), "a")
    world.tick()
    world.change(canary={**CANARY, "epsilon": 0.1}).tick()
    plan = pin(world, "").tick()
    assert world.versions["b"].status.restarts == 1 and plan.canaries[0].pairs == 0
    assert [entry.event for entry in world.status.history][-1] == "Restarted"


def test_another_active_version_after_the_pause_begins_it_anew_and_says_so() -> None:
    world = under_test()
    world.add("c", parent="a", better=-0.2)
    pin(world, "c").tick()
    assert world.active == "c"
    plan = pin(world, "").tick()
    assert world.versions["b"].status.restarts == 1
    assert "c00000000000 is active now" in next(e.message for e in plan.events if e.reason == "Restarted")
    assert VersionMemory.from_json(world.versions["b"].status.state).tally.pairs == 0


def test_the_watch_goes_on_after_a_pin() -> None:
    world = under_test(watchSeconds=7200)
    world.judged("b", GOOD).tick(60)
    assert world.active == "b"
    world.judged("b", [-0.5] * 5).tick(10)
    test = world.versions["b"].status.test
    pin(world, "b").tick()
    assert world.versions["b"].status.test is None
    pin(world, "").tick()
    assert world.versions["b"].status.test == test
    assert world.status.watch is not None and world.status.watch.samples == 5


def test_a_test_that_is_over_is_not_waited_for() -> None:
    world = under_test()
    world.tick(3600)
    assert world.phases["b"] == "Inconclusive"
    assert "test" not in world.versions["b"].status.state


EPSILONS = (0.05, 0.06)


def flapping(world: World, times: int, seconds: float) -> list[str]:
    """Somebody changes epsilon so often; the reasons of all events."""
    told: list[str] = []
    for _ in range(times):
        now = world.spec["canary"]["epsilon"]
        world.change(canary={**CANARY, "epsilon": next(one for one in EPSILONS if one != now)})
        told += [event.reason for event in world.tick(seconds).events]
    return told


def test_a_test_that_begins_anew_for_ever_ends_after_three_deadlines() -> None:
    world = under_test()
    assert flapping(world, 5, 2000) == ["Restarted"] * 5
    assert world.phases["b"] == "Candidate"
    assert flapping(world, 1, 2000) == ["Restarted", "Inconclusive"]
    assert (world.phases["b"], world.active) == ("Inconclusive", "a")
    assert "began anew 6 times, and 3 deadlines since the first are over" in world.says("Promoted", "b")
    assert world.tick(5).events == ()
    # Other thresholds afterwards are asked for by somebody, and count from then on.
    assert flapping(world, 2, 2000) == ["Restarted"] * 2
    assert world.phases["b"] == "Candidate"


def test_a_test_ends_with_its_third_deadline_though_nobody_changes_anything_then() -> None:
    world = under_test()
    flapping(world, 5, 1700)
    plan = world.plan()
    assert plan.wake_after_seconds is not None
    world.tick(3600 * 3 - 5 * 1700)
    assert world.phases["b"] == "Inconclusive"


def test_twenty_restarts_are_the_last() -> None:
    world = under_test()
    assert flapping(world, 19, 1) == ["Restarted"] * 19
    assert flapping(world, 1, 1) == ["Restarted", "Inconclusive"]
    assert flapping(world, 3, 1) == [] and world.phases["b"] == "Inconclusive"
    assert "began anew 20 times: promote it by name" in world.says("Promoted", "b")
    world.decide("b", "Promote").tick()
    assert world.active == "b"


def test_one_change_leaves_the_whole_deadline() -> None:
    world = under_test()
    flapping(world, 1, 3500)
    world.judged("b", GOOD).tick(3599)
    assert world.active == "b"


def test_while_the_spec_cannot_be_read_a_test_stands_as_it_is() -> None:
    world = under_test()
    spec, before = world.spec, world.versions["b"].status
    world.spec, world.unreadable = {}, "heldOut.minScore must be 1 at most"
    world.judged("b", GOOD)
    plan = world.tick(100)
    assert (plan.events, plan.prune_versions, plan.prune_contents) == ((), (), ())
    after = world.versions["b"].status
    assert (after.test, after.state, after.canary) == (before.test, before.state, before.canary)
    assert world.named(world.status.candidate_digest) == "b"
    assert world.why("Ready") == ("False", "InvalidManifest")
    world.spec, world.unreadable = spec, ""
    world.tick()
    assert world.active == "b" and world.versions["b"].status.restarts == 0


def test_a_version_without_a_digest_is_nobodys_active_one() -> None:
    world = World().add("a")
    about = About("formula", 1, PlaybookSpec.model_validate({"canary": WAIVED}), when)
    seen = PlaybookSeen(now=NOW, versions=tuple(world.versions.values()), opaque=(Version(""),))
    assert decide_playbook(about, PlaybookStatus(), seen).status.active_digest == digest_of("a")


def test_the_watch_stands_too_while_the_spec_cannot_be_read() -> None:
    world = under_test(watchSeconds=7200)
    world.judged("b", GOOD).tick(60)
    spec, test = world.spec, world.versions["b"].status.test
    assert test is not None and test.kind == "Watch"
    world.spec, world.unreadable = {}, "heldOut.minScore must be 1 at most"
    world.tick(10)
    assert world.versions["b"].status.test == test
    world.spec, world.unreadable = spec, ""
    world.judged("b", [-0.5] * 60).tick()
    assert world.active == "a"
