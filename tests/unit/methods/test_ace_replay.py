"""Which entries are replayed, on what, against which controls."""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

import pytest
from ace_makers import ACE, add, change, learn, trajectory
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import BugError
from combee.methods.ace import Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.matching import Readers
from combee.methods.ace.render import render
from combee.methods.ace.replay import (
    MOST_CONTROLS,
    ReplayRequest,
    replay_controls,
    replay_request,
    to_replay,
)
from combee.methods.protocol import Refusal, Verdict
from combee.methods.verification import Page
from combee.records import Trajectory

RAN = {
    t.id: t
    for t in (
        trajectory("1@1"),
        trajectory("2@1"),
        trajectory("3@1", correct=True),
        trajectory("4@1", error="timeout"),
    )
}


READERS = Readers({t.example_id: t.input for t in RAN.values()})


def undecided(ledger: Ledger, ran: dict[str, Trajectory] = RAN, readers: Readers = READERS) -> list[str]:
    return [ledger.texts[d] for d in to_replay(ledger, trajectories=ran, readers=readers)]


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        (("1@1",), True),
        (("1@1", "1@2"), True),
        (("1@1", "2@1"), True),
        (("3@1",), False),
        (("3@1", "9@1"), True),
        (("8@1", "9@1"), False),
        (("4@1",), False),
        (("9@1",), False),
    ],
    ids=[
        "wrong once",
        "same example twice",
        "two examples",
        "was right",
        "two, one of them right",
        "two, not of this run",
        "call failed",
        "not of this run",
    ],
)
def test_what_a_replay_can_decide_is_a_candidate_however_many_sources_it_has(
    sources: tuple[str, ...], wanted: bool
) -> None:
    assert undecided(learn(add("Say so", *sources))) == (["Say so"] if wanted else [])


def test_decided_refused_and_given_entries_are_not_replayed() -> None:
    ledger = learn(add("Say so", "1@1"))
    digest = entry_digest("Say so")
    for fixed in (True, False):
        assert undecided(with_verdicts(ledger, [Verdict(digest, "1@1", fixed, 0)])) == []
    assert undecided(ACE.with_refusals(ledger, [Refusal(digest, "0", "leak", "")])) == []
    assert (
        undecided(learn(add("Say so", "1@1"), start=ACE.initial("[a-1] helpful=0 harmful=0 :: Say so"))) == []
    )


def test_a_lost_replay_is_repeated_once_on_another_example_when_a_second_source_says_the_same() -> None:
    lost = [Verdict(entry_digest("Say so"), "1@1", False, 0)]
    assert undecided(with_verdicts(learn(add("Say so", "1@1")), lost)) == []
    twice = with_verdicts(learn(add("Say so", "1@1", "2@1")), lost)
    assert undecided(twice) == ["Say so"]
    assert (
        replay_request(twice, entry_digest("Say so"), trajectories=RAN, page=Page.of("", "")).source == "2@1"
    )
    lost.append(Verdict(entry_digest("Say so"), "2@1", False, 0))
    assert undecided(with_verdicts(twice, lost)) == []


def test_those_that_would_be_rendered_come_first_then_the_most_read_then_the_least_supported() -> None:
    about = ["bonds"] * 4 + ["trains"] + ["rents"] * 3
    ran = {f"{n}@1": replace(trajectory(f"{n}@1"), input=f"About {about[n]}") for n in range(8)}
    readers = Readers({one.example_id: one.input for one in ran.values()} | {"9": "About nothing else"})
    ledger = learn(
        add("If it is about rents, round the yearly sum single", "7@1"),
        add("If it is about rents, state both months as a pair", "5@1", "6@1"),
        add("If it is about bonds, discount every coupon three", "1@1", "2@1", "3@1"),
        add("If it is about bonds, add accrued interest two", "1@1", "2@1"),
    )
    assert [text.rpartition(" ")[2] for text in undecided(ledger, ran, readers)] == [
        "two",
        "three",
        "pair",
        "single",
    ]


def test_disputed_entries_are_replayed_first_whatever_their_support() -> None:
    ledger = learn(
        add("Bonds: divide by 365 days", "1@1", "2@1"),
        add("Bonds: divide by 360 days", "2@1", "9@1"),
        add("Say so", "1@1"),
    )
    got = undecided(ledger)
    assert set(got[:2]) == {"Bonds: divide by 365 days", "Bonds: divide by 360 days"} and got[2:] == [
        "Say so"
    ]


def test_a_replay_runs_on_a_wrong_source_or_where_there_is_none_on_the_right_examples() -> None:
    page = Page.of("text", "")
    for sources, wanted in [
        (("2@1", "3@1"), ("2@1", ())),
        (("3@1", "9@1"), ("", ("3",))),
    ]:
        ledger = learn(add("Say so", *sources))
        got = replay_request(ledger, entry_digest("Say so"), trajectories=RAN, page=page)
        assert (got.source, got.own, got.page) == (*wanted, page)


def test_what_has_no_trajectory_cannot_be_replayed() -> None:
    for text in ("Say so", "unknown"):
        with pytest.raises(BugError):
            replay_request(
                learn(add("Say so", "9@1")), entry_digest(text), trajectories=RAN, page=Page.of("", "")
            )


def test_a_page_holds_the_entry_last_without_rivals_replaced_entries_and_what_else_is_to_be_decided() -> None:
    start = learn(add("Divide by 365 days", "1@1", "2@1"), add("Other rule", "1@1", "2@1"))
    ledger = learn(change("UPDATE", ("Divide by 365 days",), "Divide by 364 days", "2@1"), start=start)

    def text(ledger: Ledger, entry: str, *without: str) -> str:
        return render(
            ledger,
            budget_tokens=8000,
            verify="Replay",
            with_entry=entry_digest(entry),
            without={entry_digest(one) for one in without},
        ).text

    assert "365" not in text(ledger, "Divide by 364 days")
    assert text(ledger, "Divide by 364 days").endswith(":: Divide by 364 days\n")
    assert "Other rule" in text(ledger, "Divide by 364 days")
    assert "Other rule" not in text(ledger, "Divide by 364 days", "Other rule")
    disputed = learn(add("Divide by 365 days", "1@1", "2@1"), add("Divide by 360 days", "1@1", "2@1"))
    assert "365" not in text(disputed, "Divide by 360 days")
    assert "contested" not in text(disputed, "Divide by 360 days")


RIGHT = [str(i) for i in range(50)]


def asked(source: str = "7@1", own: tuple[str, ...] = (), entry: str = "Say so") -> ReplayRequest:
    return ReplayRequest(entry_digest(entry), source, own, Page.of("", ""))


def test_controls_are_chosen_by_hash_and_never_the_example_itself() -> None:
    got = replay_controls(asked(), RIGHT, [])
    assert len(got) == 2 and got == replay_controls(asked(), reversed(RIGHT), [])
    assert replay_controls(asked(), ["7"], ["7"]) == replay_controls(asked(), [], []) == ()
    assert len({replay_controls(asked(entry=str(i)), RIGHT, []) for i in range(20)}) > 15


@given(st.sets(st.sampled_from(RIGHT)), st.permutations(RIGHT))
def test_controls_come_from_those_who_read_the_entry_and_grow_with_them(
    reading: set[str], order: list[str]
) -> None:
    got = replay_controls(asked(), order, reading)
    matched = [example for example in got if example in reading]
    assert len(matched) >= min(len(reading - {"7"}), max(1, isqrt(len(reading))), MOST_CONTROLS - 1)
    assert len(got) == len(set(got)) == min(MOST_CONTROLS, max(2, 1 + isqrt(len(reading)))) and "7" not in got
    assert got == replay_controls(asked(), RIGHT, sorted(reading))


def test_what_has_nothing_to_fix_is_asked_its_own_examples_too() -> None:
    got = replay_controls(asked("", ("3", "4")), RIGHT, ["3", "4", "5"])
    assert got[:2] == ("3", "4") and "5" in got and len(got) == 4


def test_a_verdict_wins_only_without_harm() -> None:
    assert [Verdict("d", "1@1", fixed, harmed).won for fixed in (True, False) for harmed in (0, 1)] == [
        True,
        False,
        False,
        False,
    ]
