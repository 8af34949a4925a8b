"""A Playbook without a canary waits for a person; one that waives it says why wherever somebody looks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playbook_bench import CANARY, WAIVED, World

from combee.api.playbook_status import Verdict

REASON = WAIVED["waived"]
DAY = 86_400.0


def without(name: str = "b") -> World:
    """``a`` is active, the Playbook has no canary, and a better version is made."""
    return World().add("a").settle().change(canary=None).add(name, parent="a")


def test_without_a_canary_a_version_waits_until_somebody_approves_it_however_long_that_takes() -> None:
    world = without()
    (event,) = world.tick().events
    assert (event.kind, event.reason) == ("Normal", "WaitingForApproval")
    for _ in range(3):
        plan = world.tick(400 * DAY)
        assert (world.active, world.phases["b"], plan.events, plan.canaries) == ("a", "Candidate", (), ())
    assert world.why("CanaryPassed") == world.why("CanaryPassed", "b") == ("Unknown", "WaitingForApproval")
    assert world.why("Promoted", "b") == ("False", "WaitingForDecision")
    assert "kubectl combee playbook approve formula b00000000000" in world.says("Promoted", "b")
    assert "kubectl combee playbook approve formula b00000000000" in world.status.message
    plan = world.decide("b", "Approve").tick()
    assert [event.reason for event in plan.events] == ["CanaryPassed", "Promoted"]
    assert (world.active, world.why("CanaryPassed", "b")) == ("b", ("True", "Approved"))
    assert world.versions["b"].status.promoted_by == "Gates"


def test_the_first_version_waits_too() -> None:
    world = World().change(canary=None).add("a").settle()
    assert (world.active, world.phases["a"]) == ("", "Candidate")
    assert world.decide("a", "Approve").settle().active == "a"


def test_a_version_made_later_takes_the_place_of_one_that_waits() -> None:
    world = without().settle().add("c", parent="a").settle()
    assert world.phases == {"a": "Active", "b": "Superseded", "c": "Candidate"}


def test_approval_of_what_heldout_refuses_promotes_nothing() -> None:
    world = World().add("a").settle().change(canary=None).add("b", parent="a", better=-0.2)
    world.decide("b", "Approve").settle()
    assert (world.active, world.phases["b"]) == ("a", "Refused")


def test_a_waived_canary_promotes_on_heldout_alone_and_its_reason_is_everywhere() -> None:
    world = World().add("a").settle().add("b", parent="a")
    plan = world.tick()
    assert world.active == "b"
    assert [event.reason for event in plan.events] == ["CanaryWaived", "Promoted"]
    said = f"the canary is waived: {REASON}"
    version = world.versions["b"].status
    assert (
        version.canary
        == world.status.canary
        == Verdict(outcome="Waived", reason="CanaryWaived", message=said)
    )
    assert world.why("CanaryPassed") == world.why("CanaryPassed", "b") == ("Unknown", "CanaryWaived")
    assert world.says("CanaryPassed") == world.says("CanaryPassed", "b") == said
    assert world.status.warnings == (said,)
    for text in (*(event.message for event in plan.events), world.status.history[-1].message):
        assert REASON in text


def test_a_playbook_without_versions_says_already_that_its_canary_is_waived() -> None:
    world = World().settle()
    assert world.why("CanaryPassed") == ("Unknown", "CanaryWaived")
    assert World().change(canary=None).settle().why("CanaryPassed") == ("Unknown", "NoCandidate")


def test_what_waits_is_promoted_once_its_canary_is_waived_and_no_comparison_begins_anew() -> None:
    world = without().settle().change(canary=WAIVED).settle()
    assert (world.active, world.versions["b"].status.restarts) == ("b", 0)


def test_where_waivers_are_not_allowed_one_counts_as_no_canary_and_says_so() -> None:
    world = World(allow_waived=False).add("a")
    assert [(event.kind, event.reason) for event in world.tick().events] == [("Warning", "WaiverNotAllowed")]
    for _ in range(3):
        assert world.tick(DAY).events == () and world.active == ""
    assert world.why("CanaryPassed", "a") == ("Unknown", "WaiverNotAllowed")
    assert world.why("Promoted", "a") == ("False", "WaitingForDecision")
    for words in (REASON, "playbooks.allowWaivedCanary", "kubectl combee playbook approve formula a0"):
        assert words in world.says("CanaryPassed", "a")
    assert world.decide("a", "Approve").settle().active == "a"


@pytest.mark.parametrize("to", [CANARY, None, {"mode": "Manual"}], ids=["Shadow", "none", "Manual"])
def test_a_waiver_that_is_taken_back_promotes_nobody_that_waits(to: dict[str, object] | None) -> None:
    world = World().add("a").settle().change(version={"policy": "Manual"}).add("b", parent="a").settle()
    assert world.why("CanaryPassed", "b") == ("Unknown", "CanaryWaived")
    world.change(canary=to, version={"policy": "Automatic"}).settle()
    assert (world.active, world.phases["b"]) == ("a", "Candidate")


def test_a_verdict_of_an_earlier_release_is_still_read_and_shown() -> None:
    """It promoted on heldOut alone where there was no canary, and said so."""
    world = World().add("a").settle()
    old = Verdict(reason="NoCanary", message="the Playbook has no canary: heldOut alone decides")
    status = world.versions["a"].status.model_copy(update={"canary": old})
    world.change_version("a", status=status).change(canary=None).settle()
    assert (world.active, world.why("CanaryPassed", "a")) == ("a", ("Unknown", "NoCanary"))


def test_nothing_flaps_while_the_canary_comes_and_goes() -> None:
    world, seen = without(), []
    for canary in (None, CANARY, None, WAIVED, None, CANARY):
        world.change(canary=canary).tick(10)
        seen.append(world.active)
    assert len([1 for one, next_ in pairwise(seen) if one != next_]) == 1


@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
def test_of_two_versions_of_one_second_the_one_looked_at_later_is_shown(first: str, second: str) -> None:
    """An API server tells times of creation in whole seconds."""
    world = World().change(canary=None).add(first).settle().decide(first, "Approve").settle()
    world.change(canary=WAIVED).add(second, parent=first)
    world.change_version(second, created=world.versions[first].created)
    assert world.settle().active == second
    assert world.why("CanaryPassed") == ("Unknown", "CanaryWaived")
