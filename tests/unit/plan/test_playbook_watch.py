"""The watch after a promotion, in every mode: what is compared, what is rolled back, and why nothing is."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playbook_bench import CANARY, WAIVED, World, digest_of

from combee.algo.tally import Pair, Tally
from combee.api.playbook import PlaybookSpec
from combee.gateway.directing import Wish
from combee.observe.gateway import served_of
from combee.observe.sweep import kept_of
from combee.plan.playbook.judges import JudgesSeen, VersionContent, decide_judges, judged_by_job
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.watch import mirrors, more_of, watched_by
from combee.records import Owner

BAD = [-0.5, 0.0, -0.3] * 40
GOOD = [0.0, 0.2, -0.1, 0.3] * 40
JUDGE = CANARY["evaluator"]
REQUESTS = {"requests": {"configMap": {"name": "asked", "key": "r"}}}
WATCHED: dict[str, dict[str, Any]] = {
    "Shadow": {**CANARY, "watchSeconds": 7200},
    "Replay": {**CANARY, "mode": "Replay", "replay": REQUESTS, "watchSeconds": 7200},
    "Manual": {**CANARY, "mode": "Manual", "watchSeconds": 7200},
    "waived": {**WAIVED, "epsilon": 0.05, "watchSeconds": 7200, "evaluator": JUDGE},
}
RUBRIC = {"criteria": ("It answers what was asked", "It is short")}
PLAIN = {"gateway": {"upstream": {"url": "http://llm/v1"}}}


def promoted(mode: str, **canary: Any) -> World:
    """``b`` was promoted over ``a`` as this mode promotes."""
    world = World().add("a").settle().change(canary={**WATCHED[mode], **canary})
    world.add("b", parent="a", origin={"rubric": RUBRIC})
    world.tick()
    if mode in ("Shadow", "Replay"):
        world.judged("b", GOOD)
    elif mode == "Manual":
        world.decide("b", "Approve")
    world.tick(100)
    assert world.active == "b" and world.versions["b"].status.promoted_by == "Gates"
    return world


@pytest.mark.parametrize("mode", WATCHED)
def test_what_falls_behind_is_rolled_back_in_every_mode(mode: str) -> None:
    world = promoted(mode)
    test = world.versions["b"].status.test
    assert test is not None and (test.kind, test.against) == ("Watch", digest_of("a"))
    assert test.mode == ("Replay" if mode == "Replay" else "Shadow")
    spec = PlaybookSpec.model_validate({"failureCost": "Low", "delivery": _delivery(), **world.spec})
    assert judged_by_job(spec) and mirrors(world.spec["canary"]) == (mode != "Replay")
    plan = world.judged("b", BAD).tick(10)
    assert (world.active, world.phases) == ("a", {"a": "Active", "b": "Refused"})
    assert [event.reason for event in plan.events] == ["Refused", "RolledBack"]
    assert world.versions["b"].status.refused_by == "Rollback"
    assert world.settle().active == "a"


@pytest.mark.parametrize(("seconds", "whole"), [(3600, False), (90_000, True)])
def test_it_says_that_it_saw_no_whole_day_only_where_it_did_not(seconds: int, whole: bool) -> None:
    world = promoted("Shadow", watchSeconds=172_800)
    world.judged("b", GOOD).tick(seconds)
    watch = world.versions["b"].status.watch
    assert watch is not None and watch.outcome == "Passed"
    assert ("no whole day was seen" in watch.message) is not whole


@pytest.mark.parametrize("mode", WATCHED)
def test_a_job_judges_it_and_is_told_who_is_compared_with_whom(mode: str) -> None:
    world = promoted(mode)
    spec = PlaybookSpec.model_validate({"failureCost": "Low", "delivery": _delivery(), **world.spec})
    contents = {digest_of(name): VersionContent(f"formula-{name}") for name in ("a", "b")}
    owner = Owner("formula", "team", "u-1")
    (wish,) = decide_judges(owner, spec, world.tick(), contents, JudgesSeen(), world.now).start
    task = wish.task()
    assert task.mode == ("Replay" if mode == "Replay" else "Shadow")
    assert (task.tested, task.against) == (digest_of("b"), digest_of("a"))
    assert task.evaluator is not None and task.evaluator.model == JUDGE["model"]
    assert (task.upstream is not None) == (task.requests is not None) == (mode == "Replay")
    assert task.rubric is not None and task.rubric.criteria == RUBRIC["criteria"]


@pytest.mark.parametrize(
    ("learned", "told"), [("Qwen/Qwen3-8B", True), (JUDGE["model"], False), ("", False), (None, False)]
)
@pytest.mark.parametrize("mode", ["Shadow", "Replay"])
def test_a_canary_and_a_watch_say_that_another_model_judges_than_was_calibrated(
    mode: str, learned: str | None, told: bool
) -> None:
    models = {} if learned is None else {"models": {"evaluator": learned}}
    world = World().add("a").settle().change(canary=WATCHED[mode])
    world.add("b", parent="a", origin={"rubric": RUBRIC, **models})
    (began,) = world.tick().events
    world.judged("b", GOOD)
    world.tick(100)
    canary = world.versions["b"].status.canary
    world.judged("b", GOOD).tick(10)
    watch = world.versions["b"].status.watch
    assert canary is not None and canary.outcome == "Passed" and watch is not None
    says = f"{JUDGE['model']} judges, and its run calibrated {learned}: how {JUDGE['model']} scores"
    for message in (began.message, canary.message, watch.message):
        assert (says in message) is told and ("is not shown" in message) is told


def test_without_a_rubric_any_model_may_judge() -> None:
    world = World().add("a").settle().change(canary=WATCHED["Shadow"])
    world.add("b", parent="a", origin={"models": {"evaluator": "Qwen/Qwen3-8B"}})
    (began,) = world.tick().events
    assert "is not shown" not in began.message


def rolls_back(world: World, reason: str, finding: str, **expense: float) -> None:
    """Four hundred answers as good, at that expense, are reason enough."""
    plan = world.judged("b", [0.0] * 400, **expense).tick(10)
    assert (world.active, world.versions["b"].status.refused_by) == ("a", "Rollback")
    assert [event.reason for event in plan.events] == ["Refused", "RolledBack"]
    watch = world.versions["b"].status.watch
    assert watch is not None and (watch.outcome, watch.reason) == ("Failed", reason)
    assert f"{finding} as those of the one before, n=500" in watch.message
    assert "more than 1.500 times is shown" in watch.message


@pytest.mark.parametrize("mode", WATCHED)
def test_what_answers_as_well_and_much_slower_is_rolled_back_in_every_mode(mode: str) -> None:
    world = promoted(mode)
    world.judged("b", [0.0] * 100, latency=1.2).tick(10)
    assert world.active == "b"
    rolls_back(world, "TooSlow", "answers take 3.14 times as long", latency=4.0)


@pytest.mark.parametrize("mode", WATCHED)
def test_what_answers_as_well_and_costs_much_more_is_rolled_back_in_every_mode(mode: str) -> None:
    world = promoted(mode, maxCostRatio=1.5)
    world.judged("b", [0.0] * 100, cost=1.4, latency=1.0).tick(10)
    watch = world.versions["b"].status.watch
    assert world.active == "b" and watch is not None
    assert watch.message.endswith("answers take 1.00 times as long; requests cost 1.40 times as much")
    rolls_back(world, "TooCostly", "requests cost 3.24 times as much", cost=4.0, latency=1.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.2, 5.0), min_size=20, max_size=200), st.floats(1.1, 5.0))
def test_a_cost_that_is_allowed_in_each_request_never_rolls_back(ratios: list[float], limit: float) -> None:
    world = promoted("waived", maxCostRatio=limit)
    for ratio in ratios:
        world.judged("b", [0.0], cost=min(ratio, limit))
    world.tick(10)
    assert world.active == "b"


def test_what_nobody_counts_the_tokens_of_is_not_rolled_back_for_them() -> None:
    """A stream's usage comes only where its client asks for it."""
    world = promoted("Shadow")
    world.judged("b", [0.0] * 400, latency=1.0).tick(10)
    watch = world.versions["b"].status.watch
    assert world.active == "b" and watch is not None and "cost" not in watch.message


def test_a_canary_does_not_promote_what_its_watch_would_roll_back_for_its_cost() -> None:
    world = World().add("a").settle().change(canary=WATCHED["Shadow"]).add("b", parent="a")
    world.tick()
    world.judged("b", GOOD, cost=3.5).tick(100)
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "TooCostly"))
    world.change(canary={**WATCHED["Shadow"], "maxCostRatio": 4.0}).tick()
    assert world.active == "b", "it may change at any time, and nothing begins anew"
    assert world.versions["b"].status.restarts == 0


def test_the_first_version_may_cost_more_than_no_playbook() -> None:
    world = World().change(canary=WATCHED["Shadow"]).add("a")
    world.tick()
    world.judged("a", GOOD, cost=50.0).tick(100)
    assert world.active == "a"


def test_one_answer_that_hangs_rolls_nothing_back_nor_does_a_ratio_that_is_allowed() -> None:
    world = promoted("Shadow")
    world.judged("b", [0.0] * 30, latency=1.0).judged("b", [0.0], latency=900.0).tick(10)
    assert world.active == "b"
    world = promoted("Shadow", maxLatencyRatio=50.0)
    world.judged("b", [0.0] * 500, latency=9.0).tick(10)
    assert world.active == "b"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0.01, 100)), max_size=60), st.randoms())
def test_what_is_known_of_an_expense_depends_on_no_order_and_counts_once(
    came: list[tuple[int, float]], luck: Random
) -> None:
    pairs = list({number: Pair("s", number, 0.0, ratio) for number, ratio in came}.values())
    shuffled = luck.sample(pairs, len(pairs))
    whole = Tally().with_pairs("w", more_of("latency", pairs))
    pieces = Tally()
    for pair in (*shuffled, *shuffled):
        pieces = pieces.with_pairs("w", more_of("latency", [pair]))
    assert pieces.counts == whole.counts
    for took in ({"latency": whole, "cost": Tally()}, {"latency": Tally(), "cost": whole}):
        memory = VersionMemory(expenses=took)
        assert VersionMemory.from_json(memory.to_json()) == memory
    assert VersionMemory.from_json({"slow": whole.to_json()}).expenses["latency"] == whole


@pytest.mark.parametrize("mode", WATCHED)
def test_it_ends_and_leaves_a_good_version(mode: str) -> None:
    world = promoted(mode)
    world.judged("b", GOOD).tick(10)
    assert world.status.watch is not None and world.status.watch.samples == len(GOOD)
    world.tick(7200)
    assert (world.active, world.versions["b"].status.test) == ("b", None)


@pytest.mark.parametrize("mode", WATCHED)
def test_of_none_it_is_not_asked(mode: str) -> None:
    world = promoted(mode, watchSeconds=0)
    assert world.versions["b"].status.test is None and world.status.watch is None


@pytest.mark.parametrize(
    ("canary", "delivery", "words"),
    [
        (None, None, "the Playbook has no canary"),
        ({**WAIVED}, None, "give canary.evaluator"),
        ({**WAIVED, "evaluator": JUDGE}, PLAIN, "delivery.gateway.enabled"),
        ({"mode": "Manual"}, None, "give canary.evaluator"),
    ],
    ids=["none", "waived, no judge", "waived, no gateway", "Manual, no judge"],
)
def test_what_cannot_be_watched_says_why(canary: Any, delivery: Any, words: str) -> None:
    world = World().add("a").settle().change(canary=canary, **({"delivery": delivery} if delivery else {}))
    world.add("b", parent="a").settle().decide("b", "Approve").settle()
    assert world.active == "b" and world.versions["b"].status.test is None
    watch = world.versions["b"].status.watch
    assert watch is not None and (watch.outcome, watch.reason) == (None, "NotWatched")
    assert words in watch.message and world.status.watch == watch
    assert world.tick(10).events == ()


@pytest.mark.parametrize("mode", ["Manual", "waived"])
def test_another_judge_begins_it_anew_though_none_promoted(mode: str) -> None:
    world = promoted(mode)
    world.judged("b", [-0.5] * 5).tick(10)
    old = world.versions["b"].status.test
    plan = world.change(canary={**WATCHED[mode], "evaluator": {**JUDGE, "model": "another"}}).tick()
    test = world.versions["b"].status.test
    assert old is not None and test is not None and test.id != old.id
    assert [event.reason for event in plan.events] == ["Restarted"]
    assert world.status.watch is not None and world.status.watch.samples == 0


def test_another_mode_begins_it_anew_and_no_pair_of_the_first_counts() -> None:
    world = promoted("Shadow")
    world.judged("b", [-0.5] * 5).tick(10)
    plan = world.change(canary=WATCHED["Replay"]).tick()
    assert [event.reason for event in plan.events] == ["Restarted"]
    assert world.status.watch is not None and world.status.watch.samples == 0
    assert world.judged("b", BAD).tick(10) and world.active == "a"


def test_the_epsilon_of_a_canary_that_froze_none_is_the_manifests() -> None:
    """Frozen is 0, and the slightest loss would roll it back."""
    world = promoted("waived", epsilon=0.1)
    world.judged("b", [-0.05] * 2000).tick(10)
    assert world.active == "b"
    world.judged("b", [-0.3] * 2000).tick(10)
    assert world.active == "a"


STEPS = st.tuples(
    st.sampled_from(sorted(WATCHED)),
    st.sampled_from(["bad", "good", "refuse previous", "refuse active", "wait", "next", "auto"]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_no_rollback_ever_goes_to_a_refused_version(steps: list[tuple[str, str]]) -> None:
    """Whatever the mode, and whoever refused it: a person, a gate or an earlier rollback."""
    world = promoted("Shadow").settle()
    for made, (mode, step) in enumerate(steps):
        world.change(canary=WATCHED[mode])
        active, previous = world.active, world.named(world.status.previous_digest)
        watched = world.versions[active].status.test if active else None
        if step in ("bad", "good") and watched is not None:
            world.judged(active, BAD if step == "bad" else GOOD)
        elif step == "refuse previous" and previous:
            world.decide(previous, "Refuse")
        elif step == "refuse active" and active:
            world.decide(active, "Refuse")
        elif step == "auto" and previous:
            world.decide(previous, "Auto")
        elif step == "next":
            world.add(f"c{made}c", parent=active).decide(f"c{made}c", "Approve")
        gone = {name for name, phase in world.phases.items() if phase == "Refused"}
        world.tick(8000 if step == "wait" else 10)
        assert world.active not in gone
        if world.active:
            assert world.phases[world.active] == "Active"
            assert world.versions[world.active].spec.decision != "Refuse"


def test_who_is_watched_how_is_one_rule() -> None:
    spec = PlaybookSpec.model_validate(
        {"canary": {"waived": "a demo", "evaluator": JUDGE}, "delivery": PLAIN}
    )
    mode, why = watched_by(spec)
    assert mode == "" and "delivery.gateway.enabled" in why


@pytest.mark.parametrize(
    ("canary", "kept"),
    [
        (None, False),
        ({"mode": "Shadow"}, True),
        ({"mode": "Manual", "watchSeconds": 60}, False),
        ({"mode": "Manual", "watchSeconds": 60, "evaluator": JUDGE}, True),
        ({"waived": "a demo", "watchSeconds": 60, "evaluator": JUDGE}, True),
        ({"waived": "a demo", "watchSeconds": 0, "evaluator": JUDGE}, False),
    ],
)
def test_gateway_store_and_sweeper_agree_on_who_mirrors_requests(canary: Any, kept: bool) -> None:
    meta = {"name": "formula", "namespace": "team", "uid": "u-1"}
    playbook = {"metadata": meta, "spec": {"canary": canary, "delivery": _delivery()}}
    served = served_of(playbook)
    assert served is not None and served.keeps_traffic == kept
    assert (kept_of(playbook) is not None) == Wish.of(playbook).shadows == kept


def _delivery() -> dict[str, Any]:
    return {"gateway": {"enabled": True, "upstream": {"url": "http://llm/v1"}}}
