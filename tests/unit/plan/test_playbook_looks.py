"""One error budget for a Playbook's life: looks are counted once, and judged by their number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playbook_bench import CANARY, HELD_OUT, World, digest_of, gate

from combee.algo.spending import look_confidence, spent
from combee.api.playbook_status import PlaybookStatus, Thresholds, VersionStatus
from combee.observe.playbooks import run_seen
from combee.plan.gatescores import GateScores
from combee.plan.playbook.heldout import version_verdict
from combee.plan.playbook.memory import MAX_HELD_OUTS, PlaybookMemory
from combee.plan.playbook.types import RunSeen

OTHER = "f" * 64
CHANCE = 0.02
"""A gain that chance could make at any look: four wins of 200."""


def looks(world: World) -> dict[str, int]:
    """The number of each version's look."""
    return {
        name: version.status.look.number
        for name, version in world.versions.items()
        if version.status.look is not None
    }


def budget(world: World) -> tuple[int, float]:
    """How many looks, and what the next one is judged by."""
    assert world.status.error_budget is not None
    return world.status.error_budget.looks, world.status.error_budget.next_confidence


def three() -> World:
    """``a`` is active by its look 1; ``b`` and ``c`` were looked at in vain."""
    world = World().add("a").settle()
    for name in ("b", "c"):
        world.add(name, parent="a", better=CHANCE).settle()
    return world


def test_each_candidate_is_judged_more_strictly_than_the_one_before() -> None:
    world = three()
    assert looks(world) == {"a": 1, "b": 2, "c": 3}
    assert "look 3 at this heldOut: 99.17 % asked" in world.says("HeldOutPassed", "c")
    shown = world.status.error_budget
    assert shown is not None
    assert (shown.held_out_digest, shown.looks, shown.spent, shown.left) == (HELD_OUT, 3, 0.0375, 0.0125)
    assert shown.next_confidence == pytest.approx(look_confidence(0.95, 4))
    assert shown.message == "3 looks at this heldOut; the next candidate is judged at 99.5 %"
    assert world.status.shown.next_look == "99.5 %"


def test_what_would_pass_first_does_not_pass_late() -> None:
    """Eight wins of 200: 0.8 % by luck."""
    assert World().add("a").settle().add("e", parent="a", better=0.04).settle().active == "e"
    assert three().add("e", parent="a", better=0.04).settle().active == "a"
    assert three().add("e", parent="a", better=0.05).settle().active == "e"


def test_what_passed_has_its_corrected_gain_beside_the_measured_one() -> None:
    world = three().add("e", parent="a", better=0.05).settle()
    verdict = world.versions["e"].status.held_out
    assert verdict is not None and verdict.shrunk_gain is not None and verdict.gain == 0.05
    assert 0 <= verdict.shrunk_gain <= 0.05
    assert f"corrected for passing {verdict.shrunk_gain:+.3f}" in world.says("HeldOutPassed", "e")
    without = world.versions["b"].status.held_out
    assert without is not None and without.shrunk_gain is None


# -- counted once --------------------------------------------------------------------------------------


def crashed(world: World, *, playbook: bool) -> None:
    """Of the next plan only the Playbook's status is written, or only those of the versions."""
    plan, status = world.plan(), world.status
    versions, lines = dict(world.versions), dict(world.lines)
    world.write(plan)
    if playbook:
        world.versions = versions
    else:
        world.status, world.lines = status, lines


def reapplied(world: World) -> None:
    world.status = PlaybookStatus()


def resynced(world: World) -> None:
    for _ in range(5):
        world.tick(60)


def rethought(world: World) -> None:
    """Other thresholds, and back."""
    world.change(heldOut={"minGain": 0.01}).settle().change(heldOut={}).settle()


HAPPENS: dict[str, Any] = {
    "a crash before the versions are written": lambda world: crashed(world, playbook=True),
    "a crash before the Playbook is written": lambda world: crashed(world, playbook=False),
    "deleted and applied again": reapplied,
    "resyncs": resynced,
    "other thresholds": rethought,
}


@pytest.mark.parametrize("what", HAPPENS)
def test_a_look_is_counted_once_whatever_happens(what: str) -> None:
    world = three().add("d", parent="a", better=CHANCE)
    HAPPENS[what](world)
    world.settle()
    HAPPENS[what](world)
    world.settle()
    assert looks(world) == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert budget(world)[0] == 4
    world.add("e", parent="a", better=CHANCE).settle()
    assert (looks(world)["e"], budget(world)[0]) == (5, 5)


def test_a_version_that_is_deleted_and_learned_again_is_the_same_look() -> None:
    world = three()
    version = world.versions.pop("c")
    world.settle()
    world.versions["c"] = replace(version, status=VersionStatus())
    world.settle()
    assert (looks(world)["c"], budget(world)[0]) == (3, 3)


def test_the_last_look_outlives_its_playbook_and_the_history_limit() -> None:
    world = World().change(version={"historyLimit": 1}).add("a").settle()
    for name in ("b", "c", "d", "e"):
        world.add(name, parent="a", better=CHANCE).settle()
    assert set(world.versions) == {"a", "e"}
    # What cannot be compared pushes it over the limit.
    for name in ("f", "9", "8"):
        world.add(name, parent="a", better=None).settle()
    assert "e" in world.versions
    reapplied(world)
    world.add("7", parent="a", better=CHANCE).settle()
    assert looks(world)["7"] == 6


def test_other_thresholds_judge_the_same_look_again() -> None:
    world = three()
    world.change(heldOut={"confidence": 0.6}).settle()
    assert looks(world) == {"a": 1, "b": 2, "c": 3}
    assert "look 3 at this heldOut: 93.3 % asked" in world.says("HeldOutPassed", "c")
    assert budget(world) == (3, pytest.approx(look_confidence(0.6, 4)))


def test_another_active_version_judges_the_same_look_again() -> None:
    world = World().add("a").settle().change(canary=CANARY).add("b", parent="a", better=CHANCE).settle()
    world.add("c", parent="a", better=0.2).settle()
    assert (world.status.candidate_digest, looks(world)["c"]) == (digest_of("c"), 3)
    world.decide("b", "Promote").settle()
    assert (world.active, looks(world)["c"], budget(world)[0]) == ("b", 3, 3)
    comparison = world.versions["c"].status.comparison
    assert comparison is not None and comparison.against == digest_of("b")


@pytest.mark.parametrize("how", ["moved", "not measured", "stale", "leak", "promoted by name"])
def test_what_is_not_compared_spends_nothing(how: str) -> None:
    world = World().add("a").settle()
    if how == "moved":
        world.add("b", parent="a", scores=gate(0.2, held_out=OTHER))
    elif how == "not measured":
        world.add("b", parent="a", better=None)
    elif how == "stale":
        world.add("b", parent="d").change_version("b", gate=None)
    elif how == "leak":
        world.add("b", parent="a", findings=None)
    else:
        world.add("b", parent="a", better=CHANCE).decide("b", "Promote")
    world.settle()
    assert looks(world) == {"a": 1}
    assert budget(world)[0] == 1


# -- other rows ----------------------------------------------------------------------------------------


def test_fresh_rows_have_a_budget_of_their_own_and_old_ones_keep_theirs() -> None:
    world = three().change(heldOut={"digest": OTHER})
    assert budget(world.settle()) == (0, 0.95)
    world.add("d", parent="a", scores=gate(0.03, held_out=OTHER)).settle()
    # Six wins of 200 pass as a first look only.
    assert (world.active, looks(world)["d"], budget(world)[0]) == ("d", 1, 1)
    world.change(heldOut={"digest": HELD_OUT}).settle()
    assert budget(world)[0] == 3
    world.add("e", parent="d", scores=gate(0.03)).settle()
    assert (world.active, looks(world)["e"]) == ("d", 4)


def test_a_bounded_number_of_heldouts_is_remembered_the_last_ones_looked_at() -> None:
    world = three()
    for number in range(MAX_HELD_OUTS + 5):
        world.change(heldOut={"digest": f"{number:064x}"})
        world.add(f"c{number:03d}", parent="a", scores=gate(CHANCE, held_out=f"{number:064x}")).tick()
    held = [digest for digest, _ in PlaybookMemory.from_json(world.status.state).looks]
    assert held == [f"{number:064x}" for number in range(5, MAX_HELD_OUTS + 5)]


def remembered(world: World) -> list[tuple[str, int]]:
    """What a Playbook remembers, the heldOut looked at last at the end."""
    return list(PlaybookMemory.from_json(world.status.state).looks)


def test_looks_that_a_playbook_lost_come_back_in_the_order_they_were_made() -> None:
    world = three()
    for name, number in (("d", 1), ("e", 2), ("f", 1)):
        held_out = f"{number:064x}"
        world.change(heldOut={"digest": held_out, "reason": "new rows"})
        world.add(name, parent="a", scores=gate(CHANCE, held_out=held_out)).settle()
    before = remembered(world)
    assert before == [(HELD_OUT, 3), (f"{2:064x}", 1), (f"{1:064x}", 2)]
    reapplied(world)
    assert remembered(world.settle()) == before
    assert remembered(world.settle()) == before


def test_a_look_that_only_its_version_knows_is_the_last_one() -> None:
    world = three().change(heldOut={"digest": OTHER, "reason": "new rows"})
    world.add("d", parent="a", scores=gate(CHANCE, held_out=OTHER)).settle()
    world.change(heldOut={"digest": HELD_OUT, "reason": "the old ones"})
    crashed(world.add("e", parent="a", better=CHANCE), playbook=False)
    assert remembered(world) == [(HELD_OUT, 3), (OTHER, 1)] and looks(world)["e"] == 4
    assert remembered(world.settle()) == [(OTHER, 1), (HELD_OUT, 4)]


def test_of_too_many_lost_looks_the_last_come_back() -> None:
    world = three()
    for number in range(1, MAX_HELD_OUTS + 1):
        world.change(heldOut={"digest": f"{number:064x}"}, version={"historyLimit": 100})
        world.add(f"c{number:03d}", parent="a", scores=gate(CHANCE, held_out=f"{number:064x}")).tick()
    before = remembered(world.settle())
    reapplied(world)
    assert remembered(world.settle()) == before and remembered(world.settle()) == before
    assert [number for _, number in before] == [1] * MAX_HELD_OUTS


# -- runs without a version ----------------------------------------------------------------------------

LEARN = {
    "trigger": "Manual",
    "template": {
        "task": {
            "type": "Formula",
            "data": {split: {"configMap": {"name": "d", "key": split}} for split in ("train", "heldOut")},
        },
        "method": {"type": "ACE"},
        "models": {role: {"endpoint": {"url": "http://m/v1", "model": "m"}} for role in ("task", "proposer")},
    },
}


def test_a_run_that_looked_at_gate_and_measured_no_gain_is_a_look_counted_once() -> None:
    world = three().change(learn=LEARN)
    world.runs["r"] = RunSeen("r", "0009", over=True, looked_at=HELD_OUT)
    world.runs["of other rows"] = RunSeen("of other rows", "0009", over=True, looked_at=OTHER)
    world.runs["at work"] = RunSeen("at work", "0010", over=False)
    world.settle()
    crashed(world, playbook=True)
    assert budget(world.settle())[0] == 4
    del world.runs["r"]
    world.add("d", parent="a", better=CHANCE).settle()
    assert (looks(world)["d"], budget(world)[0]) == (5, 5)


@pytest.mark.parametrize(
    ("status", "looked_at"),
    [
        ({"phase": "NothingBetter", "gate": {"gain": -0.1}, "heldOut": {"digest": "d"}}, "d"),
        ({"phase": "NothingBetter", "heldOut": {"digest": "d"}}, ""),
        ({"phase": "Learned", "gate": {"gain": 0.1}, "heldOut": {"digest": "d"}, "published": "m"}, ""),
        ({"phase": "Learning", "gate": {"gain": 0.1}, "heldOut": {"digest": "d"}}, ""),
        ({}, ""),
    ],
)
def test_a_run_says_itself_whether_it_looked_in_vain(status: dict[str, Any], looked_at: str) -> None:
    raw = {"metadata": {"name": "r", "creationTimestamp": "0001"}, "status": status}
    assert run_seen(raw).looked_at == looked_at


# -- what an earlier release wrote ---------------------------------------------------------------------


def test_versions_of_an_earlier_release_have_their_looks_by_age() -> None:
    world = three()
    world.status = world.status.model_copy(
        update={
            "error_budget": None,
            "state": {k: v for k, v in world.status.state.items() if "look" not in k},
        }
    )
    for name, version in world.versions.items():
        status = version.status.model_copy(update={"look": None})
        world.change_version(name, status=status)
    world.settle()
    assert looks(world) == {"a": 1, "b": 2, "c": 3}
    assert budget(world)[0] == 3


# -- the warning ---------------------------------------------------------------------------------------


def test_it_is_warned_once_a_look_when_no_candidate_could_pass_any_more() -> None:
    """The active version is wrong on seven rows of 30: all of them won, that is 1.6 % by luck."""
    world = World().add("a", scores=gate(0.4, rows=30, base=11 / 30)).settle()
    events = []
    for number in range(2, 6):
        world.add(f"{number}", parent="a", scores=gate(0.0, rows=30, base=23 / 30))
        for _ in range(3):
            events += [(number, one) for one in world.tick().events if one.reason == "HeldOutSpent"]
    assert [number for number, _ in events] == [2, 3, 4, 5]
    assert all(one.kind == "Warning" for _, one in events)
    assert world.status.error_budget is not None
    assert events[-1][1].message == world.status.error_budget.message
    assert "not even one that is right on every row could pass" in world.status.error_budget.message
    # It is so: and it passes on rows that nobody looked at.
    best = gate(7 / 30, rows=30, base=23 / 30)
    assert world.add("be", parent="a", scores=best).settle().active == "a"
    world.change(heldOut={"digest": OTHER})
    assert world.add("fe", parent="a", scores=replace(best, held_out=OTHER)).settle().active == "fe"


# -- a life --------------------------------------------------------------------------------------------


def without_gain(rng: np.random.Generator, base: dict[str, float], share: float) -> GateScores:
    """Differs from ``base`` on a share of the rows, half of them won."""
    best = {row: 1 - score if rng.random() < share else score for row, score in base.items()}
    return GateScores(HELD_OUT, base, best)


@pytest.mark.parametrize("min_gain", [0.0, -0.05])
def test_two_hundred_candidates_without_gain_are_two_hundred_looks(min_gain: float) -> None:
    """Judged one by one, as before, some are promoted; over the life of the Playbook none of these is."""
    rng = np.random.default_rng(12)
    base = {f"x{i}": float(i % 2) for i in range(150)}
    world = World().change(heldOut={"minGain": min_gain}, version={"historyLimit": 3})
    world.add("a", scores=GateScores(HELD_OUT, dict.fromkeys(base, 0.0), base)).settle()
    alone = 0
    for number in range(2, 202):
        scores, name = without_gain(rng, base, 0.2), f"{number:04d}"
        world.add(name, parent="a", scores=scores).tick()
        world.tick()
        status = world.versions[name].status
        assert status.look is not None and status.look.number == number
        assert status.comparison is not None
        as_first = version_verdict(
            world.versions[name], status.comparison, thresholds=Thresholds(min_gain=min_gain), look=1
        )
        alone += as_first.outcome == "Passed"
        if number == 100:
            reapplied(world)
    assert alone == 5
    assert world.active == "a"
    assert budget(world) == (201, pytest.approx(look_confidence(0.95, 202)))
    assert world.status.error_budget is not None
    assert world.status.error_budget.spent == pytest.approx(spent(0.95, 201))
    assert len(str(world.status.state)) < 16_000


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["add", "crash", "half", "reapply", "tick", "thresholds", "drop"]), max_size=25)
)
def test_numbers_are_given_in_order_and_never_twice(steps: list[str]) -> None:
    world, made = World().add("a").settle(), 0
    given_out: dict[str, int] = looks(world)
    for step in steps:
        if step == "add":
            made += 1
            world.add(f"b{made:02d}", parent="a", better=CHANCE)
        elif step in ("crash", "half"):
            crashed(world, playbook=step == "half")
        elif step == "reapply":
            reapplied(world)
        elif step == "thresholds":
            world.change(heldOut={"minGain": 0.01 * (world.generation % 3)})
        elif step == "drop" and made > 1:
            # Somebody deletes an old version, not the last one.
            world.versions.pop("b01", None)
        world.tick()
        for name, number in looks(world).items():
            assert given_out.setdefault(name, number) == number
        assert sorted(given_out.values()) == list(range(1, len(given_out) + 1))
        assert budget(world)[0] == len(given_out)
