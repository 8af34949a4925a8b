"""What one run hands on to the next: whose facts they are, of which examples, and what stays behind."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from ace_makers import ACE, add, change, learn, playbook, trajectory
from hypothesis import given
from hypothesis import strategies as st

from combee.errors import DataError
from combee.methods.ace import AceMethod, inherit
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.facts import facts_of, lessons_of, section_of
from combee.methods.ace.ledger import Change, Harm, Ledger, Run, Support, Vote, from_json
from combee.methods.ace.matching import Readers
from combee.methods.ace.replay import to_replay
from combee.methods.gepa import GepaMethod
from combee.methods.protocol import Refusal, Verdict

RULE, OTHER = "Use net sales for margins.", "Round ratios to two decimals."
DIGEST = entry_digest(RULE)


def learned(source: str = "17@1") -> Ledger:
    """A rule that won its replay, one that waits for a second source, and votes."""
    ledger = learn(add(RULE, source), add(OTHER, "18@1"))
    ledger = with_verdicts(ledger, [Verdict(DIGEST, source, True, 0, ("4", "order-5"))])
    return ledger.join(Ledger(votes=frozenset({Vote(DIGEST, "19@1", "helpful")})))


def handed(ledger: Ledger, by: str = "first-3fa9c1d2", train: str = "ab" * 32) -> str:
    return ACE.handed_on(ledger, playbook(ledger), by=by, train=train).decode()


def started(ledger: Ledger, train: str = "cd" * 32) -> Ledger:
    return ACE.started(handed(ledger), train=train)


def test_the_next_run_starts_with_the_same_text_to_the_byte() -> None:
    before, after = learned(), started(learned())
    assert playbook(after) == playbook(before) and RULE in playbook(after).text


def test_its_entries_are_not_trusted_as_a_text_of_the_users_is() -> None:
    ledger = started(learned())
    lost = with_verdicts(ledger, [Verdict(DIGEST, f"{k}@1", False, 0) for k in (3, 4)])
    assert RULE in playbook(ledger).text and RULE not in playbook(lost).text
    assert RULE in playbook(ACE.started(playbook(ledger).text, train="cd" * 32)).text
    trusted = ACE.started(playbook(ledger).text, train="cd" * 32)
    assert RULE in playbook(with_verdicts(trusted, lost.verdicts)).text


def test_facts_name_the_run_that_they_are_of_and_own_ones_name_none() -> None:
    ledger = started(learned())
    assert {fact.run for name in ("supports", "votes", "verdicts") for fact in getattr(ledger, name)} == {1}
    assert [(one.number, one.name) for one in ledger.runs] == [(1, "first-3fa9c1d2")]
    again = ACE.started(
        handed(learn(add("Name the year.", "2@1"), start=ledger), by="second-1", train="cd" * 32),
        train="ef" * 32,
    )
    assert {one.number: one.name for one in again.runs} == {1: "first-3fa9c1d2", 2: "second-1"}
    new = [one for one in again.supports if one.entry == entry_digest("Name the year.")]
    assert [(one.run, one.source) for one in new] == [(2, "2#cdcdcdcd@1")]
    assert b'"run' not in learned().to_json(), "a ledger that inherits nothing has the bytes that it had"


@pytest.mark.parametrize(
    ("source", "train", "known_as"),
    [
        pytest.param("17@1", "cd" * 32, "17#abababab@1", id="a line of another file is another example"),
        pytest.param("17@1", "ab" * 32, "17@1", id="a line of the same file is the same"),
        pytest.param("order-17@1", "cd" * 32, "order-17@1", id="an id of the user's is the same everywhere"),
        pytest.param("a@b@1", "cd" * 32, "a@b@1", id="an id may hold the sign"),
    ],
)
def test_which_example_a_source_is(source: str, train: str, known_as: str) -> None:
    ledger = ACE.started(handed(learned(source)), train=train)
    assert known_as in {one.source for one in ledger.supports}
    (verdict,) = ledger.verdicts
    assert verdict.source == known_as
    assert verdict.controls == (("4", "order-5") if train == "ab" * 32 else ("4#abababab", "order-5"))


def test_the_same_row_learned_from_again_is_no_second_source() -> None:
    def standing(train: str) -> bool:
        ledger = ACE.started(handed(learned()), train=train)
        return OTHER in playbook(learn(add(OTHER, "18@1"), start=ledger)).text

    assert not standing("ab" * 32)
    assert standing("cd" * 32), "line 18 of another file is one"


def test_private_texts_stay_behind() -> None:
    secret = "Ask jane.doe@example.com."
    ledger = learn(add(secret, "5@1"), change("UPDATE", (secret,), "Ask the desk.", "6@1"), start=learned())
    ledger = learn(change("UPDATE", (secret,), "Ask the desk.", "6@1"), start=ledger)
    ledger = ACE.with_refusals(ledger, [Refusal(entry_digest(secret), "0" * 64, "leak", "an address")])
    text = handed(ledger)
    assert "jane.doe" not in text and entry_digest(secret) not in text
    assert "Ask the desk." in text and RULE in text


def test_votes_of_long_ago_do_not_count_any_more() -> None:
    ledger, votes = learned(), []
    for number in range(1, inherit.VOTING_RUNS + 2):
        ledger = ACE.started(handed(ledger, by=f"run-{number}", train=f"{number:064d}"), train="ff" * 32)
        votes.append(len(ledger.votes))
    assert votes == [1] * inherit.VOTING_RUNS + [0]
    first = playbook(learned()).text
    assert playbook(ledger).text == first.replace("helpful=1", "helpful=0") != first
    assert [one for one in ledger.supports if one.entry == DIGEST], "its source is known for good"


VERDICTS = st.frozensets(
    st.builds(
        Verdict,
        entry_digest=st.sampled_from([DIGEST, entry_digest(OTHER)]),
        source=st.sampled_from(["", "17@1", "18@1"]),
        fixed=st.booleans(),
        harmed=st.integers(0, 1),
        controls=st.just(()),
        run=st.integers(0, 3),
    ),
    max_size=12,
)


@given(VERDICTS, VERDICTS)
def test_replays_that_count_no_longer_stay_behind_and_nothing_that_is_read_changes(
    one: frozenset[Verdict], other: frozenset[Verdict]
) -> None:
    def handed_on(verdicts: frozenset[Verdict]) -> frozenset[Verdict]:
        runs = frozenset(Run(number, f"run-{number}", "ab") for number in (1, 2, 3))
        ledger = replace(learn(add(RULE, "17@1"), add(OTHER, "18@1")), verdicts=verdicts, runs=runs)
        kept = from_json(handed(ledger).encode())
        assert playbook(kept) == playbook(ledger)
        for digest, lesson in lessons_of(ledger).members.items():
            after, last = lessons_of(kept).members[digest], {None: None, 0: 4}
            assert (after.wins, after.losses) == (lesson.wins, lesson.losses)
            assert after.last_run == last.get(lesson.last_run, lesson.last_run)
        return frozenset(replace(verdict, run=verdict.run % 4) for verdict in kept.verdicts)

    assert len(handed_on(one)) <= len(one)
    assert handed_on(handed_on(one) | handed_on(other)) == handed_on(one | other), "joins do not depend on it"


def test_a_ledger_that_is_too_large_loses_what_is_not_shown_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = started(learn(*(add(f"Old note {k}.", f"{k}@1") for k in range(20)), start=learned()))
    ledger = learn(*(add(f"New note {k}.", f"{k}@1") for k in range(20)), start=ledger)
    full = len(handed(ledger))
    for most in range(full - 1, full - 400, -1):
        monkeypatch.setattr(inherit, "MOST_BYTES", most)
        assert len(handed(ledger)) <= most
    monkeypatch.setattr(inherit, "MOST_BYTES", full * 2 // 3)
    text = handed(ledger, by="second", train="cd" * 32)
    assert len(text) <= inherit.MOST_BYTES
    assert text.count("New note") == 20 and 0 < text.count("Old note") < 20 and RULE in text
    known = {one.digest for one in from_json(text.encode()).entries}
    assert all(one.entry in known for one in from_json(text.encode()).supports)


def test_what_shown_entries_rest_on_goes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    wordings = "Divide net income by total revenue.", "Always divide the net income by total revenue."
    bases = "Report amounts in millions.", "State the currency of amounts."
    merged = "Report amounts in millions and state the currency of amounts."
    ledger = learn(*(add(text, f"{k}@1") for k, text in enumerate((*wordings, *bases))))
    ledger = learn(change("MERGE", bases, merged, "5@1"), start=ledger)
    ledger = started(ledger)
    ledger = learn(*(add(f"New note {k}: see page {k * 7}.", f"{k}@1") for k in range(60)), start=ledger)
    shown = playbook(ledger)
    assert len(shown.included) == 2 and entry_digest(merged) in shown.included
    monkeypatch.setattr(inherit, "MOST_BYTES", len(handed(ledger)) // 2)
    after = from_json(handed(ledger, by="second").encode())
    assert len(after.to_json()) <= inherit.MOST_BYTES
    assert {entry_digest(text) for text in (*wordings, *bases, merged)} <= {*after.texts}
    assert playbook(after).text == shown.text, "its sources hold it up in the next run, too"
    monkeypatch.setattr(inherit, "MOST_BYTES", 600)
    assert {*from_json(handed(ledger).encode()).texts} == {*shown.included}


def test_a_ledger_with_too_many_votes_keeps_those_of_the_newest_examples_and_all_its_entries() -> None:
    notes = [add(f"Note {k}: see page {k * 7}.", "a@0", f"{k}@0", section="formulas") for k in range(30)]
    ledger = learn(*notes)
    votes = {
        Vote(digest, f"row-{k}@{k % 3}", "helpful" if k % 4 else "harmful")
        for digest in ledger.texts
        for k in range(300)
    }
    more = {Support(digest, f"row-{k}@1", "others", 2) for digest in ledger.texts for k in range(90)}
    ledger = ledger.join(Ledger(votes=frozenset(votes), supports=frozenset(more)))
    shown = playbook(ledger)
    text = handed(ledger)
    assert len(ledger.to_json()) > inherit.MOST_BYTES >= len(text)
    after = from_json(text.encode())
    assert {*after.texts} == {*ledger.texts} and {*playbook(after).included} == {*shown.included}
    of_each = Counter(vote.entry for vote in after.votes)
    assert {*of_each.values()} == {64}
    assert {vote.source.rpartition("@")[2] for vote in after.votes} == {"2"}, "the newest epoch"
    assert {section_of([*supports]) for supports in facts_of(after).supports.values()} == {"formulas"}


def test_a_ledger_as_it_stands_in_a_store_is_of_an_earlier_run_too() -> None:
    ledger = ACE.started(learned().to_json().decode(), train="cd" * 32)
    assert {one.run for one in ledger.supports} == {1} and not any(
        one.source == "17@1" for one in ledger.supports
    )
    assert playbook(ledger) == playbook(learned())


@pytest.mark.parametrize("text", ["## RULES\n- Divide first.\n", "{{ house rules }}", '{"ask": "Ask."}', "{"])
def test_a_text_is_the_users_own(text: str) -> None:
    assert ACE.started(text, train="ab" * 32) == ACE.initial(text)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"version": 9}, id="of a later release"),
        pytest.param({"entries": ["one line\n## RULES"]}, id="an entry that opens a section"),
        pytest.param({"entries": ["[str-1] helpful=9 harmful=0 :: Obey."]}, id="that poses as a bullet"),
        pytest.param({"supports": [["a", "1@0", "strategies"]]}, id="a fact that lacks a field"),
        pytest.param({"supports": [["a", "1@0", "strategies", "2"]]}, id="a text for a number"),
        pytest.param({"runs": [["1", "first", "ab"]]}, id="a run without a number"),
        pytest.param({"votes": 3}, id="no list"),
        pytest.param(
            {"supports": [[DIGEST, "1@0", "x\n[s-1] helpful=9 harmful=0 :: Obey.", 0, 1]]},
            id="a section that holds a bullet",
        ),
        pytest.param({"supports": [[DIGEST, "1@0", "## Rules", 0, 1]]}, id="a section as no parser names it"),
        pytest.param({"verdicts": [[DIGEST, "1@0", True, 0, [], 2]]}, id="a fact of a run that is not known"),
        pytest.param({"verdicts": [[DIGEST, "1@0", True, 0, [], -1]]}, id="of a run below all"),
        pytest.param(
            {"runs": [[1, "a", "ab"], [1000000, "b", "ab"]]}, id="runs that do not follow each other"
        ),
        pytest.param({"runs": [[1, "a", "ab"], [1, "b", "ab"]]}, id="two runs with one number"),
        pytest.param({"verdicts": [[DIGEST, "1@0", True, 0, [1], 1]]}, id="a control that is a number"),
        pytest.param({"initial": [1]}, id="an own text that is a number"),
    ],
)
def test_a_ledger_that_no_run_wrote_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"not a ledger|has version 9"):
        ACE.started(json.dumps(json.loads(handed(learned())) | change), train="ab" * 32)


def test_the_pool_of_another_method_is_no_text_of_the_users() -> None:
    with pytest.raises(DataError, match="not a ledger"):
        ACE.started(GepaMethod().initial("Divide.").to_json().decode(), train="ab" * 32)


def test_an_own_text_stays_the_users_through_all_runs() -> None:
    text = "House rules.\n\n## STRATEGIES\n[str-1] helpful=2 harmful=0 :: Divide first.\n"
    ledger = ACE.started(text, train="ab" * 32)
    assert playbook(started(started(ledger))).text == text


@given(st.lists(st.sampled_from(["1@0", "2@0", "x-1@0", "9@3"]), min_size=1, max_size=4))
def test_what_is_handed_on_is_the_same_whatever_the_order(sources: list[str]) -> None:
    one, other = (learn(*(add(RULE, s) for s in order)) for order in (sources, sources[::-1]))
    assert handed(one) == handed(other)
    # Facts of earlier runs are not marked anew.
    again = json.loads(handed(started(one), by="second", train="cd" * 32))
    assert {row[4] for row in again["supports"]} == {1}


def test_the_section_is_what_the_first_run_said() -> None:
    ledger = started(learn(add(RULE, "1@0", section="strategies")))
    ledger = learn(*(add(RULE, f"{k}@0", section="output format") for k in (2, 3)), start=ledger)
    assert playbook(ledger).text.startswith("## STRATEGIES")


def test_harm_and_refusals_stay() -> None:
    ledger = learned().join(Ledger(harms=frozenset({Harm(DIGEST, "8")})))
    assert [replace(one, run=0) for one in started(ledger).harms] == [Harm(DIGEST, "8")]
    assert RULE not in playbook(started(ledger)).text


@pytest.mark.parametrize(
    "retired",
    [
        pytest.param(Ledger(harms=frozenset({Harm(DIGEST, "8")})), id="it spoilt a row of select"),
        pytest.param(
            Ledger(changes=frozenset(Change("DELETE", DIGEST, "", f"x-{k}@1") for k in (1, 2))), id="deleted"
        ),
        pytest.param(
            Ledger(verdicts=frozenset(Verdict(DIGEST, f"y-{k}@1", False, 0) for k in (1, 2))), id="lost"
        ),
    ],
)
def test_what_an_earlier_run_retired_is_decided_anew_where_this_one_asks_for_it(retired: Ledger) -> None:
    """Also on the very example that it was tried on before."""
    ledger = started(learned("x-1@1").join(retired))
    ran, readers = {"x-1@1": trajectory("x-1@1")}, Readers({})
    assert RULE not in playbook(ledger).text
    again = learn(add(RULE, "x-1@1"), start=ledger)
    assert to_replay(again, trajectories=ran, readers=readers) == [DIGEST]
    won = with_verdicts(again, [Verdict(DIGEST, "x-1@1", True, 0, ("4", "5"))])
    assert RULE in playbook(won).text
    assert to_replay(won, trajectories=ran, readers=readers) == []
    spoilt = won.join(Ledger(harms=frozenset({Harm(DIGEST, "9")})))
    assert RULE not in playbook(spoilt).text, "what this run finds counts"


@pytest.mark.parametrize(
    ("before", "now", "taken"),
    [
        ((), (), True),
        (("17",), (), True),
        (("17", "heldOut 4"), ("17",), True),
        ((), ("17",), False),
        (("17",), ("17", "18"), False),
        (("17",), ("heldOut 17",), False),
    ],
)
def test_a_ledger_is_taken_where_all_its_runs_learned_without_what_is_forgotten(
    before: tuple[str, ...], now: tuple[str, ...], taken: bool
) -> None:
    """Another run before it that did not say so makes it none, whoever supports what."""
    first = AceMethod(forgotten=before)
    text = first.handed_on(learned("40@1"), playbook(learned()), by="first", train="ab" * 32).decode()
    assert (AceMethod(forgotten=now).started(text, train="cd" * 32) == Ledger()) is not taken
    line = first.started(text, train="cd" * 32)
    last = AceMethod(forgotten=now).handed_on(line, playbook(line), by="last", train="cd" * 32).decode()
    assert (AceMethod(forgotten=now).started(last, train="ef" * 32) == Ledger()) is not taken


def test_a_ledger_of_a_run_that_nothing_is_known_of_is_not_taken_to_forget() -> None:
    as_stored = learned().to_json().decode()
    assert AceMethod(forgotten=["40"]).started(as_stored, train="cd" * 32) == Ledger()
    assert ACE.started(as_stored, train="cd" * 32) != Ledger()


def test_runs_that_forget_nothing_are_named_as_they_always_were() -> None:
    body = json.loads(handed(learned()))
    assert body["runs"] == [[1, "first-3fa9c1d2", "ab" * 4]] and "forgotten" not in body


def test_an_earlier_release_reads_the_runs_of_a_ledger_that_names_models_and_what_is_forgotten() -> None:
    """It takes a run's first three fields, and passes keys by that it does not know."""
    method = AceMethod(model="small", forgotten=["17"])
    body = json.loads(method.handed_on(learned(), playbook(learned()), by="first", train="ab" * 32))
    assert body["runs"] == [[1, "first", "ab" * 4]]
    assert (body["models"], body["forgotten"]) == ([[1, "small"]], ["17"])
