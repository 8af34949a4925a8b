"""What a merge call names instead of writing: it stands word for word, and nothing is lent or lost by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ace_makers import ACE, add, carried, change, reflection
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.text import kept_in
from combee.methods.protocol import Merged, Rendered, Update

ONE = "For EBITDA add back 3 operating leases"
TWO = "For EBITDA always add back 3 operating leases"
NARROW = "For EBITDA under IFRS add back 3 operating leases"
OTHER = "For EBITDA add back 4 operating leases"
NEGATED = "For EBITDA never add back 3 operating leases"
MEMBERS = [
    add(ONE, "1@1"),
    add(TWO, "2@1"),
    add(OTHER, "3@1"),
    add(NEGATED, "4@1"),
    add(NARROW, "5@1"),
    change("UPDATE", ("a",), ONE, "6@1"),
    change("UPDATE", ("b",), ONE, "7@1"),
    change("DELETE", ("a",), "", "8@1"),
    change("DELETE", ("a",), "", "9@1"),
    add("Round to 2 decimals", "1@1", "2@1"),
    add("Read the question with care", "3@1"),
]


def merge(keep: object, *entries: dict[str, Any], members: list[Update] = MEMBERS) -> Merged:
    text = json.dumps({"keep": keep, "entries": list(entries)})
    return ACE.parse_merge(text, updates=members, playbook=Rendered("", 0))


def written(text: str, *ids: str) -> dict[str, Any]:
    return {"op": "ADD", "section": "s", "text": text, "entries": list(ids), "bullets": [], "reason": ""}


def test_a_kept_entry_is_the_one_given() -> None:
    assert merge([["u-3"]]).updates == [MEMBERS[2]]
    assert merge([["u-8"], ["u-6"]]).updates == [MEMBERS[7], MEMBERS[5]]


def test_the_first_of_a_list_stands_for_those_that_say_the_same() -> None:
    [got] = merge([["u-2", "u-1"]]).updates
    assert (got.text, got.sources) == (TWO, {"1@1", "2@1"})
    [gone] = merge([["u-8", "u-9"]]).updates
    assert (gone.op, gone.sources) == ("DELETE", {"8@1", "9@1"})


@pytest.mark.parametrize("other", ["u-3", "u-4", "u-5", "u-6", "u-10"])
def test_support_is_not_lent_to_a_rule_that_was_not_stated(other: str) -> None:
    """Another number, a negation, one more name, another target, another rule: each stays by itself."""
    for ids in (["u-1", other], [other, "u-1"]):
        got = merge([ids]).updates
        assert len(got) == 2 and {u.sources for u in got} == {
            MEMBERS[0].sources,
            MEMBERS[int(other[2:]) - 1].sources,
        }


def test_citations_go_where_sources_go() -> None:
    members = [add(ONE, "1@1"), Update("ADD", "s", TWO, frozenset({"2@1"}), cited=frozenset({"2@1", "9@1"}))]
    [got] = merge([["u-1", "u-2"]], members=members).updates
    assert got.cited == {"2@1", "9@1"}
    assert carried(reflection(9, ONE, source="9@1"), [got]) == ("r-00009.1",)


@pytest.mark.parametrize(
    "keep",
    [
        ["u-1", "u-3"],
        "u-1, u-3",
        [["[u-1]"], ["u-3"], []],
        [["u-1"], ["u-3", "u-1"], ["u-1"]],
        [["u-1", "u-999"], ["u-3"], ["nobody-1"]],
        [["u-1"], None, 7, ["u-3", None], {"x": "u-2"}],
    ],
)
def test_every_form_is_read_and_an_id_counts_once(keep: object) -> None:
    assert {(u.text, u.sources) for u in merge(keep).updates} == {
        (ONE, frozenset({"1@1"})),
        (OTHER, frozenset({"3@1"})),
    }


def test_unknown_ids_are_counted_and_change_nothing() -> None:
    got = merge([["u-1", "u-99"], ["x"]], written("Round to 2 decimals", "u-10", "u-98", "r-1"))
    assert got.unknown_ids == 4
    assert [u.text for u in got.updates] == [ONE, "Round to 2 decimals"]
    assert merge([["u-1"]]).unknown_ids == 0


def test_what_is_kept_stands_although_it_was_taken_in_elsewhere() -> None:
    vague = "Stay careful with EBITDA"
    got = merge([["u-1"]], written(vague, "u-1", "u-3"))
    assert [u.text for u in got.updates] == [ONE, vague]
    safe = ACE.reconcile_merge([MEMBERS[0], MEMBERS[2]], got.updates)
    assert {(u.text, u.sources) for u in safe} == {(ONE, frozenset({"1@1"})), (OTHER, frozenset({"3@1"}))}


def test_a_reply_that_only_keeps_needs_no_list_of_entries() -> None:
    got = ACE.parse_merge('{"keep": [["u-1"]]}', updates=MEMBERS, playbook=Rendered("", 0))
    assert got.updates == [MEMBERS[0]]


def test_a_reply_cut_short_keeps_what_it_named() -> None:
    whole = json.dumps({"keep": [["u-1", "u-2"], ["u-3"]], "entries": [written(NARROW, "u-5")]})
    got = ACE.parse_merge(whole[: whole.index("entries")], updates=MEMBERS, playbook=Rendered("", 0))
    assert [u.text for u in got.updates] == [ONE, OTHER]


IDS = st.sampled_from([f"u-{n}" for n in range(len(MEMBERS) + 3)] + ["", "r-00001", "u-1.2"])
KEEP = st.lists(st.lists(IDS, max_size=5), max_size=8)
WRITTEN = st.lists(
    st.builds(
        lambda text, ids: written(text, *ids),
        st.sampled_from([ONE, TWO, OTHER, "Stay careful", "Add back 3 leases and 7 loans"]),
        st.lists(IDS, max_size=4),
    ),
    max_size=4,
)


def holds(text: str, other: str) -> bool:
    """Whether ``text`` says all that ``other`` does."""
    return text == other or kept_in(other, text)


def alike(one: Update, other: Update) -> bool:
    """Whether two updates do the same to the same entries, as far as anchors tell."""
    same = (one.op, one.base) == (other.op, other.base)
    return same and holds(one.text, other.text) and holds(other.text, one.text)


@given(KEEP)
@settings(max_examples=200, deadline=None)
def test_what_is_kept_was_given_word_for_word_with_the_support_of_its_like(keep: list[list[str]]) -> None:
    got = merge(keep).updates
    for update in got:
        like = [member for member in MEMBERS if alike(member, update)]
        assert update.text in {member.text for member in like}
        assert update.sources <= {source for member in like for source in member.sources}
    for number, member in enumerate(MEMBERS, start=1):
        if any(f"u-{number}" in ids for ids in keep):
            assert any(alike(update, member) and member.sources <= update.sources for update in got)


@given(KEEP, WRITTEN)
@settings(max_examples=200, deadline=None)
def test_a_merge_call_can_lose_no_member_and_make_up_no_source(
    keep: list[list[str]], entries: list[dict[str, Any]]
) -> None:
    got = ACE.reconcile_merge(MEMBERS, merge(keep, *entries).updates)
    texts = {m.text for m in MEMBERS}
    assert {source for u in got for source in u.sources} == {source for m in MEMBERS for source in m.sources}
    for member in MEMBERS:
        assert any(member.sources <= u.sources and holds(u.text, member.text) for u in got)
    for update in got:
        assert update.text in texts


@given(KEEP, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_invented_and_repeated_ids_change_nothing(keep: list[list[str]], luck: Any) -> None:
    noisy = [list(ids) for ids in keep]
    for ids in noisy:
        ids.insert(luck.randint(0, len(ids)), "u-4711")
        ids.extend(ids[:2])
    assert merge([*noisy, *keep]).updates == merge(keep).updates
