"""Which of the proposals of curators are new."""

from __future__ import annotations

from ace_makers import ACE, add, learn

from combee.methods.ace import Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.protocol import Proposals, Refusal, Rendered, Update, Verdict

WRONG, RIGHT, WAITING = (
    "For ROI subtract 200 from the gain.",
    "For EBITDA add back 15% of rents.",
    "When rates are quarterly divide by 4.",
)


def tried_out(start: Ledger | None = None) -> Ledger:
    """A ledger in which one entry lost its replay, one won it, and one was not replayed."""
    ledger = learn(add(WRONG, "1@0"), add(RIGHT, "2@0"), add(WAITING, "3@0"), start=start)
    verdicts = [Verdict(entry_digest(WRONG), "1@0", False, 0), Verdict(entry_digest(RIGHT), "2@0", True, 0)]
    return with_verdicts(ledger, verdicts)


def shown(ledger: Ledger) -> Rendered:
    (text,) = ACE.working(ledger, budget_tokens=8000, verify="Replay")
    return text


def new(before: Ledger, *updates: Update) -> Proposals:
    return ACE.proposals(before, learn(*updates, start=before), list(updates), [shown(before)])


def test_what_was_decided_before_is_repeated_and_what_waits_is_backed() -> None:
    before = tried_out()
    assert new(before) == Proposals()
    assert new(before, add(WRONG, "7@0"), add(RIGHT, "8@0")) == Proposals(2, 2)
    assert new(before, add(WRONG.replace("the gain", "a gain"), "7@0")) == Proposals(1, 1)
    assert new(before, add(WAITING, "7@0")) == Proposals(1, 0)
    assert new(before, add("Report totals in 1,000s.", "7@0"), add(WRONG, "7@0")) == Proposals(2, 1)
    refused = ACE.with_refusals(before, [Refusal(entry_digest(WAITING), "", "injection", "why")])
    assert new(refused, add(WAITING, "9@0")) == Proposals(1, 1)


def test_the_first_iteration_repeats_nothing() -> None:
    assert new(ACE.empty(), add(WRONG, "1@0"), add(RIGHT, "2@0")) == Proposals(2, 0)
