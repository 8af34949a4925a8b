"""The history of a Playbook only grows: nothing is lost, nothing stands in it twice, and what is taken away
or altered is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playbook_bench import CANARY, WAIVED, World, digest_of
from test_playbook_properties import STEPS, do

from combee.api.playbook_status import HistoryLine, PlaybookStatus, Trail
from combee.plan.playbook.authentic import digest_of_text as line_digest
from combee.plan.playbook.trail import (
    MAX_PENDING,
    FiledLine,
    appended,
    breaks,
    continued,
    filed,
    past_others,
    text_of,
    whole,
)

EVENTS = st.builds(
    HistoryLine,
    time=st.text(max_size=5),
    event=st.sampled_from(["Made", "Promoted", "Refused"]),
    digest=st.sampled_from(["", "a" * 64]),
    message=st.text(max_size=20),
)


def lines_of(*entries: HistoryLine) -> tuple[tuple[FiledLine, ...], Trail]:
    """A history all of whose lines are filed, and what the status then says."""
    trail = appended(Trail(), *entries)
    return tuple(map(filed, trail.pending)), trail.model_copy(update={"pending": ()})


@given(st.lists(EVENTS, max_size=12), st.integers(0, 12))
def test_a_history_is_whole_wherever_filing_stopped(entries: list[HistoryLine], stopped: int) -> None:
    lines, _ = lines_of(*entries)
    trail = appended(Trail(), *entries)
    left = trail.model_copy(update={"pending": trail.pending[stopped:]})
    assert list(breaks(lines[:stopped], left)) == []
    assert whole(lines[:stopped], left) == lines
    # It goes on after what is filed, whatever is appended, and lines that are filed already are not moved.
    assert list(breaks(lines, appended(continued(lines), *entries))) == []
    assert past_others(trail, lines[:stopped]) == trail


@settings(max_examples=200)
@given(st.lists(EVENTS, min_size=1, max_size=10), st.data())
def test_a_line_that_is_gone_or_altered_is_named(entries: list[HistoryLine], data: Any) -> None:
    lines, trail = lines_of(*entries)
    assert list(breaks(lines, trail)) == []
    at = data.draw(st.integers(0, len(lines) - 1))
    line = lines[at].line
    assert line is not None
    gone = (*lines[:at], *lines[at + 1 :])
    assert f"line {at + 1} is gone" in list(breaks(gone, trail))
    for altered in (
        text_of(line.model_copy(update={"message": f"{line.message}!"})),
        text_of(line.model_copy(update={"before": "f" * 64})),
    ):
        found = list(breaks((*lines[:at], FiledLine(at + 1, altered), *lines[at + 1 :]), trail))
        assert any(text.startswith((f"line {at + 1} ", f"line {at} ")) for text in found)
    assert f"line {at + 1} is not one that the operator wrote" in list(
        breaks((*lines[:at], FiledLine(at + 1, "{"), *lines[at + 1 :]), trail)
    )
    more = FiledLine(len(lines) + 1, text_of(line.model_copy(update={"number": len(lines) + 1})))
    assert list(breaks((*lines, more), trail)) != []


@pytest.mark.parametrize(
    ("writer", "is_told"),
    [("kubectl-create at t", True), ("kubectl-combee at t", True), ("combee at t", False), ("", False)],
)
def test_a_line_that_another_program_wrote_is_named(writer: str, is_told: bool) -> None:
    """Also one that fits into the chain to the byte, as one that was put back from a backup does."""
    lines, trail = lines_of(HistoryLine(event="Made"), HistoryLine(event="Promoted"))
    again = FiledLine(2, lines[1].text, writer)
    assert again == lines[1]
    told = [f"line 2 was not written by the operator but by {writer}"]
    assert list(breaks((lines[0], again), trail)) == (told if is_told else [])


def test_lines_that_are_gone_at_the_end_are_only_noticed_by_the_status() -> None:
    lines, trail = lines_of(*(HistoryLine(event="Made", message=str(n)) for n in range(3)))
    assert list(breaks(lines[:2], trail)) == ["line 3 is gone"]
    assert list(breaks(lines[:2], None)) == []


def test_the_text_of_a_line_does_not_change_when_a_release_adds_a_field() -> None:
    line = HistoryLine(number=1, time="t", event="Made", digest="a", message="é")
    text = '{"digest":"a","event":"Made","message":"é","number":1,"time":"t"}'
    assert text_of(line) == text
    later = FiledLine(1, text.replace("}", ',"later":"field"}'))
    assert later.line == line and later.digest == line_digest(later.text)


def test_lines_that_nobody_can_file_do_not_grow_without_limit() -> None:
    trail = appended(Trail(), *(HistoryLine(event="Made") for _ in range(MAX_PENDING + 2)))
    assert len(trail.pending) == MAX_PENDING
    assert list(breaks((), trail)) == ["line 1 is gone", "line 2 is gone"]


def history(world: World) -> list[HistoryLine]:
    lines = [one.line for one in whole(world.lines.values(), world.status.trail)]
    return [line for line in lines if line is not None]


def told(world: World) -> list[tuple[str, str, str]]:
    return [(line.event, line.digest[:1], line.by) for line in history(world)]


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=12))
def test_whatever_happens_the_history_only_grows(steps: list[tuple[str, str, Any]]) -> None:
    world = World().change(canary={**CANARY, "watchSeconds": 3600})
    for step in [("add", "a", 0.2), *steps]:
        before = dict(world.lines)
        do(world, step)
        if step[0] == "crash" and not step[2]:
            before = dict(world.lines)
        world.tick()
        assert before.items() <= world.lines.items()
        assert list(breaks(world.lines.values(), world.status.trail)) == []
        grown = len(world.lines)
        # Again on the same facts: nothing was decided, so no line came, and none waits any more.
        world.tick(0)
        assert len(world.lines) == grown
        assert world.status.trail is not None and world.status.trail.pending == ()


LOST = st.sampled_from(["nothing", "the versions", "what is filed"])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(STEPS.filter(lambda step: step[0] not in ("crash", "reapply")), LOST), max_size=12))
def test_an_operator_that_dies_between_two_writes_loses_no_line_and_writes_none_twice(
    steps: list[tuple[tuple[str, str, Any], str]],
) -> None:
    calm, shaken = (World().change(canary={**CANARY, "watchSeconds": 3600}) for _ in range(2))
    for step, lost in [(("add", "a", 0.2), "nothing"), *steps]:
        for world in (calm, shaken):
            do(world, step)
        calm.tick()
        versions, lines = dict(shaken.versions), dict(shaken.lines)
        shaken.tick()
        if lost != "nothing":
            # The Playbook's status was written, and then the operator died.
            shaken.versions = versions
            shaken.lines = lines if lost == "what is filed" else shaken.lines
            shaken.tick(0)
        assert told(shaken) == told(calm)
        for world in (calm, shaken):
            world.tick(0)


def test_what_is_decided_about_versions_is_told_line_by_line() -> None:
    world = World().add("a").settle()
    assert told(world) == [
        ("Made", "a", ""),
        ("HeldOutPassed", "a", ""),
        ("CanaryWaived", "a", ""),
        ("Promoted", "a", "Gates"),
    ]


def after_a(*steps: Callable[[World], object]) -> World:
    """``a`` is active; ``b`` waits in its canary; then each step, and a tick."""
    world = World().add("a").settle().change(canary={**CANARY}).add("b", parent="a")
    world.tick()
    for step in steps:
        step(world)
        world.tick(70)
    return world


BEGUN = [("Made", "b", ""), ("HeldOutPassed", "b", ""), ("CanaryBegan", "b", "")]
TABLE: dict[str, tuple[tuple[Callable[[World], object], ...], list[tuple[str, str, str]]]] = {
    "its canary is passed": (
        (lambda world: world.judged("b", [0.3, 0.0, 0.15] * 30),),
        [("CanaryPassed", "b", ""), ("Promoted", "b", "Gates")],
    ),
    "its canary fails": (
        (lambda world: world.judged("b", [-0.4, 0.0, -0.2] * 30),),
        [("Refused", "b", "Gates")],
    ),
    "somebody refuses it": (
        (lambda world: world.decide("b", "Refuse"),),
        [("Decided", "b", "Decision"), ("Refused", "b", "Decision")],
    ),
    "somebody promotes it and takes that back": (
        (lambda world: world.decide("b", "Promote"), lambda world: world.decide("b", "Auto")),
        [("Decided", "b", "Decision"), ("Promoted", "b", "Decision"), ("Decided", "b", "Decision")],
    ),
    "it is pinned, refused and unpinned": (
        (
            lambda world: world.change(version={"pinnedDigest": digest_of("b")}),
            lambda world: world.decide("b", "Refuse"),
            lambda world: world.change(version={}),
        ),
        [
            ("Pinned", "b", "Pin"),
            ("Promoted", "b", "Pin"),
            ("Decided", "b", "Decision"),
            ("Refused", "b", "Decision"),
            ("RolledBack", "a", "Rollback"),
            ("Unpinned", "b", "Pin"),
        ],
    ),
    "thresholds change": (
        (lambda world: world.change(canary={**CANARY, "epsilon": 0.1}),),
        [("Restarted", "b", ""), ("HeldOutPassed", "b", "")],
    ),
    "nobody approves it, and a later one comes": (
        (lambda world: world.change(canary=None), lambda world: world.add("c", parent="a")),
        [
            ("Restarted", "b", ""),
            ("HeldOutPassed", "b", ""),
            ("WaitingForApproval", "b", ""),
            ("Made", "c", ""),
            ("Superseded", "b", ""),
            ("HeldOutPassed", "c", ""),
            ("WaitingForApproval", "c", ""),
        ],
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_each_decision_is_a_line(case: str) -> None:
    steps, expected = TABLE[case]
    assert told(after_a(*steps))[4:] == [*BEGUN, *expected]


def test_what_the_gates_refuse_has_the_numbers_the_policy_and_the_digest() -> None:
    world = after_a(lambda world: world.judged("b", [-0.4, 0.0, -0.2] * 30))
    last = history(world)[-1]
    assert last.digest == digest_of("b") and "vs active, n=90" in last.message
    assert last.policy == (
        "Automatic; heldOut minGain 0.000, confidence 0.950; "
        "canary Shadow: epsilon 0.050, minSamples 20, 60 s, at most 3600 s"
    )


def test_a_line_says_which_program_wrote_the_decision_or_the_pin() -> None:
    world = World().add("a").settle().add("b", parent="a").settle().decide("b", "Refuse")
    world.change_version("b", decided_by="kubectl-combee at t1").tick()
    by_event = {line.event: line.who for line in history(world)}
    assert by_event["Decided"] == by_event["Refused"] == "kubectl-combee at t1"
    assert by_event["Made"] == by_event["Promoted"] == by_event["RolledBack"] == ""


def test_pruning_keeps_the_trail() -> None:
    world = World().change(version={"historyLimit": 1}).add("a").settle()
    for name in "bcd":
        world.add(name, parent="a", better=0.0).settle()
    world.settle()
    assert set(world.versions) == {"a", "d"}
    for name in "bc":
        events = [line.event for line in history(world) if line.digest == digest_of(name)]
        assert events == ["Made", "Inconclusive", "Pruned"]
    refused = World().change(version={"historyLimit": 1}).add("a").settle()
    for name in "bc":
        refused.add(name, parent="a").settle().decide(name, "Refuse").settle()
    refused.change_version("b", has_content=False).settle()
    pruned = [line for line in history(refused) if line.event == "Pruned"]
    assert [
        (line.digest[:1], "its content" in line.message or "the content" in line.message) for line in pruned
    ] == [("b", True)]


def test_a_playbook_that_is_applied_again_goes_on_with_its_history() -> None:
    world = World().add("a").settle().add("b", parent="a").settle()
    before = told(world)
    world.status = PlaybookStatus()
    world.settle()
    assert told(world) == before
    world.add("c", parent="b").settle()
    assert told(world)[len(before) :] == [
        ("Made", "c", ""),
        ("HeldOutPassed", "c", ""),
        ("CanaryWaived", "c", ""),
        ("Promoted", "c", "Gates"),
    ]
    assert list(breaks(world.lines.values(), world.status.trail)) == []


def test_lines_that_went_with_a_deleted_playbook_are_found_in_the_versions() -> None:
    world = World().add("a").settle().add("b", parent="a").settle().decide("b", "Refuse").settle()
    whole_story = set(told(world))
    world.status, world.lines = PlaybookStatus(), {}
    world.settle()
    # That a was rolled back to is told as its promotion; that somebody changed the decision is lost.
    lost = {("Decided", "b", "Decision"), ("RolledBack", "a", "Rollback"), ("Promoted", "a", "Gates")}
    assert set(told(world)) == whole_story - lost | {("Promoted", "a", "Rollback")}
    assert all("found in its status" in line.message for line in history(world) if line.event != "Made")


def test_the_twenty_lines_of_an_earlier_release_are_taken_over() -> None:
    world = World().add("a").settle().add("b", parent="a").settle().decide("b", "Refuse").settle()
    short = world.status.history
    world.status = world.status.model_copy(update={"trail": None})
    world.lines = {}
    for name, version in world.versions.items():
        state = {k: v for k, v in version.status.state.items() if k not in ("noted", "decision")}
        world.versions[name] = replace(version, status=version.status.model_copy(update={"state": state}))
    world.settle()
    lines = [(line.time, line.event, line.digest, line.message) for line in history(world)]
    assert {(e.time, e.event, e.digest, e.message) for e in short} <= set(lines)
    assert len(lines) == len(set(lines)) and told(world).count(("Refused", "b", "Decision")) == 1


def test_the_statuses_of_hundreds_of_versions_are_taken_over_without_a_gap() -> None:
    world = World().change(version={"historyLimit": 1000}).add("a").settle()
    for number in range(60):
        world.add(f"b{number:02x}", parent="a").tick()
        world.decide(f"b{number:02x}", "Refuse").tick()
    refused = [line.digest for line in history(world) if line.event == "Refused"]
    world.status = world.status.model_copy(update={"trail": None})
    world.lines = {}
    for name, version in world.versions.items():
        state = {k: v for k, v in version.status.state.items() if k != "noted"}
        world.versions[name] = replace(version, status=version.status.model_copy(update={"state": state}))
    most = 0
    for _ in range(20):
        world.tick()
        assert world.status.trail is not None
        most = max(most, len(world.status.trail.pending))
    assert most <= MAX_PENDING and world.status.trail is not None and not world.status.trail.pending
    assert list(breaks(world.lines.values(), world.status.trail)) == []
    again = [line.digest for line in history(world) if line.event == "Refused"]
    assert sorted(again) == sorted(refused)
    assert len({line.digest for line in history(world) if line.event == "Made"}) == len(world.versions)


def test_a_line_that_is_filed_is_not_written_again_when_another_one_is_in_the_way() -> None:
    trail = appended(Trail(), *(HistoryLine(event="Made", message=str(n)) for n in range(3)))
    lines = (filed(trail.pending[0]), FiledLine(2, "not ours"))
    moved = past_others(trail, lines)
    assert [(line.number, line.message) for line in moved.pending] == [(3, "1"), (4, "2")]
    assert moved.pending[0].before == lines[1].digest


def test_a_line_of_somebody_elses_is_passed_over() -> None:
    world = World().add("a").settle()
    assert world.status.trail is not None
    number = world.status.trail.lines + 1
    world.lines[number] = FiledLine(number, "not ours")
    world.add("b", parent="a")
    plan = world.plan()
    # The executor could not write its lines; the next decision is shown what is there.
    world.status = plan.status
    read = replace_seen(world)
    assert read.trail is not None and next(line.number for line in read.trail.pending) == number + 1
    assert any(f"line {number} is not one" in text for text in breaks(world.lines.values(), read.trail))


def replace_seen(world: World) -> PlaybookStatus:
    """The status decided when the lines are read anew."""
    status, trail = world.status, world.status.trail
    assert trail is not None
    world.reread = True
    try:
        return world.plan().status
    finally:
        world.reread = False
        assert world.status is status


def test_a_waiver_and_its_reason_stand_in_the_history() -> None:
    world = World().change(canary=WAIVED).add("a").settle()
    waived = next(line for line in history(world) if line.event == "CanaryWaived")
    assert WAIVED["waived"] in waived.message and WAIVED["waived"] in waived.policy
