"""Which entries are replayed, on what, against which controls."""

from __future__ import annotations

import pytest
from ace_makers import ACE, add, change, learn, trajectory

from combee.errors import BugError
from combee.methods.ace import Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.replay import replay_candidates, replay_controls, replay_request
from combee.methods.protocol import Refusal, Verdict

RAN = {
    t.id: t
    for t in (
        trajectory("1@1"),
        trajectory("2@1"),
        trajectory("3@1", correct=True),
        trajectory("4@1", error="timeout"),
    )
}


def candidates(ledger: Ledger) -> list[str]:
    return [ledger.texts[d] for d in replay_candidates(ledger, trajectories=RAN)]


@pytest.mark.parametrize(
    ("sources", "wanted"),
    [
        (("1@1",), True),
        (("1@1", "1@2"), True),
        (("1@1", "2@1"), False),
        (("3@1",), False),
        (("4@1",), False),
        (("9@1",), False),
    ],
    ids=["wrong once", "same example twice", "two examples", "was right", "call failed", "not of this run"],
)
def test_single_source_entries_whose_trajectory_was_wrong_are_candidates(
    sources: tuple[str, ...], wanted: bool
) -> None:
    assert candidates(learn(add("Say so", *sources))) == (["Say so"] if wanted else [])


def test_decided_refused_and_given_entries_are_not_replayed() -> None:
    ledger = learn(add("Say so", "1@1"))
    digest = entry_digest("Say so")
    for fixed in (True, False):
        assert candidates(with_verdicts(ledger, [Verdict(digest, "1@1", fixed, 0)])) == []
    assert candidates(ACE.with_refusals(ledger, [Refusal(digest, "0", "leak", "")])) == []
    assert (
        candidates(learn(add("Say so", "1@1"), start=ACE.initial("[a-1] helpful=0 harmful=0 :: Say so")))
        == []
    )


def test_disputed_entries_are_replayed_first_whatever_their_support() -> None:
    ledger = learn(
        add("Bonds: divide by 365 days", "1@1", "2@1"),
        add("Bonds: divide by 360 days", "2@1", "9@1"),
        add("Say so", "1@1"),
    )
    got = candidates(ledger)
    assert set(got[:2]) == {"Bonds: divide by 365 days", "Bonds: divide by 360 days"} and got[2:] == [
        "Say so"
    ]


def request(ledger: Ledger, text: str) -> tuple[str, str]:
    got = replay_request(
        ledger, entry_digest(text), "", trajectories=RAN, budget_tokens=8000, verify="Replay"
    )
    return got.source, got.page.text


def test_a_replay_runs_on_the_wrong_source_without_rivals_and_replaced_entries() -> None:
    start = learn(add("Divide by 365 days", "1@1", "2@1"), add("Other rule", "1@1", "2@1"))
    ledger = learn(change("UPDATE", ("Divide by 365 days",), "Divide by 364 days", "2@1"), start=start)
    source, text = request(ledger, "Divide by 364 days")
    assert (
        source == "2@1"
        and "365" not in text
        and "Other rule" in text
        and text.endswith(":: Divide by 364 days\n")
    )
    disputed = learn(add("Divide by 365 days", "1@1", "2@1"), add("Divide by 360 days", "1@1", "2@1"))
    assert "365" not in request(disputed, "Divide by 360 days")[1]
    assert "contested" not in request(disputed, "Divide by 360 days")[1]


def test_what_has_no_wrong_trajectory_cannot_be_replayed() -> None:
    for text in ("Say so", "unknown"):
        with pytest.raises(BugError):
            request(learn(add("Say so", "3@1")), text)


def test_controls_are_chosen_by_hash_and_never_the_example_itself() -> None:
    right = [str(i) for i in range(50)]
    digest = entry_digest("Say so")
    got = replay_controls(digest, right, source="7@1")
    assert len(got) == 2 and got == replay_controls(digest, reversed(right), source="7@1")
    everyone = replay_controls(digest, right, source="7@1", count=99)
    assert len(everyone) == 49 and "7" not in everyone and everyone[:2] == got
    assert replay_controls(digest, []) == ()
    assert len({replay_controls(entry_digest(str(i)), right) for i in range(20)}) > 15


def test_a_verdict_wins_only_without_harm() -> None:
    assert [Verdict("d", "1@1", fixed, harmed).won for fixed in (True, False) for harmed in (0, 1)] == [
        True,
        False,
        False,
        False,
    ]
