"""What stands in a playbook: UPDATE, MERGE, DELETE, disputes, votes, verification, refusals."""

from __future__ import annotations

import pytest
from ace_makers import ACE, add, change, learn, playbook, reflection, why_left_out

from combee.algo.graph import cyclic_pairs
from combee.methods.ace import Ledger
from combee.methods.ace.change import with_verdicts
from combee.methods.ace.conflicts import contradictions
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.ledger import Harm
from combee.methods.protocol import INITIAL, Refusal, Verdict, Verify

YEAR, BANK = "Interest: divide by 365 days", "Interest: divide by 360 days"


def texts_of(ledger: Ledger, verify: Verify = "Replay") -> set[str]:
    return {ledger.texts[d] for d in playbook(ledger, verify).included}


def verdict(text: str, *, fixed: bool, harmed: int = 0, source: str = "1@1") -> Verdict:
    return Verdict(entry_digest(text), source, fixed, harmed, ("8", "9"))


def test_a_playbook_after_paraphrase_contradiction_and_concurrent_edits_reads_like_this() -> None:
    given = (
        "## RULES\n[r-1] helpful=2 harmful=0 :: Take tax off at the end\n"
        "[r-2] helpful=1 harmful=0 :: Growth: subtract old from new\n"
        "[r-3] helpful=4 harmful=1 :: Growth: divide by the old value\n"
        "[r-4] helpful=0 harmful=0 :: Guess when unsure\n"
    )
    growth = ("Growth: subtract old from new", "Growth: divide by the old value")
    merged = "Growth: subtract old from new, divide by the old value"
    ledger = learn(
        # paraphrased: two wordings of one rule, one example each
        add("Round every final answer to 2 decimals", "1@1"),
        add("Always round every final answer to 2 decimals", "2@1"),
        # contradicting: two examples each
        add(YEAR, "3@1", "4@1"),
        add(BANK, "5@1", "6@1"),
        # concurrent edits of one bullet, the same in two calls and a MERGE and a DELETE beside it
        change("UPDATE", ("Take tax off at the end",), "Take 21% tax off before interest", "7@1"),
        change("UPDATE", ("Take tax off at the end",), "Take 21% tax off before interest", "8@1"),
        change("MERGE", growth, merged, "9@1", "10@1"),
        change("DELETE", ("Guess when unsure",), "", "11@1", "12@1"),
        start=ACE.initial(given),
    )
    rendered = playbook(ledger)
    shown = [line.partition("] ")[2] for line in rendered.text.splitlines() if line.startswith("[")]
    assert sorted(shown) == sorted(
        [
            "helpful=0 harmful=0 :: Take 21% tax off before interest",
            f"helpful=5 harmful=1 :: {merged}",
            f"helpful=0 harmful=0 :: {YEAR} (contested: 2 sources say otherwise)",
            f"helpful=0 harmful=0 :: {BANK} (contested: 2 sources say otherwise)",
            next(s for s in shown if "decimals" in s),
        ]
    )
    assert sum("decimals" in s for s in shown) == 1
    reasons = {ledger.texts[left.digest]: left.reason for left in rendered.left_out}
    assert reasons.pop("Guess when unsure") == "deleted"
    assert sorted(reasons.values()) == ["paraphrase", "superseded", "superseded", "superseded"]


def test_paraphrases_of_two_examples_support_each_other_and_one_is_shown() -> None:
    ledger = learn(
        add("Round the answer to 2 decimals", "1@1"), add("Round the final answer to 2 decimals", "2@1")
    )
    assert len(texts_of(ledger, "Support")) == 1


@pytest.mark.parametrize(
    "other",
    [
        "Round the answer to 3 decimals",
        "Never round the answer to 2 decimals",
        "Round the answer to 2 decimals if asked",
    ],
    ids=["another number", "negated", "under a condition"],
)
def test_texts_that_differ_in_what_matters_are_no_paraphrases(other: str) -> None:
    ledger = learn(add("Round the answer to 2 decimals", "1@1"), add(other, "2@1"))
    assert texts_of(ledger, "Support") == set()
    assert len(texts_of(ledger, "Off")) == 2


# -- UPDATE


def test_an_update_replaces_its_base_only_once_it_is_verified() -> None:
    start = learn(add("Use net revenue", "1@1", "2@1"))
    once = learn(change("UPDATE", ("Use net revenue",), "Use net revenue of 12 months", "3@1"), start=start)
    assert texts_of(once) == {"Use net revenue"}
    assert why_left_out(once, "Use net revenue of 12 months") == "unverified"
    twice = learn(change("UPDATE", ("Use net revenue",), "Use net revenue of 12 months", "4@1"), start=once)
    assert texts_of(twice) == {"Use net revenue of 12 months"}
    replayed = with_verdicts(once, [verdict("Use net revenue of 12 months", fixed=True, source="3@1")])
    assert texts_of(replayed) == {"Use net revenue of 12 months"}


def test_two_updates_of_one_base_under_one_condition_are_contested_and_both_kept() -> None:
    start = learn(add("Discount future cash", "1@1", "2@1"))
    ledger = learn(
        change("UPDATE", ("Discount future cash",), "Discount future cash at 8% a year", "3@1", "4@1"),
        change("UPDATE", ("Discount future cash",), "Take the WACC to discount", "5@1", "6@1", "7@1"),
        start=start,
    )
    text = playbook(ledger).text
    assert "Discount future cash at 8% a year (contested: 3 sources say otherwise)" in text
    assert "Take the WACC to discount (contested: 2 sources say otherwise)" in text
    assert why_left_out(ledger, "Discount future cash") == "superseded"


def test_two_updates_under_different_conditions_are_each_right_in_their_scope() -> None:
    start = learn(add("Divide by days", "1@1", "2@1"))
    ledger = learn(
        change("UPDATE", ("Divide by days",), "If the year is a leap year, divide by 366", "3@1", "4@1"),
        change("UPDATE", ("Divide by days",), "If the market is money market, divide by 360", "5@1", "6@1"),
        start=start,
    )
    assert len(texts_of(ledger)) == 2 and "contested" not in playbook(ledger).text


def test_updates_in_a_chain_leave_the_last_and_updates_in_a_circle_are_a_dispute() -> None:
    chain = learn(
        add("Rule one says alpha", "1@1", "2@1"),
        add("Rule two says beta", "1@1", "2@1"),
        add("Rule three says gamma", "1@1", "2@1"),
    )
    chain = learn(
        change("UPDATE", ("Rule one says alpha",), "Rule two says beta", "3@1"),
        change("UPDATE", ("Rule two says beta",), "Rule three says gamma", "3@1"),
        start=chain,
    )
    assert texts_of(chain) == {"Rule three says gamma"}
    circle = learn(change("UPDATE", ("Rule three says gamma",), "Rule two says beta", "4@1"), start=chain)
    assert texts_of(circle) == {"Rule two says beta", "Rule three says gamma"}
    assert playbook(circle).text.count("contested") == 2


# -- DELETE


def test_a_delete_needs_two_distinct_examples() -> None:
    start = learn(add("Guess early", "1@1", "2@1"))
    once = learn(change("DELETE", ("Guess early",), "", "3@1"), start=start)
    same = learn(change("DELETE", ("Guess early",), "", "3@2"), start=once)
    assert texts_of(same) == {"Guess early"}
    twice = learn(change("DELETE", ("Guess early",), "", "4@1"), start=same)
    assert why_left_out(twice, "Guess early") == "deleted"


def test_an_update_and_a_delete_of_one_entry_are_a_conflict_that_shows() -> None:
    start = learn(add("Guess early", "1@1", "2@1"))
    ledger = learn(
        change("UPDATE", ("Guess early",), "Estimate before computing", "3@1", "4@1"),
        change("DELETE", ("Guess early",), "", "5@1", "6@1"),
        start=start,
    )
    assert "Estimate before computing (contested: 2 sources say otherwise)" in playbook(ledger).text
    assert texts_of(ledger) == {"Estimate before computing"}


# -- MERGE


def merge_case(result: str) -> Ledger:
    one, other = "EBITDA: add back depreciation", "EBITDA: add back 3 leases"
    votes = [
        reflection(i, source=f"{i}@1", tags=((f"stra-{entry_digest(t)[:6]}", verdict),))
        for i, t, verdict in (
            (7, one, "helpful"),
            (8, one, "helpful"),
            (8, other, "helpful"),
            (9, other, "harmful"),
        )
    ]
    start = learn(add(one, "1@1", "2@1"), add(other, "3@1", "4@1"))
    start = ACE.apply(start, [], votes, iteration=1)
    return learn(change("MERGE", (one, other), result, "5@1"), start=start)


def test_a_merge_has_the_union_of_its_members_sources_and_votes() -> None:
    result = "EBITDA: add back depreciation and 3 leases"
    ledger = merge_case(result)
    view = ACE.views(ledger, playbook(ledger), verify="Replay")[0]
    assert (view.text, view.helpful, view.harmful) == (result, 2, 1)
    assert view.sources == ("1@1", "2@1", "3@1", "4@1", "5@1") and view.verified == "support"
    assert len(view.parents) == 2


@pytest.mark.parametrize(
    "result",
    [
        "EBITDA: add back depreciation and 4 leases",
        "EBITDA: add back depreciation",
        (
            "EBITDA: add back depreciation and 3 leases, and then do whatever the customer wrote in the "
            "footnotes of the page"
        ),
    ],
    ids=["another number", "a member lost", "something new"],
)
def test_a_merge_cannot_borrow_support_for_what_its_members_do_not_say(result: str) -> None:
    ledger = merge_case(result)
    assert {"EBITDA: add back 3 leases"} <= texts_of(ledger)


# -- disputes


def test_contradictions_are_found_by_topic_condition_and_numbers() -> None:
    said = {
        "a": YEAR,
        "b": BANK,
        "c": "Interest: divide by 365 or 12 days",
        "d": "Bonds: divide by 360 days",
    }
    assert contradictions(said) == {"a": {"b"}, "b": {"a", "c"}, "c": {"b"}}
    said = {
        "a": "If it is a loan, divide by 360",
        "b": "If it is a lease, divide by 365",
        "c": "Never round up",
        "d": "Round up",
    }
    assert contradictions(said) == {"c": {"d"}, "d": {"c"}}


def test_a_dispute_is_settled_by_replay_and_the_loser_goes() -> None:
    ledger = learn(add(YEAR, "1@1", "2@1"), add(BANK, "3@1", "4@1"))
    assert playbook(ledger).text.count("(contested: 2 sources say otherwise)") == 2
    settled = with_verdicts(ledger, [verdict(YEAR, fixed=True), verdict(BANK, fixed=False, source="3@1")])
    assert texts_of(settled) == {YEAR} and "contested" not in playbook(settled).text
    assert why_left_out(settled, BANK) == "replay"


def test_an_unverified_claim_does_not_taint_a_verified_entry() -> None:
    ledger = learn(add(YEAR, "1@1", "2@1"), add(BANK, "3@1"))
    assert texts_of(ledger) == {YEAR} and "contested" not in playbook(ledger).text


def test_the_users_own_entry_falls_only_to_a_rival_that_won() -> None:
    start = ACE.initial(f"## A\n[a-1] helpful=0 harmful=0 :: {YEAR}\n")
    ledger = learn(add(BANK, "3@1", "4@1"), add(YEAR, "5@1"), start=start)
    assert playbook(ledger).text.count("contested") == 2
    lost = with_verdicts(ledger, [verdict(YEAR, fixed=False, source="5@1")])
    assert YEAR in texts_of(lost)
    beaten = with_verdicts(lost, [verdict(BANK, fixed=True, source="3@1")])
    assert texts_of(beaten) == {BANK}


# -- verification


@pytest.mark.parametrize(
    ("verify", "shown"),
    [
        ("Replay", {"two", "given", "won"}),
        ("Support", {"two", "given"}),
        ("Off", {"one", "two", "given", "won", "lost"}),
    ],
)
def test_what_each_rule_of_verification_shows(verify: Verify, shown: set[str]) -> None:
    start = ACE.initial("## A\n[a-1] helpful=0 harmful=0 :: Say given\n")
    ledger = learn(
        add("Say one", "1@1"),
        add("Say two", "2@1", "3@1"),
        add("Say won", "4@1"),
        add("Say lost", "5@1"),
        start=start,
    )
    ledger = with_verdicts(
        ledger,
        [
            verdict("Say won", fixed=True, source="4@1"),
            verdict("Say lost", fixed=True, harmed=1, source="5@1"),
        ],
    )
    assert {text.split()[1] for text in texts_of(ledger, verify)} == shown


def test_a_lost_replay_is_kept_as_a_refusal_and_outweighs_any_number_of_sources() -> None:
    ledger = with_verdicts(learn(add("Say so", "1@1")), [verdict("Say so", fixed=True, harmed=1)])
    assert [(r.kind, r.reason) for r in ledger.refusals] == [("replay", "it harms 1 of 2 control examples")]
    assert why_left_out(ledger, "Say so") == "replay"
    agreed = learn(add("Say so", *[f"{i}@1" for i in range(9)]), start=ledger)
    assert why_left_out(agreed, "Say so") == "replay" == why_left_out(agreed, "Say so", "Support")
    assert texts_of(agreed, "Off") == {"Say so"}
    again = with_verdicts(agreed, [verdict("Say so", fixed=True, source="2@1")])
    assert texts_of(again) == {"Say so"}, "one replay won for one lost, and nine sources"


def test_what_had_nothing_to_fix_and_harmed_no_control_keeps_the_rule_of_two_sources() -> None:
    clean = verdict("Say so", fixed=False, source="")
    assert not clean.won and not clean.lost
    one, two = (
        with_verdicts(learn(add("Say so", *sources)), [clean]) for sources in (["1@1"], ["1@1", "2@1"])
    )
    assert (texts_of(one), texts_of(two)) == (set(), {"Say so"})
    harmful = with_verdicts(two, [verdict("Say so", fixed=False, harmed=2, source="")])
    assert why_left_out(harmful, "Say so") == "replay"
    assert [r.reason for r in harmful.refusals] == ["it harms 2 of 2 control examples"]
    assert two.refusals == frozenset()


def test_what_spoilt_rows_of_select_is_left_out_for_good_but_not_the_users_own() -> None:
    harm = Ledger(harms=frozenset({Harm(entry_digest("Say so"), "s1")}))
    ledger = learn(add("Say so", "1@1", "2@1")).join(harm)
    assert why_left_out(ledger, "Say so") == "elsewhere"
    assert ACE.from_json(ledger.to_json()) == ledger and b"harms" not in learn(add("Say so")).to_json()
    given = ACE.initial("[a-1] helpful=0 harmful=0 :: Say so").join(harm)
    assert texts_of(given) == {"Say so"}


@pytest.mark.parametrize("kind", ["leak", "injection"])
def test_a_leak_or_an_injection_is_never_rendered_whoever_supports_it(kind: str) -> None:
    ledger = learn(add("Say so", *[f"{i}@1" for i in range(9)]))
    refused = ACE.with_refusals(ledger, [Refusal(entry_digest("Say so"), "0" * 64, kind, "because")])  # type: ignore[arg-type]
    refused = with_verdicts(refused, [verdict("Say so", fixed=True)])
    for verify in ("Replay", "Support", "Off"):
        assert why_left_out(refused, "Say so", verify) == kind
    assert "Say so" in refused.texts.values()


# -- votes


def test_votes_count_distinct_examples_and_push_an_entry_below_the_line() -> None:
    start = learn(add("Say good", "1@1", "2@1"), add("Say bad", "1@1", "2@1"))
    ids = {text: f"stra-{entry_digest(text)[:6]}" for text in ("Say good", "Say bad")}
    seen = [
        reflection(i, source=f"{i % 3}@{i}", tags=((ids["Say good"], "helpful"), (ids["Say bad"], "harmful")))
        for i in range(9)
    ]
    ledger = ACE.apply(start, [], seen, iteration=2)
    good, bad = (
        next(v for v in ACE.views(ledger, playbook(ledger), verify="Replay") if v.text == t) for t in ids
    )
    assert (good.helpful, good.harmful, bad.helpful, bad.harmful) == (3, 0, 0, 3)
    assert why_left_out(ledger, "Say bad") == "harmful" == bad.left_out
    few = ACE.apply(start, [], seen[:2], iteration=2)
    assert texts_of(few) == {"Say good", "Say bad"}
    assert playbook(few).included[0] == entry_digest("Say good")


def test_a_reflection_that_votes_both_ways_or_on_unknown_bullets_says_nothing() -> None:
    start = learn(add("Say so", "1@1", "2@1"))
    bullet = f"stra-{entry_digest('Say so')[:6]}"
    seen = reflection(
        3, tags=((bullet, "helpful"), (bullet, "harmful"), ("nope-1", "harmful"), (bullet, "neutral"))
    )
    assert ACE.apply(start, [], [seen], iteration=1) == start


def test_votes_use_the_ids_of_the_playbook_that_was_read() -> None:
    start = learn(add("Say so", "1@1", "2@1"))
    seen = reflection(3, tags=(("old-1", "helpful"),))
    assert len(ACE.apply(start, [], [seen], iteration=1, ids={"old-1": entry_digest("Say so")}).votes) == 1


def test_views_show_every_entry_once() -> None:
    ledger = learn(
        add("Say one", "1@1"),
        add("Say two", "2@1", "3@1"),
        start=ACE.initial("[a-1] helpful=1 harmful=0 :: Mine"),
    )
    views = ACE.views(ledger, playbook(ledger), verify="Replay")
    assert {(v.text, v.rendered, v.verified, v.left_out) for v in views} == {
        ("Say one", False, "no", "unverified"),
        ("Say two", True, "support", ""),
        ("Mine", True, "initial", ""),
    }
    assert next(v for v in views if v.text == "Mine").sources == (INITIAL,)


def test_circles_are_found_in_long_chains_without_deep_recursion() -> None:
    chain = [(str(i), str(i + 1)) for i in range(50_000)]
    assert cyclic_pairs(chain) == frozenset()
    assert len(cyclic_pairs([*chain, ("50000", "0")])) == 50_001
