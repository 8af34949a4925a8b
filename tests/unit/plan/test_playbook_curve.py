"""The history of a canary's interval is kept with its tally: real looks, bounded, without any effect."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from playbook_bench import CANARY, World, digest_of

from combee.algo.curve import MAX_LOOKS
from combee.plan.playbook.curve import Curve, curves_in

SOME = [0.0, 0.2, -0.1, 0.3]
LONG = {"durationSeconds": 0, "deadlineSeconds": 10_000_000, "minSamples": 100_000, "watchSeconds": 100_000}


def two(**canary: Any) -> World:
    """``a`` is active, ``b`` is under test."""
    world = World().add("a").settle().change(canary={**CANARY, **LONG, **canary}).add("b", parent="a")
    world.tick()
    return world


def curve(world: World, name: str = "b", kind: str = "Promotion") -> Curve:
    return next(one for one in curves_in(world.versions[name].status.state) if one.kind == kind)


def test_each_look_at_new_pairs_is_a_point_with_the_numbers_that_were_said() -> None:
    world = two()
    for _ in range(5):
        world.judged("b", SOME).tick(600)
    found, told = curve(world), world.versions["b"].status.canary
    assert told is not None
    assert [look.pairs for look in found.looks] == [4, 8, 12, 16, 20]
    assert [look.seconds for look in found.looks] == [600, 1200, 1800, 2400, 3000]
    assert (found.against, found.epsilon) == (digest_of("a"), 0.05)
    last = found.looks[-1]
    assert (last.mean, last.low, last.high) == pytest.approx((told.gain, told.low, told.high), abs=1e-5)


def test_no_pair_no_point_and_the_same_facts_decide_the_same() -> None:
    world = two()
    world.tick(60)
    assert curves_in(world.versions["b"].status.state) == ()
    world.judged("b", SOME).tick(600)
    before = world.versions["b"].status
    world.tick(0)
    world.tick(600)
    assert world.versions["b"].status.state == before.state


def test_it_stays_small_however_long_a_test_takes() -> None:
    world = two()
    for _ in range(3 * MAX_LOOKS):
        world.judged("b", SOME).tick(60)
    found = curve(world)
    assert len(found.looks) == MAX_LOOKS
    assert found.looks[0].pairs == 4 and found.looks[-1].pairs == 12 * MAX_LOOKS
    assert len(json.dumps(found.to_json())) < 3500


def test_a_test_that_begins_anew_begins_its_curve_anew() -> None:
    world = two()
    world.judged("b", SOME).tick(600)
    first = curve(world)
    world.change(canary={**CANARY, **LONG, "epsilon": 0.1}).tick(60)
    assert curve(world) == first
    world.judged("b", SOME * 2).tick(600)
    second = curve(world)
    assert second.comparison != first.comparison and second.epsilon == 0.1
    assert [look.pairs for look in second.looks] == [8]


def test_the_watch_after_promotion_has_a_curve_of_its_own_and_the_canarys_stays() -> None:
    world = two(minSamples=20)
    world.judged("b", SOME * 40).tick(600)
    assert world.active == "b"
    canary = curve(world)
    world.judged("b", SOME).tick(600)
    assert curve(world) == canary
    assert [look.pairs for look in curve(world, kind="Watch").looks] == [4]


@pytest.mark.parametrize("broken", ["words", [7], [{}], [{"test": "x"}], {"a": 1}, None])
def test_a_curve_that_cannot_be_read_is_none_and_keeps_nothing_from_being_decided(broken: Any) -> None:
    world = two()
    world.judged("b", SOME).tick(600)
    version = world.versions["b"]
    state = {**version.status.state, "curves": broken}
    world.versions["b"] = replace(version, status=version.status.model_copy(update={"state": state}))
    assert curves_in(state) == ()
    world.judged("b", SOME).tick(600)
    assert [look.pairs for look in curve(world).looks] == [8]
