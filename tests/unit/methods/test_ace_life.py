"""The life of an entry: sources, replays, votes, and what added, changed and retired it, run by run."""

from __future__ import annotations

import pytest
from ace_makers import ACE, add, change, learn, playbook, reflection

from combee.methods.ace import AceMethod
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.ledger import Harm, Ledger
from combee.methods.life import Event, Life
from combee.methods.protocol import INITIAL, Refusal, Verdict

RULE, BETTER = "Use net sales for margins.", "Use net sales for margins of 2020 and later only."
DIGEST = entry_digest(RULE)


def told(ledger: Ledger, entry: str = DIGEST, history: tuple[Ledger, ...] = ()) -> Life:
    life = ACE.life(ledger, entry, shown=playbook(ledger).text, history=history)
    assert life is not None
    return life


def said(life: Life) -> list[tuple[str, str, int | None, str]]:
    return [(one.what, one.run, one.iteration, one.words) for one in life.events]


def test_a_life_over_three_runs() -> None:
    first = with_verdicts(learn(add(RULE, "a-1@0")), [Verdict(DIGEST, "a-1@0", True, 0, ("a-7", "a-8"))])

    def next_run(ledger: Ledger, by: str) -> Ledger:
        handed_on = ACE.handed_on(ledger, playbook(ledger), by=by, train="ab" * 32)
        return ACE.started(handed_on.decode(), train="cd" * 32)

    second = next_run(first, "first-1")
    votes = (reflection(2, source="b-2@0", tags=((told(second).id, "helpful"),)),)
    second = learn(add(RULE, "b-3@0"), start=second, reflections=votes)
    third = next_run(second, "second-1")
    third = learn(change("UPDATE", (RULE,), BETTER, "c-4@0"), start=third)
    third = with_verdicts(third, [Verdict(DIGEST, "c-4@0", False, 0), Verdict(DIGEST, "c-5@0", False, 0)])
    life = told(third)
    better = next(one.id for one in [told(third, entry_digest(BETTER))])
    assert said(life) == [
        ("added", "first-1", 2, "learned from example a-1"),
        ("replayed", "first-1", 2, "replayed on example a-1: won, left 2 controls right"),
        ("backed", "second-1", 2, "learned from example b-3"),
        ("replayed", "", 2, "replayed on example c-4: lost"),
        ("changed", "", 2, f"replaced by {better} by example c-4"),
        ("replayed", "", None, "replayed on example c-5: lost"),
    ]
    assert (life.shown, life.left_out, life.won, life.lost) == (False, "replay", 1, 2)
    assert (life.helpful, life.harmful, life.sources) == (1, 0, ("a-1@0", "b-3@0"))
    assert said(told(third, entry_digest(BETTER)))[-1][3] == f"made from {life.id} by example c-4"


def test_a_replay_says_which_model_answered() -> None:
    ledger = with_verdicts(learn(add(RULE, "a-1@0")), [Verdict(DIGEST, "a-1@0", True, 0)])
    handed_on = AceMethod(model="small").handed_on(ledger, playbook(ledger), by="first", train="ab" * 32)
    told_of = told(ACE.started(handed_on.decode(), train="cd" * 32))
    assert [one.words for one in told_of.events][-1] == "replayed on example a-1: won, with small"


def test_the_ledgers_of_a_run_tell_the_iteration_of_what_no_source_dates() -> None:
    first = learn(add(RULE, "1@0"))
    second = first.join(Ledger(harms=frozenset({Harm(DIGEST, "8")})))
    third = learn(change("DELETE", (RULE,), "", "9@0"), start=second)
    life = told(third, history=(first, second, third))
    assert said(life)[1:] == [
        ("retired", "", 2, "spoilt row 8 of select, which came right without it"),
        ("changed", "", 3, "asked to be removed by example 9"),
    ]


def test_what_it_shares_with_other_wordings_is_counted_once() -> None:
    other = "Use the net sales for margins."
    ledger = learn(add(RULE, "1@0"), add(other, "2@0"))
    life = told(ledger)
    assert life.wordings == (told(ledger, entry_digest(other)).id,)
    assert life.sources == ("1@0", "2@0") and len(life.events) == 2


def test_a_refusal_is_told_and_an_own_entry_is_the_users() -> None:
    ledger = ACE.with_refusals(learn(add(RULE, "1@0")), [Refusal(DIGEST, "0" * 64, "injection", "an order")])
    assert said(told(ledger))[-1] == ("retired", "", None, "refused: an order")
    assert told(ledger).left_out == "injection"
    given = ACE.initial(f"## STRATEGIES\n[own-7] helpful=3 harmful=1 :: {RULE}\n")
    life = told(given, "own-7")
    assert life.events == (Event("added", "given by the user", "", 1),) and life.sources == (INITIAL,)
    assert (life.helpful, life.harmful, life.shown) == (3, 1, True)


@pytest.mark.parametrize("entry", ["str-000000", "ffff", DIGEST[:3], ""])
def test_what_names_no_entry_or_several_has_no_life(entry: str) -> None:
    assert ACE.life(learn(add(RULE, "1@0")), entry, shown="", history=()) is None


def test_an_id_and_the_first_digits_name_the_same() -> None:
    ledger = learn(add(RULE, "1@0"))
    life = told(ledger)
    assert told(ledger, life.id) == told(ledger, DIGEST[:8]) == life
