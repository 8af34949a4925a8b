"""decide_playbook() as a table: what people do and what is measured, and which version is active then."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from playbook_bench import CANARY, GATEWAY, HELD_OUT, WAIVED, World, digest_of, gate

from combee.algo.tally import LeftOut
from combee.api.playbook import PlaybookSpec
from combee.api.playbook_status import Comparison, PlaybookStatus, Thresholds
from combee.methods.findings import Finding
from combee.plan.playbook import memory
from combee.plan.playbook.conditions import ORDER
from combee.plan.playbook.heldout import measured_on, version_verdict
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.serving import Version, Wanted, serving

GOOD = [0.0, 0.2, -0.1, 0.3] * 40
BAD = [-0.5, 0.0, -0.3] * 40
CALM = [0.0] * 15


def two(**canary: object) -> World:
    """``a`` is active, ``b`` was learned from it and must pass a canary."""
    world = World().add("a").settle().change(canary={**CANARY, **canary})
    return world.add("b", parent="a")


def unjudged() -> World:
    """``a`` is active, ``b`` was learned from it; heldOut alone decides."""
    return World().add("a").settle().add("b", parent="a")


def by_gates() -> World:
    """``b`` was promoted over ``a``."""
    return unjudged().settle()


# -- the gates -----------------------------------------------------------------------------------------


def test_the_first_version_that_passes_heldout_is_active_and_delivered() -> None:
    world = World().add("a")
    plan = world.tick()
    assert (world.active, world.phases) == ("a", {"a": "Active"})
    assert (plan.deliver.digest, plan.deliver.source) == (digest_of("a"), "formula-a00000000000")
    assert plan.deliver.config_map == "formula-playbook"
    assert [event.reason for event in plan.events] == ["CanaryWaived", "Promoted"]
    assert plan.wake_after_seconds == 1.0
    assert world.why("Ready") == ("False", "Delivering")
    world.tick()
    assert world.why("Ready") == ("True", "Delivered")
    assert world.why("CanaryPassed") == ("Unknown", "CanaryWaived")
    assert world.status.canary is not None and world.status.canary.outcome == "Waived"
    said = "+0.200 [0.145, 0.255] vs the start, n=200; corrected for passing +0.200"
    assert world.says("HeldOutPassed") == said
    assert world.status.shown.gain == "+0.200"


def test_what_kubectl_get_shows_of_a_canary_is_how_far_it_is_until_it_says() -> None:
    world = two().settle()
    assert world.status.shown.canary == "0 pairs"
    assert world.status.shown.candidate == digest_of("b")[:12]
    world.judged("b", CALM, within=(world.now, world.now + 60)).tick(61)
    verdict = world.status.canary
    assert verdict is not None and verdict.outcome == "Inconclusive" and verdict.needed is not None
    assert world.status.shown.canary == f"15/{15 + verdict.needed} pairs"
    world.judged("b", GOOD).tick(1800)
    world.settle()
    assert world.status.shown.canary == "Passed" and world.active == "b"


def test_a_better_version_replaces_the_active_one_which_is_kept() -> None:
    world = by_gates()
    assert (world.active, world.phases) == ("b", {"a": "Previous", "b": "Active"})
    assert world.named(world.status.previous_digest) == "a"
    assert world.why("Promoted", "b") == ("True", "ByGates")
    assert world.why("Promoted", "a") == ("False", "Superseded")


@pytest.mark.parametrize(
    ("better", "spec", "reason", "phase"),
    [
        (-0.2, {}, ("False", "NotBetter"), "Refused"),
        (0.0, {}, ("Unknown", "TooFewExamples"), "Inconclusive"),
        (0.2, {"heldOut": {"minScore": 0.8}}, ("False", "ScoreTooLow"), "Refused"),
        (0.2, {"heldOut": {"minScore": 0.7}}, ("True", "HeldOutPassed"), "Active"),
        (0.2, {"heldOut": {"minGain": 0.19}}, ("Unknown", "TooFewExamples"), "Inconclusive"),
        (0.2, {"heldOut": {"minGain": 0.3}}, ("False", "NotBetter"), "Refused"),
        (0.04, {"heldOut": {"minGain": -0.05}}, ("True", "HeldOutPassed"), "Active"),
        (None, {}, ("False", "NotMeasured"), "Inconclusive"),
    ],
)
def test_heldout(better: float | None, spec: dict[str, object], reason: tuple[str, str], phase: str) -> None:
    world = World().add("a").settle().change(**spec).add("b", parent="a", better=better).settle()
    assert world.why("HeldOutPassed", "b") == reason
    assert world.phases["b"] == phase
    assert world.active == ("b" if phase == "Active" else "a")
    assert world.status.candidate_digest == ""


def unshown(how: str) -> World:
    """``a`` is active; ``b`` meets every threshold of the Playbook, and its own run's gain can be chance."""
    world = World().add("a").settle()
    if how == "another base":
        world.add("c", parent="a", scores=gate(0.1, base=0.7)).settle()
        return world.add("b", parent="a", scores=gate(0.01, base=0.85)).settle()
    if how == "confidence":
        return world.change(heldOut={"confidence": 0.8}).add("b", parent="a", better=0.025).settle()
    world.change(heldOut={"minGain": -0.05})
    if how == "minGain":
        return world.add("b", parent="a", better=0.01).settle()
    record = {"baseline": 0.6, "best": 0.61, "low": 0.0, "high": 0.03, "rows": 300, "discordant": 3}
    origin = {"dataDigests": {"heldOut": HELD_OUT}}
    spec = world.add("b", parent="a", better=None, origin=origin).versions["b"].spec
    recorded = type(spec).model_validate({**spec.dump(), "scores": {"gate": record}})
    return world.change_version("b", spec=recorded).settle()


UNSHOWN = ("minGain", "confidence", "another base", "record alone")


@pytest.mark.parametrize("canary", [False, True], ids=["heldOut alone", "canary"])
@pytest.mark.parametrize("how", UNSHOWN)
def test_a_gain_that_chance_could_make_passes_no_gate_whatever_its_thresholds(how: str, canary: bool) -> None:
    world = unshown(how)
    if canary:
        world.change(canary=CANARY).settle()
    assert (world.active, world.phases["b"]) == ("c" if how == "another base" else "a", "Inconclusive")
    assert world.why("HeldOutPassed", "b") == ("Unknown", "TooFewExamples")
    assert world.why("Promoted", "b") == ("False", "Inconclusive")
    assert "its own run's gain, +0.0" in world.says("HeldOutPassed", "b")
    assert "can be chance" in world.says("Promoted", "b")
    verdict = world.versions["b"].status.held_out
    assert verdict is not None and verdict.needed is not None and verdict.needed > 0


@pytest.mark.parametrize("how", UNSHOWN)
def test_a_person_promotes_or_pins_it_all_the_same(how: str) -> None:
    assert unshown(how).decide("b", "Promote").settle().active == "b"
    assert unshown(how).change(version={"pinnedDigest": digest_of("b")}).settle().active == "b"


def test_the_record_of_a_version_will_do_where_its_configmap_has_no_scores() -> None:
    scores = {"gate": {"baseline": 0.64, "best": 0.861, "low": 0.18, "high": 0.26, "rows": 300}}
    world = World().change(heldOut={"minScore": 0.85})
    world.add("a", better=None, origin={"dataDigests": {"heldOut": HELD_OUT}})
    version = world.versions["a"]
    recorded = type(version.spec).model_validate({**version.spec.dump(), "scores": scores})
    world.change_version("a", spec=recorded).settle()
    assert world.active == "a"
    assert world.says("HeldOutPassed").startswith("0.861 >= 0.850")
    assert world.status.held_out_digest == HELD_OUT


@pytest.mark.parametrize("kind", ["leak", "injection"])
def test_what_holds_private_data_or_orders_is_refused(kind: str) -> None:
    finding = Finding(kind, "b7", "it seems to hold an e-mail address")  # type: ignore[arg-type]
    world = World().add("a").settle().add("b", parent="a", findings=[finding]).settle()
    assert (world.active, world.phases["b"]) == ("a", "Refused")
    assert world.why("HeldOutPassed", "b") == ("False", "LeakFound" if kind == "leak" else "InjectionFound")
    assert "b7: it seems to hold an e-mail address" in world.says("Promoted", "b")


def test_content_that_was_not_looked_at_waits() -> None:
    world = World().add("a").settle().add("b", parent="a", findings=None).settle()
    assert (world.active, world.phases["b"]) == ("a", "Candidate")
    assert world.why("HeldOutPassed", "b") == ("Unknown", "NotLookedAt")
    world.change_version("b", findings=()).settle()
    assert world.active == "b"


def test_a_version_without_content_waits_and_says_so() -> None:
    world = World().add("a").settle().add("b", parent="a").change_version("b", has_content=False).settle()
    assert (world.active, world.why("Promoted", "b")) == ("a", ("False", "ContentMissing"))
    world.change_version("b", has_content=True).settle()
    assert world.active == "b"


# -- another base, another heldOut ---------------------------------------------------------------------


def test_a_candidate_of_another_base_is_compared_with_todays_active_one() -> None:
    world = World().add("a").settle().add("b", parent="a", scores=gate(0.1, base=0.7)).settle()
    assert world.active == "b"
    world.add("c", parent="a", scores=gate(0.05, base=0.7)).settle()
    assert world.active == "b"
    assert world.phases["c"] == "Refused"
    assert "StaleBase: learned from a00000000000, compared with today's active" in world.says(
        "HeldOutPassed", "c"
    )
    world.add("d", parent="a", scores=gate(0.2, base=0.7)).settle()
    assert world.active == "d"
    assert world.says("HeldOutPassed", "d").startswith("+0.100 [")


def test_another_base_that_cannot_be_compared_is_not_promoted() -> None:
    world = by_gates()
    world.change_version("b", gate=None).add("c", parent="a").settle()
    assert (world.active, world.phases["c"]) == ("b", "Inconclusive")
    assert world.why("HeldOutPassed", "c") == ("False", "StaleBase")


@pytest.mark.parametrize(
    ("ways", "active"),
    [(("accuracy, pass^4 of 8 rollouts", "accuracy"), "b"), (("tokenF1", "tokenF1"), "c")],
    ids=["passK was taken away", "the same way"],
)
def test_scores_of_two_ways_are_not_compared(ways: tuple[str, str], active: str) -> None:
    """Without it taking ``passK`` away promotes any candidate: pass^4 is under pass^1."""
    before, after = replace(gate(0.2), scored_by=ways[0]), replace(gate(0.4), scored_by=ways[1])
    world = World().add("a", scores=replace(gate(0.2), scored_by=ways[0])).settle()
    world.add("b", parent="a", scores=before).settle().add("c", parent="a", scores=after).settle()
    assert world.active == active
    if active == "b":
        assert world.why("HeldOutPassed", "c") == ("False", "StaleBase")
        said = f"it was scored by {ways[1]}, and the active one by {ways[0]}"
        assert said in world.says("HeldOutPassed", "c")


@pytest.mark.parametrize(("criteria", "active"), [("It is short.", "c"), ("It is long.", "b")])
def test_scores_by_the_criteria_of_two_rubrics_are_not_compared(criteria: str, active: str) -> None:
    """Also of versions that an earlier release made: their criteria stand in their spec."""
    short, other = ({"origin": {"rubric": {"criteria": [one]}}} for one in ("It is short.", criteria))
    scores = [replace(gate(better), scored_by="rubric") for better in (0.2, 0.2, 0.4)]
    world = World().add("a", scores=scores[0], **short).settle()
    world.add("b", parent="a", scores=scores[1], **short).settle()
    world.add("c", parent="a", scores=scores[2], **other).settle()
    assert world.active == active
    if active == "b":
        assert world.why("HeldOutPassed", "c") == ("False", "StaleBase")
        assert "by the criteria of different rubrics" in world.says("HeldOutPassed", "c")


def test_a_heldout_that_moved_refuses_the_comparison_until_it_is_named() -> None:
    moved = "f" * 64
    world = World().add("a").settle().add("b", parent="a", scores=gate(0.2, held_out=moved)).settle()
    assert (world.active, world.phases["b"]) == ("a", "Inconclusive")
    assert world.why("HeldOutPassed", "b") == ("False", "HeldOutMoved")
    assert moved in world.says("HeldOutPassed", "b")
    world.change(heldOut={"digest": moved}).settle()
    assert world.active == "b"
    assert world.status.held_out_digest == moved


@pytest.mark.parametrize("named", [True, False])
def test_scores_on_a_heldout_that_nobody_named_are_not_compared(named: bool) -> None:
    """The version says how it scored, and not on what."""
    scores = {"gate": {"baseline": 0.64, "best": 0.861, "low": 0.18, "high": 0.26, "rows": 300}}
    world = World().add("a").settle()
    if named:
        world.change(heldOut={"digest": HELD_OUT})
    world.add("b", parent="a", better=None).settle()
    spec = world.add("c", parent="a", better=None).versions["c"].spec
    told = type(spec).model_validate({**spec.dump(), "scores": scores})
    world.change_version("c", spec=told).settle()
    assert (world.active, world.phases["c"]) == ("a", "Inconclusive")
    assert world.why("HeldOutPassed", "c") == ("False", "HeldOutMoved")
    assert "nobody said which one it was scored on" in world.says("HeldOutPassed", "c")
    # Without scores it is still that which is said.
    assert world.why("HeldOutPassed", "b") == ("False", "NotMeasured")


# -- the canary ----------------------------------------------------------------------------------------


def test_a_canary_begins_with_frozen_thresholds_and_tells_the_gateway_what_to_do() -> None:
    world = two(epsilon=0.05, trafficPercent=10)
    plan = world.tick()
    (wish,) = plan.canaries
    assert wish.comparison == world.versions["b"].status.test
    assert (wish.comparison.kind, wish.comparison.mode, wish.comparison.against) == (
        "Promotion",
        "Shadow",
        digest_of("a"),
    )
    assert wish.comparison.traffic_percent == 10
    assert (wish.comparison.since, wish.comparison.until) == (f"t{world.now:.0f}", f"t{world.now + 3600:.0f}")
    assert world.versions["b"].status.thresholds is not None
    assert (world.active, world.status.candidate_digest) == ("a", digest_of("b"))
    assert world.why("CanaryPassed") == ("Unknown", "NoTraffic")
    assert plan.wake_after_seconds == 60


def test_a_good_candidate_is_promoted_when_pairs_and_time_are_enough() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD).tick(30)
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "TooEarly"))
    world.tick(31)
    assert world.active == "b"
    assert world.why("CanaryPassed", "b") == ("True", "CanaryPassed")
    assert "vs active, n=160: the lower end is above -0.050" in world.says("CanaryPassed", "b")


def test_a_candidate_that_is_worse_on_traffic_is_refused_at_once() -> None:
    world = two()
    world.tick()
    plan = world.judged("b", BAD).tick(1)
    assert (world.active, world.phases["b"]) == ("a", "Refused")
    assert world.versions["b"].status.refused_by == "Gates"
    assert world.why("CanaryPassed", "b") == ("False", "CanaryWorse")
    assert [event.reason for event in plan.events] == ["Refused"]
    assert plan.canaries == ()


def test_too_little_traffic_is_inconclusive_at_the_deadline_and_says_how_much_came() -> None:
    world = two()
    world.tick()
    world.judged("b", CALM).tick(1800)
    assert (world.active, world.phases["b"]) == ("a", "Candidate")
    assert "more pairs are needed" in world.says("CanaryPassed")
    world.tick(1800)
    assert (world.active, world.phases["b"]) == ("a", "Inconclusive")
    assert world.why("CanaryPassed", "b") == ("False", "DeadlineExceeded")
    assert "the deadline of 1 h is over with 15 pairs" in world.says("CanaryPassed", "b")
    before = world.versions["b"].status
    world.tick(10_000)
    assert world.versions["b"].status == before


def test_no_traffic_never_passes() -> None:
    world = two(durationSeconds=0)
    for _ in range(5):
        world.tick(600)
    assert (world.active, world.phases["b"]) == ("a", "Candidate")
    world.tick(3600)
    assert (world.active, world.phases["b"]) == ("a", "Inconclusive")


def test_slow_answers_are_not_promoted() -> None:
    world = two(maxLatencyRatio=1.5)
    world.tick()
    world.judged("b", GOOD, latency=2.0).tick(100)
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "TooSlow"))


def test_a_candidate_whose_hours_do_not_agree_is_unstable_and_waits() -> None:
    """It is better at first and worse in the end; its pairs alone would pass it."""
    world = two(deadlineSeconds=120)
    world.tick()
    since = world.now
    for part, difference in enumerate((0.2, 0.1, -0.05, -0.1)):
        within = since + 15 * part, since + 15 * (part + 1)
        world.judged("b", [difference, 0.0] * 200, within=within)
    world.tick(65)
    assert (world.active, world.phases["b"]) == ("a", "Candidate")
    assert world.why("CanaryPassed") == ("Unknown", "Unstable")
    assert "the mean moves with time, from -0.050 to 0.100" in world.says("CanaryPassed")
    world.tick(60)
    assert (world.active, world.phases["b"]) == ("a", "Inconclusive")
    assert world.why("CanaryPassed", "b") == ("False", "DeadlineExceeded")
    assert "the mean moves with time" in world.says("CanaryPassed", "b")


def test_requests_that_are_repeated_have_no_hours_to_agree() -> None:
    world = two(mode="Replay", replay={"requests": {"configMap": {"name": "asked", "key": "r.jsonl"}}})
    world.tick()
    world.judged("b", GOOD, within=(world.now, world.now + 1)).tick(61)
    assert world.active == "b"
    assert "no whole day was seen" in world.says("CanaryPassed", "b")


def test_pairs_that_came_all_at_once_tell_nothing_of_time() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD, within=(world.now, world.now + 1)).tick(61)
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "TooEarly"))
    assert "by blocks of 2.5 s: 1 of the 8 that are needed at least have pairs" in world.says("CanaryPassed")
    world.judged("b", GOOD, within=(world.now, world.now + 60)).tick(90)
    assert world.active == "b"


def test_changed_thresholds_begin_the_canary_anew_and_say_so() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD)
    old = world.versions["b"].status.test
    world.change(canary={**CANARY, "epsilon": 0.1})
    plan = world.tick(100)
    test = world.versions["b"].status.test
    assert old is not None and test is not None and test.id != old.id
    assert world.active == "a"
    assert world.versions["b"].status.restarts == 1
    assert [event.reason for event in plan.events] == ["Restarted"]
    assert "epsilon 0.05 -> 0.1" in plan.events[0].message
    world.judged("b", GOOD).tick(61)
    assert world.active == "b"


def test_more_traffic_is_no_change_of_thresholds() -> None:
    world = two()
    world.tick()
    plan = world.change(canary={**CANARY, "trafficPercent": 50}).tick()
    assert plan.events == ()
    assert plan.canaries[0].comparison.traffic_percent == 50
    assert world.versions["b"].status.restarts == 0


def test_pairs_of_another_test_do_not_count() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD)
    world.pairs = {"another": world.pairs.popitem()[1]}
    world.tick(100)
    assert world.active == "a"
    assert world.plan().canaries[0].pairs == 0


def test_pairs_handed_in_piece_by_piece_and_twice_give_the_same() -> None:
    whole, pieces = two(), two()
    for world in (whole, pieces):
        world.tick()
    whole.judged("b", GOOD[:40]).tick(10)
    for difference in GOOD[:40]:
        pieces.judged("b", [difference]).tick(0)
        pieces.tick(0)
    pieces.tick(10)
    assert pieces.versions["b"].status.canary == whole.versions["b"].status.canary


def test_a_manual_canary_waits_for_somebody() -> None:
    world = two(mode="Manual")
    world.tick(100)
    assert world.why("CanaryPassed") == ("Unknown", "WaitingForApproval")
    world.decide("b", "Approve").settle()
    assert (world.active, world.why("CanaryPassed", "b")) == ("b", ("True", "Approved"))


def test_approval_does_not_help_where_heldout_fails() -> None:
    world = World().add("a").settle().change(canary={**CANARY, "mode": "Manual"})
    world.add("b", parent="a", better=-0.2).decide("b", "Approve").settle()
    assert (world.active, world.phases["b"]) == ("a", "Refused")


def test_a_canary_that_is_not_being_judged_says_why_once() -> None:
    world = two().settle()
    test = world.versions["b"].status.test
    assert test is not None
    world.not_judged = {test.id: "pod x died: the evaluator answers 401"}
    plan = world.tick()
    assert [(one.kind, one.reason) for one in plan.events] == [("Warning", "NotJudged")]
    assert "the evaluator answers 401" in plan.events[0].message
    assert world.why("CanaryPassed") == world.why("CanaryPassed", "b") == ("Unknown", "NotJudged")
    assert "not judged: pod x died: the evaluator answers 401" in world.says("CanaryPassed")
    assert world.tick().events == ()
    # It goes on where it was once somebody mended it, and pairs that came meanwhile count.
    world.not_judged = {}
    world.judged("b", CALM).tick()
    assert world.why("CanaryPassed") == ("Unknown", "NeedPairs")
    world.not_judged = {test.id: "the evaluator answers 401"}
    world.tick(7200)
    assert world.phases["b"] == "Inconclusive" and "answers 401" in world.says("CanaryPassed", "b")


OTHER_JUDGES = [
    {"url": "http://judge/v1", "model": "another"},
    {"url": "http://elsewhere/v1", "model": "judge"},
    {"url": "http://judge/v1", "model": "judge", "revision": "2"},
]


@pytest.mark.parametrize("judge", OTHER_JUDGES)
def test_another_evaluator_begins_the_canary_anew_and_says_so(judge: dict[str, str]) -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD).tick(10)
    old = world.versions["b"].status.test
    plan = world.change(canary={**CANARY, "evaluator": judge}).tick(100)
    test = world.versions["b"].status.test
    assert old is not None and test is not None and test.id != old.id
    assert (world.active, world.versions["b"].status.restarts) == ("a", 1)
    assert [event.reason for event in plan.events] == ["Restarted"]
    assert "evaluator judge at http://judge/v1 -> " in plan.events[0].message
    assert judge["model"] in plan.events[0].message and judge["url"] in plan.events[0].message
    # No score of the first judge is left, not even what comes late.
    assert plan.canaries[0].pairs == 0
    world.tick(100)
    assert world.plan().canaries[0].pairs == 0 and world.active == "a"
    world.judged("b", GOOD).tick()
    assert world.active == "b"


def test_another_secret_of_the_same_evaluator_is_no_change() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD[:8]).tick(1)
    keyed = {**CANARY["evaluator"], "apiKeySecretRef": {"name": "other", "key": "token"}}
    plan = world.change(canary={**CANARY, "evaluator": keyed}).tick()
    assert plan.events == () and plan.canaries[0].pairs == 8


def test_another_evaluator_gives_what_could_not_be_told_another_canary() -> None:
    world = two()
    world.tick()
    world.tick(3600)
    assert world.phases["b"] == "Inconclusive"
    world.change(canary={**CANARY, "evaluator": OTHER_JUDGES[0]}).tick()
    assert world.phases["b"] == "Candidate" and world.versions["b"].status.test is not None


def test_a_test_begun_by_an_earlier_operator_goes_on_and_its_judge_is_recorded() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD[:8]).tick(1)
    version = world.versions["b"]
    frozen, test = version.status.thresholds, version.status.test
    assert frozen is not None and frozen.evaluator == "judge at http://judge/v1"
    # As it was written before judges were recorded: another digest, which names the test.
    old = frozen.model_copy(update={"evaluator": "", "digest": ""})
    told = json.dumps({**old.dump(), "digest": "", "heldOut": ""}, sort_keys=True, separators=(",", ":"))
    for name in ("evaluator", "asked"):
        told = told.replace(f'"{name}":"",', "")
    old = old.model_copy(update={"digest": hashlib.sha256(told.encode()).hexdigest()})
    assert test is not None
    before = test.model_copy(update={"id": test.id.replace(frozen.digest[:8], old.digest[:8])})
    world.pairs = {before.id: world.pairs[test.id]}
    status = version.status.model_copy(update={"thresholds": old, "test": before})
    world.change_version("b", status=status)
    plan = world.tick()
    assert plan.events == () and plan.canaries[0].pairs == 8 and plan.canaries[0].comparison.id == before.id
    recorded = world.versions["b"].status.thresholds
    assert recorded is not None and recorded.evaluator == "judge at http://judge/v1"
    assert world.tick().events == ()
    # From then on another judge is noticed.
    plan = world.change(canary={**CANARY, "evaluator": OTHER_JUDGES[0]}).tick()
    assert [event.reason for event in plan.events] == ["Restarted"]


REPLAY: dict[str, Any] = {
    **CANARY,
    "mode": "Replay",
    "replay": {"requests": {"configMap": {"name": "asked", "key": "r"}}},
}


def test_other_requests_or_another_upstream_begin_a_replay_anew() -> None:
    world = two(**REPLAY)
    world.tick()
    other = {**REPLAY, "replay": {"requests": {"configMap": {"name": "other", "key": "r"}}}}
    plan = world.change(canary=other).tick()
    assert "the requests or the upstream changed" in plan.events[0].message
    plan = world.change(delivery={"gateway": {"upstream": {"url": "http://elsewhere/v1"}}}).tick()
    assert "the requests or the upstream changed" in plan.events[0].message
    assert world.versions["b"].status.restarts == 2


def test_requests_that_the_upstream_refuses_are_named_and_handed_on() -> None:
    world = two(**REPLAY)
    world.tick()
    test = world.versions["b"].status.test
    assert test is not None
    world.judged("b", CALM)
    world.left_out = {test.id: (LeftOut("replay", 0, 400), LeftOut("replay", 3, 404))}
    for _ in range(2):
        world.tick()
        assert "2 requests are left out: the upstream refuses them (400: 1, 404: 1)" in world.says(
            "CanaryPassed"
        )
    memory = VersionMemory.from_json(world.versions["b"].status.state)
    assert memory.tally.spans["replay"] == ((0, 0), (3, 3)) and memory.tally.pairs == len(CALM)
    world.left_out = {}
    world.tick(7200)
    assert world.phases["b"] == "Inconclusive"
    assert "2 requests are left out" in world.says("CanaryPassed", "b")


def test_a_canary_that_can_hardly_be_decided_is_warned_of() -> None:
    shadow = {"mode": "Shadow", "evaluator": CANARY["evaluator"]}
    plan = World().change(canary=shadow).plan()
    assert len(plan.status.warnings) == 1
    assert "canary.epsilon 0.005" in plan.status.warnings[0]
    few = {**shadow, "expectedRequestsPerDay": 28_800}
    (said,) = World().change(canary=few).plan().status.warnings
    assert "about 4,320 come before the deadline: epsilon 0.020 can be decided" in said
    enough = {**shadow, "epsilon": 0.02, "expectedRequestsPerDay": 28_800}
    assert World().change(canary=enough).plan().status.warnings == ()
    none = {**shadow, "expectedRequestsPerDay": 10}
    undecided, too_few = World().change(canary=none).plan().status.warnings
    assert "no epsilon that failureCost Low allows can be decided" in undecided
    # What is proposed is taken: 10,000 pairs can decide 0.015, and failureCost High wants 0.005.
    strict = {**shadow, "minSamples": 1000, "durationSeconds": 604_800, "deadlineSeconds": 604_800}
    some = World().change(failureCost="High", canary={**strict, "expectedRequestsPerDay": 28_800}).plan()
    assert "no epsilon that failureCost High allows can be decided" in some.status.warnings[0]
    assert too_few == "canary.minSamples 200: about 1 come before the deadline"


# -- several candidates --------------------------------------------------------------------------------


def test_the_latest_candidate_is_tested_and_older_ones_are_superseded() -> None:
    world = World().add("a").settle().change(canary=CANARY)
    world.add("b", parent="a").add("c", parent="a").settle()
    assert world.phases == {"a": "Active", "b": "Superseded", "c": "Candidate"}
    world.add("d", parent="a").settle()
    assert world.named(world.status.candidate_digest) == "c"
    assert world.why("Promoted", "d") == ("Unknown", "Waiting")


def test_the_next_candidate_follows_in_the_same_tick() -> None:
    world = two()
    world.tick()
    world.add("c", parent="a").tick()
    world.judged("b", BAD)
    world.tick(10)
    assert world.phases["b"] == "Refused"
    assert world.named(world.status.candidate_digest) == "c"


# -- people --------------------------------------------------------------------------------------------


def test_refusing_the_active_version_brings_the_previous_one_back_at_once() -> None:
    world = by_gates().decide("b", "Refuse")
    plan = world.tick()
    assert (world.active, world.phases) == ("a", {"a": "Active", "b": "Refused"})
    assert plan.deliver.source == "formula-a00000000000"
    assert [event.reason for event in plan.events] == ["Refused", "RolledBack"]
    assert world.why("Promoted", "a") == ("True", "ByRollback")
    assert [(e.event, e.by) for e in world.status.history][-2:] == [
        ("Refused", "Decision"),
        ("RolledBack", "Rollback"),
    ]


def test_one_can_roll_back_step_by_step_and_then_nothing_is_left() -> None:
    world = by_gates().add("c", parent="b").settle()
    assert world.active == "c"
    for name, left in (("c", "b"), ("b", "a"), ("a", "")):
        world.decide(name, "Refuse").settle()
        assert world.active == left
    assert world.why("Ready") == ("True", "NothingActive")
    assert world.delivered == ""


def test_what_was_refused_stays_refused_when_the_decision_is_taken_back() -> None:
    world = by_gates().decide("b", "Refuse").settle().decide("b", "Auto").settle()
    assert (world.active, world.phases["b"]) == ("a", "Refused")
    world.decide("b", "Promote").settle()
    assert (world.active, world.phases["b"]) == ("b", "Active")
    world.decide("b", "Auto").settle()
    assert world.active == "b"


def test_what_was_refused_stays_refused_when_its_version_is_made_anew() -> None:
    world = by_gates().decide("b", "Refuse").settle()
    made = world.versions.pop("b")
    world.settle()
    world.add("b", parent="a").settle()
    assert world.versions["b"].spec.decision == "Auto"
    assert made.name == world.versions["b"].name
    assert (world.active, world.phases["b"]) == ("a", "Refused")


def test_the_gateway_does_not_serve_what_was_refused_and_made_anew() -> None:
    """Not even where the operator is down: the pin that is still there does not count."""
    world = by_gates().change(version={"pinnedDigest": digest_of("b")}).settle()
    world.decide("b", "Refuse").settle()
    del world.versions["b"]
    world.settle().add("b", parent="a")
    playbook = {"spec": {"version": {"pinnedDigest": digest_of("b")}}, "status": world.status.dump()}
    made = [Version(v.digest, phase=str(v.status.phase), created=v.created) for v in world.versions.values()]
    assert serving(Wanted.of(playbook), made) == digest_of("a")


def test_a_playbook_that_is_applied_again_finds_what_was_active_and_refused() -> None:
    world = by_gates().add("c", parent="b").settle().decide("c", "Refuse").settle()
    before = (world.active, world.phases, world.delivered)
    world.status = type(world.status)()
    plan = world.tick()
    assert plan.events == ()
    assert plan.deliver.current
    world.settle()
    assert (world.active, world.phases, world.delivered) == before
    world.decide("c", "Auto").settle()
    assert world.active == "b"


def test_a_pin_is_followed_whatever_the_gates_say() -> None:
    world = World().add("a").settle().add("b", parent="a", better=-0.2).settle()
    assert world.phases["b"] == "Refused"
    world.change(version={"pinnedDigest": digest_of("b")}).settle()
    assert (world.active, world.why("Pinned")) == ("b", ("True", "Pinned"))
    world.change(version={}).settle()
    assert (world.active, world.why("Pinned")) == ("b", ("False", "NotPinned"))


@pytest.mark.parametrize("decision", ["Refuse", "Auto"])
def test_a_pin_to_a_refused_version_changes_nothing(decision: str) -> None:
    world = by_gates().decide("b", "Refuse").settle().decide("b", decision)
    world.change(version={"pinnedDigest": digest_of("b")}).settle()
    assert (world.active, world.why("Pinned")) == ("a", ("False", "PinnedRefused"))


def test_a_refusal_comes_before_the_pin() -> None:
    world = by_gates().change(version={"pinnedDigest": digest_of("b")}).settle()
    world.decide("b", "Refuse").settle()
    assert (world.active, world.why("Pinned")) == ("a", ("False", "PinnedRefused"))


def test_a_pin_to_a_version_that_is_not_there_changes_nothing() -> None:
    world = by_gates().change(version={"pinnedDigest": digest_of("9")}).settle()
    assert (world.active, world.why("Pinned")) == ("b", ("False", "PinnedUnknown"))


def test_while_a_pin_holds_nothing_else_is_promoted() -> None:
    world = by_gates().change(version={"pinnedDigest": digest_of("a")}).settle()
    world.add("c", parent="a").settle()
    assert (world.active, world.why("Promoted", "c")) == ("a", ("False", "HeldByPin"))
    world.change(version={}).settle()
    assert world.active == "c"


def test_a_pin_comes_before_a_promotion_by_name() -> None:
    world = by_gates().change(version={"pinnedDigest": digest_of("a")}).decide("b", "Promote").settle()
    assert world.active == "a"
    world.change(version={}).settle()
    assert (world.active, world.why("Promoted", "b")) == ("b", ("True", "ByDecision"))


def test_a_promotion_by_name_comes_before_the_gates_and_holds() -> None:
    world = two(epsilon=0.05)
    world.tick()
    world.decide("b", "Promote").settle()
    assert (world.active, world.versions["b"].status.test) == ("b", None)
    world.add("c", parent="b").settle()
    assert (world.active, world.why("Promoted", "c")) == ("b", ("False", "HeldByDecision"))


def test_with_manual_policy_a_good_candidate_waits_for_somebody() -> None:
    world = World().add("a").settle().change(version={"policy": "Manual"}).add("b", parent="a").settle()
    assert (world.active, world.why("Promoted", "b")) == ("a", ("False", "WaitingForDecision"))
    assert world.why("CanaryPassed", "b") == ("Unknown", "CanaryWaived")


@pytest.mark.parametrize(("canary", "reason"), [(None, "NoCanary"), (WAIVED, "CanaryWaived")])
def test_a_version_that_heldout_refuses_did_not_pass_a_canary_that_is_not_there(
    canary: dict[str, str] | None, reason: str
) -> None:
    world = World().add("a").settle().change(canary=canary).add("b", parent="a", better=-0.2).settle()
    assert world.why("HeldOutPassed", "b") == ("False", "NotBetter")
    assert world.why("CanaryPassed", "b") == ("Unknown", reason)


def test_a_canary_that_is_added_later_asks_traffic_about_a_version_that_waits() -> None:
    world = World().add("a").settle().change(version={"policy": "Manual"}).add("b", parent="a").settle()
    world.change(canary=CANARY).settle()
    assert (world.active, world.why("CanaryPassed", "b")) == ("a", ("Unknown", "NoTraffic"))
    world.change(canary=WAIVED).settle()
    assert world.why("CanaryPassed", "b") == ("Unknown", "CanaryWaived")
    assert world.why("Promoted", "b") == ("False", "WaitingForDecision")
    world.decide("b", "Promote").settle()
    assert world.active == "b"


def test_a_passed_canary_is_not_begun_again_while_it_waits_for_somebody() -> None:
    world = World().add("a").settle().change(version={"policy": "Manual"}, canary=CANARY)
    world.add("b", parent="a").tick()
    world.judged("b", GOOD).tick(100)
    plan = world.tick(5000)
    assert (world.phases["b"], plan.canaries) == ("Candidate", ())
    assert world.why("CanaryPassed", "b") == ("True", "CanaryPassed")


# -- the watch -----------------------------------------------------------------------------------------


def watched() -> World:
    world = two(watchSeconds=7200)
    world.tick()
    world.judged("b", GOOD).tick(100)
    assert world.active == "b"
    return world


def test_what_falls_under_its_floor_after_promotion_is_rolled_back() -> None:
    world = watched()
    test = world.versions["b"].status.test
    assert test is not None
    assert (test.kind, test.against) == ("Watch", digest_of("a"))
    plan = world.judged("b", BAD).tick(10)
    assert (world.active, world.phases) == ("a", {"a": "Active", "b": "Refused"})
    assert [event.reason for event in plan.events] == ["Refused", "RolledBack"]
    assert world.versions["b"].status.refused_by == "Rollback"
    assert world.why("Promoted", "b") == ("False", "RolledBack")
    world.settle()
    world.change(version={"pinnedDigest": digest_of("b")}).settle()
    assert (world.active, world.why("Pinned")) == ("a", ("False", "PinnedRefused"))


@pytest.mark.parametrize("judge", OTHER_JUDGES)
def test_another_evaluator_begins_the_watch_anew_and_says_so(judge: dict[str, str]) -> None:
    world = watched()
    world.judged("b", [-0.5] * 5).tick(10)
    old, canary = world.versions["b"].status.test, world.versions["b"].status.canary
    assert old is not None and world.status.watch is not None and world.status.watch.samples == 5
    plan = world.change(canary={**CANARY, "watchSeconds": 7200, "evaluator": judge}).tick()
    test = world.versions["b"].status.test
    assert test is not None and (test.kind, test.against) == ("Watch", digest_of("a")) and test.id != old.id
    assert [event.reason for event in plan.events] == ["Restarted"]
    assert "the watch over b00000000000 begins anew: evaluator judge at" in plan.events[0].message
    assert world.status.watch is not None and world.status.watch.samples == 0
    assert world.versions["b"].status.canary == canary, "what promoted it is not forgotten"
    assert world.tick().events == ()
    world.judged("b", BAD).tick(10)
    assert world.active == "a"


def test_the_watch_ends_and_leaves_a_good_version() -> None:
    world = watched()
    world.judged("b", GOOD).tick(10)
    assert world.status.watch is not None
    assert world.status.watch.samples == len(GOOD)
    world.tick(7200)
    assert (world.active, world.versions["b"].status.test) == ("b", None)


def test_what_a_person_made_active_is_not_watched() -> None:
    world = two(watchSeconds=7200)
    world.tick()
    world.decide("b", "Promote").settle()
    assert world.versions["b"].status.test is None


# -- what stays and what goes --------------------------------------------------------------------------


def test_nothing_takes_the_place_of_content_that_is_not_refused() -> None:
    world = World(delivered=digest_of("9"))
    plan = world.tick()
    assert (plan.deliver.digest, plan.deliver.current) == (digest_of("9"), True)
    assert "still holds 900000000000" in world.says("Ready")
    assert World().tick().deliver.digest == ""


def test_an_active_version_whose_configmap_is_gone_stays_while_it_is_delivered() -> None:
    world = by_gates().change_version("b", has_content=False).settle()
    assert world.active == "b"
    world.delivered = None
    world.settle()
    assert world.active == "a"


def test_old_versions_go_and_refused_ones_never_do() -> None:
    world = World().change(version={"historyLimit": 1})
    names = ["a", "b", "c", "d", "e", "f"]
    world.add("a").settle()
    for before, name in pairwise(names):
        world.add(name, parent=before).settle()
        if name in ("b", "c"):
            world.decide(name, "Refuse").settle()
    assert {"b", "c"} <= set(world.phases)
    assert world.phases["b"] == world.phases["c"] == "Refused"
    assert list(world.phases.values()).count("Superseded") <= 1
    assert list(world.phases.values()).count("Active") == 1


def test_the_history_is_bounded_and_the_refusals_are_kept() -> None:
    world = World().add("a").settle()
    for number in range(30):
        name = f"b{number}b"
        world.add(name, parent="a").settle().decide(name, "Refuse").settle()
    assert world.active == "a"
    assert len(world.status.history) == 20
    assert len(world.status.state["refused"]) == 30


def test_more_refusals_than_are_remembered_settle_and_none_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MAX_REFUSED", 4)
    world = World().add("a").settle()
    names = [f"b{number}b" for number in range(6)]
    for name in names:
        world.add(name, better=None, decision="Refuse")
    world.settle()
    remembered = world.status.state["refused"]
    assert len(remembered) == 4
    world.add("c", better=None, decision="Refuse").settle()
    assert world.status.state["refused"] == [*remembered[1:], digest_of("c")]
    world.status = PlaybookStatus()
    world.settle()
    assert world.status.state["refused"] == [digest_of(name) for name in (*names[-3:], "c")]
    assert world.active == "a" and {world.phases[name] for name in (*names, "c")} == {"Refused"}


def test_a_version_that_its_content_refused_is_what_the_playbook_shows() -> None:
    """And not the verdict of one that was judged before."""
    world = World().add("a").settle()
    world.add(
        "b", parent="a", findings=(Finding("leak", "x-1", "it seems to hold an e-mail address"),)
    ).settle()
    assert (world.active, world.phases["b"]) == ("a", "Refused")
    assert world.why("HeldOutPassed") == ("False", "LeakFound")
    assert world.status.held_out is not None and world.status.held_out.outcome == "Failed"
    world.add("c", parent="a").settle()
    assert world.why("HeldOutPassed") == ("True", "HeldOutPassed")


def test_every_condition_is_there_and_its_time_moves_with_the_status_only() -> None:
    world = two()
    world.tick()
    plan = world.tick()
    assert [c.type for c in plan.status.conditions] == list(ORDER)
    assert {c.observed_generation for c in plan.status.conditions} == {world.generation}
    times = {c.type: c.last_transition_time for c in plan.status.conditions}
    after = world.tick(500).status
    assert times == {c.type: c.last_transition_time for c in after.conditions}


def test_a_crash_between_two_writes_is_made_good() -> None:
    world = unjudged()
    world.now += 1
    plan = world.plan()
    world.status = plan.status
    world.settle()
    assert (world.active, world.phases) == ("b", {"a": "Previous", "b": "Active"})
    assert world.versions["b"].status.promoted_by == "Gates"
    assert len([e for e in world.status.history if e.digest == digest_of("b")]) == 1


def test_a_pin_ends_a_test_and_the_last_one_made_is_the_candidate_at_once() -> None:
    world = two()
    world.tick()
    world.add("c", parent="a").tick()
    assert world.named(world.status.candidate_digest) == "b"
    world.change(version={"pinnedDigest": digest_of("a")}).tick()
    assert world.named(world.status.candidate_digest) == "c" and world.phases["b"] == "Superseded"
    assert world.tick().events == () and world.named(world.status.candidate_digest) == "c"


def test_a_canarys_beginning_and_its_end_are_told() -> None:
    world = two()
    (began,) = world.tick().events
    assert (began.kind, began.reason, began.digest) == ("Normal", "CanaryBegan", digest_of("b"))
    assert "passed heldOut and is compared with a00000000000, mode Shadow, until t" in began.message
    world = World().add("a").settle().change(canary=CANARY)
    world.add("b", parent="a", origin={"rubric": {"criteria": ("It is short",)}})
    (began,) = world.tick().events
    assert "mode Shadow, by the rubric that it was learned by, until t" in began.message
    assert world.tick().events == ()
    world.judged("b", GOOD)
    passed, promoted = world.tick(61).events
    assert (passed.reason, promoted.reason) == ("CanaryPassed", "Promoted")
    assert "n=160" in passed.message
    assert world.tick().events == ()


REQUESTS = {"requests": {"configMap": {"name": "asked", "key": "asked.jsonl"}}}


# -- without an active version -------------------------------------------------------------------------


def to_nothing(**canary: object) -> World:
    """``a``, the only version, was refused; ``b`` is learned from nothing then."""
    world = World().add("a").settle().change(canary={**CANARY, **canary}).decide("a", "Refuse").settle()
    assert world.active == ""
    return world.add("b")


@pytest.mark.parametrize("mode", ["Manual", "Prometheus"])
@pytest.mark.parametrize(
    "begin", [to_nothing, lambda **canary: World().change(canary={**CANARY, **canary}).add("b")]
)
def test_nothing_goes_live_without_a_person_where_there_is_nothing_to_compare_with(
    begin: Any, mode: str
) -> None:
    asked = {"url": "http://p", "score": {"query": "good{v='$(version)'}[$(window)]", "unit": "Ratio"}}
    more = {"evaluator": None, "prometheus": asked, "watchSeconds": 0} if mode == "Prometheus" else {}
    world = begin(mode=mode, **more)
    for _ in range(3):
        world.tick(100)
    assert (world.active, world.phases["b"]) == ("", "Candidate")
    assert world.why("CanaryPassed") == ("Unknown", "WaitingForApproval")
    world.decide("b", "Approve").settle()
    assert (world.active, world.why("CanaryPassed", "b")) == ("b", ("True", "Approved"))


@pytest.mark.parametrize("mode", ["Shadow", "Replay"])
def test_what_is_learned_after_a_rollback_to_nothing_is_compared_with_no_playbook(mode: str) -> None:
    world = to_nothing(mode=mode, **({"replay": REQUESTS} if mode == "Replay" else {}))
    plan = world.tick()
    (wish,) = plan.canaries
    assert (wish.comparison.mode, wish.comparison.against, world.active) == (mode, "", "")
    assert wish.comparison.id.startswith("b00000000000-nothing-")
    assert "is compared with no playbook" in plan.events[-1].message
    world.tick(100)
    assert (world.active, world.why("CanaryPassed")) == ("", ("Unknown", "NoTraffic"))
    world.judged("b", GOOD).tick(1)
    assert (world.active, world.why("CanaryPassed", "b")) == ("b", ("True", "CanaryPassed"))
    assert "vs no playbook, n=160" in world.says("CanaryPassed", "b")


def test_one_that_is_worse_than_no_playbook_is_refused() -> None:
    world = to_nothing()
    world.tick()
    world.judged("b", BAD).tick(1)
    assert (world.active, world.phases["b"]) == ("", "Refused")


def test_a_rollback_to_nothing_begins_a_test_anew_and_says_so() -> None:
    world = two()
    world.tick()
    world.judged("b", GOOD).tick(10)
    world.decide("a", "Refuse").tick(100)
    assert (world.active, world.versions["b"].status.restarts) == ("", 1)
    assert world.plan().canaries[0].comparison.against == ""


@pytest.mark.parametrize("epsilon", [1, 1.0, 1.5, -0.1])
def test_an_epsilon_that_everything_passes_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"canary\.epsilon"):
        PlaybookSpec.model_validate({"canary": {**CANARY, "epsilon": epsilon}, "delivery": GATEWAY})


def test_a_version_whose_scores_are_gone_since_it_was_compared_waits_for_a_person() -> None:
    world = World().add("a").add("b", parent="a", origin={"dataDigests": {"heldOut": HELD_OUT}})
    active, version = world.versions["a"], world.versions["b"]
    before = measured_on(version, active, confidence=0.95, pinned="")
    assert isinstance(before, Comparison)
    assert version_verdict(version, before, thresholds=Thresholds(), look=1).outcome == "Passed"
    gone = replace(version, gate=None)
    assert measured_on(gone, active, confidence=0.95, pinned="", before=before) == before
    later = version_verdict(gone, before, thresholds=Thresholds(), look=1)
    assert (later.outcome, later.reason) == ("Error", "NotMeasured")
