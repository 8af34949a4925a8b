"""A canary of mode Prometheus in decide_playbook(): what its windows and readings make of a candidate."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from playbook_bench import CANARY, World, digest_of

from combee.api.playbook import PlaybookSpec
from combee.api.prometheus import Prometheus
from combee.plan.playbook.judges import JudgesSeen, decide_judges
from combee.plan.playbook.memory import VersionMemory
from combee.plan.playbook.queries import STREAM, begins_at, compare, queries, windows_over
from combee.plan.playbook.readings import Problem, Reading, Trouble, wrong
from combee.records import Owner

ASKED: dict[str, Any] = {
    "url": "http://prometheus:9090",
    "score": {"query": 'good{version="$(version)"}', "unit": "Percent"},
    "latency": {"query": 'seconds{version="$(version)"}', "unit": "Milliseconds"},
    "windowSeconds": 60,
    "delaySeconds": 0,
}
METERED: dict[str, Any] = {
    **{name: value for name, value in CANARY.items() if name not in ("mode", "evaluator")},
    "mode": "Prometheus",
    "deadlineSeconds": 36_000,
    "durationSeconds": 600,
    "prometheus": ASKED,
}


def two(**canary: object) -> World:
    """``a`` is active, ``b`` was learned from it and is measured."""
    world = World().add("a").settle().change(canary={**METERED, **canary})
    world.add("b", parent="a").tick()
    return world


def measured(
    world: World,
    candidate: float,
    active: float,
    *,
    ms: tuple[float, float] = (200.0, 200.0),
    most: int = 500,
) -> bool:
    """A Job has asked for what is over by now: the same numbers in every window. False where nothing is."""
    version = world.versions["b"]
    asked = _asked(world)
    test, memory = version.status.test, VersionMemory.from_json(version.status.state)
    assert test is not None and test.mode == "Prometheus"
    first = memory.reading.last + 1 if memory.reading is not None else 0
    begins = begins_at(memory.since, asked)
    wanted = range(first, min(first + most, windows_over(asked, begins, world.now)))
    if not wanted:
        return False
    values = {("score", "candidate"): candidate, ("score", "active"): active}
    values |= {("latency", "candidate"): ms[0], ("latency", "active"): ms[1]}
    answers = {
        query: dict.fromkeys(wanted, values[query.what, query.side])
        for query in queries(asked, digest_of("b"), digest_of("a"))
    }
    pairs, reading = compare(asked, answers, wanted, world.now, begins)
    world.pairs[test.id] = tuple(pairs)
    world.readings[test.id] = (reading,)
    return True


def troubled(world: World, problem: Problem, detail: str = "", *, last: int = 4) -> None:
    """A Job has asked, and cannot use an answer."""
    test = world.versions["b"].status.test
    assert test is not None
    trouble = Trouble(problem, "score", "candidate", detail)
    world.pairs[test.id] = ()
    world.readings[test.id] = (Reading(0, last, world.now, 0, trouble),)


def _asked(world: World) -> Prometheus:
    return Prometheus.model_validate(world.spec["canary"]["prometheus"])


def test_no_window_yet_is_no_traffic_and_there_is_a_deadline() -> None:
    world = two()
    assert world.why("CanaryPassed") == ("Unknown", "NoTraffic")
    assert "no window has come" in world.says("CanaryPassed")
    world.tick(36_000)
    assert (world.active, world.phases["b"]) == ("a", "Inconclusive")
    assert world.why("CanaryPassed", "b") == ("False", "DeadlineExceeded")
    assert "the deadline of 10 h is over with 0 windows" in world.says("CanaryPassed", "b")


def test_an_equal_candidate_is_promoted_when_windows_are_enough_and_never_by_time() -> None:
    world = two()
    world.now += 3600
    measured(world, 97.5, 97.5)
    world.tick()
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "NeedPairs"))
    assert "more windows are needed" in world.says("CanaryPassed")
    world.now += 7200
    measured(world, 97.5, 97.5)
    world.tick()
    said = world.says("CanaryPassed", "b")
    assert (world.active, world.why("CanaryPassed", "b")) == ("b", ("True", "CanaryPassed"))
    assert "percent vs active, n=179 windows: the lower end is above -5.000 percent" in said
    assert "last 120 windows: 97.5 against 97.5 percent, 200 against 200 ms" in said


def test_windows_count_only_once_their_labels_can_have_come() -> None:
    """Complaints come within an hour: in the first one the candidate has none yet."""
    late = {**ASKED, "labelDelaySeconds": 3600}
    world = two(prometheus=late)
    since = VersionMemory.from_json(world.versions["b"].status.state).since
    assert 0 <= begins_at(since, _asked(world)) - (since + 3600) < 60
    world.now += 3600
    assert not measured(world, 97.5, 97.5)
    world.now += 9000
    measured(world, 97.5, 97.5)
    world.tick()
    assert world.active == "b" and "n=149 windows" in world.says("CanaryPassed", "b")
    early = two(prometheus=late, durationSeconds=7200, epsilon=0.1)
    early.now += 3600 + 6600
    measured(early, 97.5, 97.5)
    early.tick()
    assert early.why("CanaryPassed") == ("Unknown", "TooEarly")
    assert "it takes 3 h at least" in early.says("CanaryPassed")


def test_a_watch_asks_for_no_window_whose_labels_can_still_come() -> None:
    world = two(prometheus={**ASKED, "labelDelaySeconds": 3600}, watchSeconds=86_400)
    world.now += 3600 + 9000
    measured(world, 97.5, 97.5)
    plan = world.tick()
    test = world.versions["b"].status.test
    assert world.active == "b" and test is not None and test.kind == "Watch"
    spec = PlaybookSpec.model_validate({"failureCost": "Low", **world.spec})
    contents = {digest_of(name): f"formula-{name}" for name in ("a", "b")}
    owner = Owner("formula", "team", "u-1")
    began = {
        seconds: decide_judges(owner, spec, plan, contents, JudgesSeen(), world.now + seconds).start
        for seconds in (3600, 3600 + 120)
    }
    assert [len(jobs) for jobs in began.values()] == [0, 1]


def test_a_comparison_goes_on_under_an_operator_that_knows_of_late_labels() -> None:
    """The digest of what is asked is the one of before where the field is not set."""
    asked = two().versions["b"].status.thresholds
    delayed = two(prometheus={**ASKED, "labelDelaySeconds": 60}).versions["b"].status.thresholds
    assert asked is not None and delayed is not None
    identity = Prometheus.model_validate(ASKED).model_dump(
        mode="json", exclude={"token_secret_ref", "delay_seconds", "label_delay_seconds", "cost"}
    )
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    costs = {**ASKED, "cost": {"query": "tokens$(version)"}}
    priced = two(prometheus=costs).versions["b"].status.thresholds
    assert priced is not None and priced.asked != asked.asked
    assert asked.asked == hashlib.sha256(text.encode()).hexdigest()[:16] != delayed.asked


def test_a_worse_one_is_refused_with_numbers_in_their_units() -> None:
    world = two()
    world.now += 3600
    measured(world, 57.5, 97.5)
    plan = world.tick()
    assert (world.active, world.phases["b"]) == ("a", "Refused")
    assert world.why("CanaryPassed", "b") == ("False", "CanaryWorse")
    said = world.says("CanaryPassed", "b")
    assert said.startswith("-40.000 [") and "the upper end is below -5.000 percent" in said
    assert "57.5 against 97.5 percent" in said
    assert [event.reason for event in plan.events] == ["Refused"]


def test_slow_answers_are_not_promoted() -> None:
    world = two(maxLatencyRatio=1.2)
    world.now += 20_000
    measured(world, 97.5, 97.5, ms=(400.0, 200.0))
    world.tick()
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "TooSlow"))
    assert "answers take 2.00 times as long" in world.says("CanaryPassed")


@pytest.mark.parametrize(
    ("problem", "detail", "words"),
    [
        ("BadQuery", "parse error: unexpected )", "is refused (parse error: unexpected )): correct it"),
        ("Empty", "", "gives no series: is this version measured, and do the labels fit?"),
        ("NotANumber", "", "gives NaN or an infinity, mostly 0 / 0: divide by (... > 0)"),
        ("OutOfRange", "9750", "gives 9750, which is outside of its unit (Percent, 0 to 100)"),
        ("SeveralSeries", "3", "gives 3 series: make one of them, as sum(...) does"),
        ("TooLarge", "", "gives more than is read"),
        ("Unreadable", "x", "gives what is no answer of Prometheus (x): see canary.prometheus.url"),
        ("WrongType", "vector", "gives a vector where one number at a time is needed"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_that_says_what_to_do(
    problem: Problem, detail: str, words: str
) -> None:
    world = two()
    world.now += 600
    troubled(world, problem, detail)
    plan = world.tick()
    assert (world.active, world.phases["b"]) == ("a", "Candidate")
    assert world.versions["b"].status.canary is not None
    assert world.versions["b"].status.canary.outcome == "Error"
    assert world.why("CanaryPassed") == world.why("CanaryPassed", "b") == ("Unknown", "QueryError")
    assert f"the score query of the candidate version {words}" in world.says("CanaryPassed")
    assert [(one.kind, one.reason) for one in plan.events] == [("Warning", "QueryError")]
    assert world.tick().events == (), "once is enough"
    # Somebody mends it where it is measured: the canary goes on.
    world.now += 20_000
    measured(world, 97.5, 97.5)
    world.tick()
    assert world.active == "b"


def test_an_error_that_lasts_is_inconclusive_at_the_deadline_and_still_says_what_to_do() -> None:
    world = two()
    world.now += 600
    troubled(world, "SeveralSeries", "2")
    world.tick()
    world.tick(36_000)
    assert (world.active, world.phases["b"]) == ("a", "Inconclusive")
    assert world.why("CanaryPassed", "b") == ("False", "DeadlineExceeded")
    assert "gives 2 series" in world.says("CanaryPassed", "b")


def test_nothing_passes_on_a_reading_that_cannot_be_used() -> None:
    world = two()
    world.now += 20_000
    measured(world, 97.5, 97.5)
    test = world.versions["b"].status.test
    assert test is not None
    (reading,) = world.readings[test.id]
    odd = Trouble("NotANumber", "score", "candidate")
    world.readings[test.id] = (Reading(0, reading.last, world.now, reading.compared, odd),)
    world.tick()
    assert (world.active, world.why("CanaryPassed")) == ("a", ("Unknown", "QueryError"))
    # A worse one is refused all the same.
    bad = two()
    bad.now += 20_000
    measured(bad, 50.0, 97.5)
    test = bad.versions["b"].status.test
    assert test is not None
    bad.readings[test.id] = (Reading(0, reading.last, bad.now, reading.compared, odd),)
    bad.tick()
    assert bad.phases["b"] == "Refused"


def test_left_out_windows_are_counted_and_named() -> None:
    world = two()
    world.now += 1200
    test = world.versions["b"].status.test
    assert test is not None
    world.readings[test.id] = (Reading(0, 9, world.now, 0),)
    world.tick()
    assert "10 windows are left out, for want of a number" in world.says("CanaryPassed")


def test_a_restart_of_the_operator_loses_nothing_and_windows_count_once() -> None:
    whole, pieces = two(), two()
    for world in (whole, pieces):
        world.now += 6000
    measured(whole, 97.0, 97.5)
    whole.tick(0)
    while measured(pieces, 97.0, 97.5, most=7):
        pieces.tick(0)
        pieces.tick(0)
    tallies = [VersionMemory.from_json(w.versions["b"].status.state).tally for w in (whole, pieces)]
    assert tallies[0] == tallies[1] and tallies[0].spans == {STREAM: ((0, tallies[0].pairs - 1),)}


def test_a_changed_query_begins_anew_and_another_token_or_delay_does_not() -> None:
    world = two()
    world.now += 3600
    measured(world, 97.5, 97.5)
    world.tick()
    token = {**ASKED, "tokenSecretRef": {"name": "p", "key": "token"}, "delaySeconds": 30}
    plan = world.change(canary={**METERED, "prometheus": token}).tick()
    assert plan.events == () and world.versions["b"].status.restarts == 0
    other = {**ASKED, "score": {**ASKED["score"], "query": 'better{version="$(version)"}'}}
    plan = world.change(canary={**METERED, "prometheus": other}).tick()
    assert [event.reason for event in plan.events] == ["Restarted"]
    assert "what Prometheus is asked changed since they began" in plan.events[0].message
    memory = VersionMemory.from_json(world.versions["b"].status.state)
    assert memory.reading is None and memory.tally.pairs == 0


def test_a_reading_of_windows_that_are_not_over_counts_for_nothing() -> None:
    world = two()
    world.now += 600
    test = world.versions["b"].status.test
    assert test is not None
    world.readings[test.id] = (Reading(0, 2**39, world.now, 0),)
    world.tick()
    assert VersionMemory.from_json(world.versions["b"].status.state).reading is None


def promoted(**canary: object) -> World:
    world = two(watchSeconds=7200, **canary)
    world.now += 20_000
    measured(world, 97.5, 97.5)
    world.tick()
    assert world.active == "b"
    return world


def test_what_was_promoted_by_it_is_watched_while_the_version_before_has_traffic() -> None:
    world = promoted()
    test = world.versions["b"].status.test
    assert test is not None and (test.kind, test.mode, test.against) == (
        "Watch",
        "Prometheus",
        digest_of("a"),
    )
    world.now += 3600
    measured(world, 57.5, 97.5)
    plan = world.tick()
    assert (world.active, world.phases["b"]) == ("a", "Refused")
    assert [event.reason for event in plan.events] == ["Refused", "RolledBack"]
    assert "percent vs the one before, n=59 windows" in world.says("Promoted", "b")


def test_a_version_before_without_traffic_is_no_error_and_rolls_nothing_back() -> None:
    world = promoted()
    test = world.versions["b"].status.test
    assert test is not None
    gone = Trouble("Empty", "score", "active", "")
    world.readings[test.id] = (Reading(0, 4, world.now, 0, gone),)
    world.tick(600)
    assert world.status.watch is not None
    assert (world.active, world.status.watch.outcome, world.status.watch.reason) == (
        "b",
        "Inconclusive",
        "NoTraffic",
    )
    world.tick(7200)
    assert (world.active, world.versions["b"].status.test) == ("b", None)


def test_queries_that_know_sides_alone_watch_nothing_and_say_so() -> None:
    """After a promotion both sides have the same version, and then the next candidate is on one of them."""
    score = {"query": "good{role='$(side)'}", "unit": "Percent"}
    world = promoted(prometheus={**ASKED, "score": score, "latency": None})
    assert world.versions["b"].status.test is None and world.status.watch is not None
    assert world.status.watch.reason == "NotWatched" and "use $(version)" in world.status.watch.message


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epsilon": 0.001}, "windows at least would show an equal candidate"),
        ({"epsilon": 0.0}, "no number of windows"),
        ({"minSamples": 1000}, "600 windows of 60 s end before the deadline"),
        (
            {"prometheus": {**ASKED, "score": {"query": "rate(x{v='$(side)'}[5m])", "unit": "Ratio"}}},
            "canary.prometheus.score.query looks back over 5m",
        ),
    ],
)
def test_what_can_hardly_be_decided_is_warned_of(changed: dict[str, Any], words: str) -> None:
    assert World().change(canary=METERED).plan().status.warnings == ()
    (said,) = World().change(canary={**METERED, **changed}).plan().status.warnings
    assert words in said


def test_points_are_named_with_their_ends() -> None:
    scale = {"query": "$(version)", "unit": "Points", "lowest": 1, "highest": 5}
    asked = two(prometheus={**ASKED, "score": scale})
    trouble = Trouble("OutOfRange", "score", "active", "7")
    assert "gives 7, which is outside of its unit (Points, 1 to 5)" in wrong(_asked(asked), trouble)
    slow = Trouble("OutOfRange", "latency", "active", "-1")
    assert "gives -1, and no time is below 0" in wrong(_asked(asked), slow)
