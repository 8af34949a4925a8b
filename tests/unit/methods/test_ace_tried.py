"""What curators are told of entries that did not hold, and which of their proposals are new."""

from __future__ import annotations

from ace_makers import ACE, add, learn

from combee.algo.tokens import estimate_tokens
from combee.methods.ace import Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.ledger import Harm
from combee.methods.protocol import TRIED_TOKENS, Proposals, Refusal, Rendered, Update, Verdict

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


def leaf(ledger: Ledger) -> str:
    return ACE.leaf_prompt(shown(ledger), []).messages[0].content


def new(before: Ledger, *updates: Update) -> Proposals:
    return ACE.proposals(before, learn(*updates, start=before), list(updates), [shown(before)])


def test_a_curator_is_told_what_lost_its_replay_and_nothing_else() -> None:
    plain = learn(add(WRONG))
    assert "TRIED AND REFUSED" not in leaf(plain)
    assert (
        leaf(plain)
        == ACE.leaf_prompt(ACE.render(plain, budget_tokens=8000, verify="Replay"), []).messages[0].content
    )
    told = leaf(tried_out()).partition("# TRIED AND REFUSED (1)")[2]
    assert f"- {WRONG} (with it, its own example stayed wrong or a right one went wrong)" in told
    assert RIGHT not in told and WAITING not in told


def test_a_dropped_entry_is_told_without_a_word_of_what_it_spoilt() -> None:
    ledger = tried_out().join(Ledger(harms=frozenset({Harm(entry_digest(RIGHT), "select-row-77")})))
    assert f"- {RIGHT} (it spoilt answers to other examples)" in leaf(ledger)
    assert "select-row-77" not in leaf(ledger)


def test_agents_see_nothing_of_it_and_an_entry_with_private_data_nobody() -> None:
    assert shown(tried_out()).shown == ACE.render(tried_out(), budget_tokens=8000, verify="Replay").shown
    refusal = Refusal(entry_digest(WRONG), "", "leak", "why")
    assert WRONG not in leaf(ACE.with_refusals(tried_out(), [refusal]))


def test_what_is_told_is_bounded_and_the_latest_comes_first() -> None:
    ledger = ACE.empty()
    texts = [f"For case R-{k:03d} use a rate of {k} points, {'and so on ' * 20}." for k in range(40)]
    for k, text in enumerate(texts):
        ledger = ACE.apply(ledger, [add(text, f"{k}@0")], [], iteration=k)
    ledger = with_verdicts(
        ledger, [Verdict(entry_digest(text), "", False, 1, ("9",)) for text in ledger.texts.values()]
    )
    told = shown(ledger).tried
    assert 0 < sum(estimate_tokens(line) for _, line in told) <= TRIED_TOKENS
    assert told[0][1].startswith("For case R-039")


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
