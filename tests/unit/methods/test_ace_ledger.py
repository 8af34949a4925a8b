"""The ledger: grow-only sets whose join is union, and a canonical form."""

from __future__ import annotations

import itertools
import json

import pytest
from ace_makers import ACE, add, change, learn, playbook, reflection
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.errors import DataError
from combee.methods.ace import Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.protocol import Refusal, Update, Verdict

TEXTS = st.sampled_from(
    [
        "Use 365 days a year",
        "Use 360 days a year",
        "Round to 2 decimals",
        "Use 366 days if leap year",
        "Net of tax",
    ]
)
SOURCES = st.frozensets(
    st.sampled_from([f"{i}@{e}" for i in range(5) for e in (1, 2)]), min_size=1, max_size=3
)


@st.composite
def updates(draw: st.DrawFn) -> Update:
    op = draw(st.sampled_from(["ADD", "ADD", "UPDATE", "MERGE", "DELETE"]))
    count = {"ADD": 0, "MERGE": 2}.get(op, 1)
    base = tuple(draw(st.lists(TEXTS, min_size=count, max_size=count, unique=True)))
    return change(op, base, "" if op == "DELETE" else draw(TEXTS), *draw(SOURCES))


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    ledger = ACE.initial(draw(st.sampled_from(["", "## A\n[a-1] helpful=1 harmful=0 :: Net of tax\n"])))
    ledger = ACE.apply(ledger, draw(st.lists(updates(), max_size=6)), [], iteration=draw(st.integers(1, 2)))
    for digest in list(ledger.texts)[:2]:
        if draw(st.booleans()):
            ledger = with_verdicts(ledger, [Verdict(digest, "1@1", draw(st.booleans()), 0, ("7", "8"))])
        if draw(st.booleans()):
            ledger = ACE.with_refusals(ledger, [Refusal(digest, "0" * 64, "leak", "it seems private")])
    return ledger


@given(ledgers(), ledgers(), ledgers())
@settings(max_examples=60, deadline=None)
def test_join_is_commutative_associative_idempotent_and_has_an_identity(
    a: Ledger, b: Ledger, c: Ledger
) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a == a.join(ACE.empty())
    assert a.join(b).join(b) == a.join(b)


@given(ledgers())
@settings(max_examples=60, deadline=None)
def test_canonical_json_round_trips_to_the_same_bytes_and_digest(ledger: Ledger) -> None:
    again = ACE.from_json(ledger.to_json())
    assert again == ledger and again.to_json() == ledger.to_json() and hash(again) == hash(ledger)
    assert ledger.to_json().isascii()
    assert playbook(again).text == playbook(ledger).text


@given(ledgers(), ledgers())
@settings(max_examples=40, deadline=None)
def test_a_playbook_depends_on_the_facts_and_not_on_who_joined_first(a: Ledger, b: Ledger) -> None:
    for verify in ("Replay", "Support", "Off"):
        assert playbook(a.join(b), verify) == playbook(b.join(a), verify)


def test_updates_in_any_order_and_split_over_any_calls_give_one_ledger() -> None:
    start = learn(add("Use 365 days", "1@1"))
    made = [
        add("Round to 2", "2@1"),
        change("UPDATE", ("Use 365 days",), "Use 360 days", "3@1"),
        add("Round to 2", "4@1"),
    ]
    digests = set()
    for order in itertools.permutations(made):
        digests.add(ACE.apply(start, list(order), [], iteration=2).digest)
        one_by_one = start
        for update in order:
            one_by_one = ACE.apply(one_by_one, [update], [], iteration=2)
        digests.add(one_by_one.digest)
    assert len(digests) == 1


def test_applying_the_same_again_changes_nothing() -> None:
    seen = reflection(1, tags=(("stra-000000", "helpful"),))
    once = learn(add("Use 365 days", "1@1"), reflections=(seen,))
    assert ACE.apply(once, [add("Use 365 days", "1@1")], [seen], iteration=1) == once


def test_copies_of_one_example_are_one_source_however_often_they_come() -> None:
    ledger = learn(add("Use 365 days", "1@1"), add("Use 365 days", "1@2"), add("Use 365 days", "1@1"))
    assert playbook(ledger, "Support").included == ()
    assert playbook(learn(add("Use 365 days", "2@1"), start=ledger), "Support").included != ()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"version":1}', b'{"version":1,"entries":[1]}', b"\xff", b"null"],
    ids=["empty", "list", "object", "bare", "numbers", "binary", "null"],
)
def test_what_is_no_ledger_is_a_data_error(data: bytes) -> None:
    with pytest.raises(DataError, match="not a ledger"):
        ACE.from_json(data)


def test_another_version_is_refused_by_name() -> None:
    body = json.loads(ACE.empty().to_json()) | {"version": 99}
    with pytest.raises(DataError, match="version 99"):
        ACE.from_json(json.dumps(body).encode())


def test_updates_that_say_nothing_leave_the_rest_alone() -> None:
    ledger = learn(
        add("Use 365 days", "1@1"),
        add("   ", "2@1"),
        Update("ADD", "s", "No source", frozenset()),
        Update("UPDATE", "s", "Use 360 days", frozenset({"3@1"}), ("no such digest",)),
        Update("DELETE", "s", "", frozenset({"3@1", "4@1"}), ("no such digest",)),
    )
    assert sorted(ledger.texts.values()) == ["Use 360 days", "Use 365 days"]
    assert ledger.changes == frozenset()


def test_new_entries_are_those_the_first_ledger_lacks() -> None:
    before = learn(add("Use 365 days"))
    after = learn(add("Round to 2"), add("Use 365 days", "9@1"), start=before)
    assert [after.texts[d] for d in ACE.new_entries(before, after)] == ["Round to 2"]
