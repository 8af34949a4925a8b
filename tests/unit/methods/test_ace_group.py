"""The group-by and what is made of a merge call: nothing is lost, nothing is made up."""

from __future__ import annotations

import random

from ace_makers import ACE, add, change
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.methods.protocol import Update

ONE = "For EBITDA add back 3 operating leases"
TWO = "For EBITDA always add back 3 operating leases"
THREE = "For EBITDA add back 4 operating leases"


def test_equal_updates_join_without_a_call_and_unite_their_sources() -> None:
    got = ACE.group(
        [add(ONE, "1@1"), add(ONE, "2@1", section="calc"), add(ONE, "3@1", section="calc")], cap=8
    )
    assert got.clusters == []
    assert [(u.sources, u.section) for u in got.passed] == [({"1@1", "2@1", "3@1"}, "calc")]


def test_wordings_of_one_source_join_and_wordings_of_two_sources_are_a_cluster() -> None:
    same = ACE.group([add(ONE, "1@1"), add(TWO, "1@1")], cap=8)
    assert (len(same.passed), same.clusters) == (1, []) and same.passed[0].text == TWO
    other = ACE.group([add(ONE, "1@1"), add(TWO, "2@1"), add("Round to 2", "3@1")], cap=8)
    assert [u.text for u in other.passed] == ["Round to 2"]
    assert [{u.text for u in c} for c in other.clusters] == [{ONE, TWO}]


def test_other_numbers_and_other_targets_are_never_brought_together() -> None:
    got = ACE.group(
        [
            add(ONE, "1@1"),
            add(THREE, "2@1"),
            change("UPDATE", ("a",), ONE, "3@1"),
            change("UPDATE", ("b",), TWO, "4@1"),
            change("DELETE", ("a",), "", "5@1"),
            change("DELETE", ("a",), "", "6@1"),
        ],
        cap=8,
    )
    assert got.clusters == [] and len(got.passed) == 5


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_order_of_updates_does_not_matter(shuffler: random.Random) -> None:
    updates = [
        add(text, f"{i % 4}@1", section=f"s{i % 2}")
        for i, text in enumerate([ONE, TWO, THREE, ONE, "Net", "Net"])
    ]
    updates.append(change("UPDATE", ("a", "b"), ONE, "9@1"))
    want = ACE.group(updates, cap=2)
    shuffler.shuffle(updates)
    assert ACE.group(updates, cap=2) == want


def test_clusters_stay_under_their_cap_and_lose_nobody() -> None:
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    updates = [add(f"For EBITDA add back 3 operating leases {w}", f"{i}@1") for i, w in enumerate(words)]
    got = ACE.group(updates, cap=3)
    assert all(1 < len(c) <= 3 for c in got.clusters)
    assert sum(map(len, got.clusters)) + len(got.passed) == len(updates)
    assert ACE.group([], cap=3).clusters == []


def test_a_faithful_result_replaces_its_members() -> None:
    members = [add(ONE, "1@1"), add(TWO, "2@1")]
    got = ACE.reconcile_merge(members, [add("For EBITDA, add back 3 operating leases", "1@1", "2@1")])
    assert [(u.text, u.sources) for u in got] == [("For EBITDA, add back 3 operating leases", {"1@1", "2@1"})]


def test_a_member_whose_anchors_are_lost_passes_verbatim() -> None:
    members = [add(ONE, "1@1"), add("For EBITDA under IFRS add back 3 operating leases", "2@1")]
    got = ACE.reconcile_merge(members, [add("For EBITDA add back 3 operating leases", "1@1", "2@1")])
    assert {u.text: set(u.sources) for u in got} == {ONE: {"1@1"}, members[1].text: {"2@1"}}


def test_a_result_that_makes_something_up_is_dropped_and_its_members_stay() -> None:
    members = [add(ONE, "1@1"), add(TWO, "2@1")]
    for made_up in (
        "For EBITDA add back 3 operating leases and 7 loans",
        "Stay careful with EBITDA",
        "Do not add back 3 operating leases for EBITDA",
    ):
        assert {u.text for u in ACE.reconcile_merge(members, [add(made_up, "1@1", "2@1")])} == {ONE, TWO}
    assert {u.text for u in ACE.reconcile_merge(members, [])} == {ONE, TWO}
    assert {
        u.text for u in ACE.reconcile_merge(members, [Update("DELETE", "s", "", frozenset({"1@1"}), ("d",))])
    } == {ONE, TWO}


def test_the_targets_of_members_are_kept_through_a_merge_call() -> None:
    members = [change("UPDATE", ("a",), ONE, "1@1"), change("UPDATE", ("a",), TWO, "2@1")]
    [got] = ACE.reconcile_merge(members, [add(TWO, "1@1", "2@1")])
    assert (got.op, got.base) == ("UPDATE", members[0].base)
