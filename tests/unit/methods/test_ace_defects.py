"""Every defect known of ACE's own implementation, each with the test that it is not here."""

from __future__ import annotations

import json

from ace_makers import ACE, add, change, learn, playbook, reflection, trajectory

from combee.algo.tokens import estimate_tokens
from combee.methods.ace.entries import entry_digest
from combee.methods.ace.matching import Readers
from combee.methods.ace.replay import to_replay

GIVEN = (
    "## CALC\n"
    "[calc-00001] helpful=3 harmful=0 :: Add back 3 leases for EBITDA\n"
    "[calc-00002] helpful=2 harmful=1 :: Add back taxes for EBITDA\n"
)
LEASES, TAXES = "Add back 3 leases for EBITDA", "Add back taxes for EBITDA"


def test_counters_do_not_collapse_on_a_merge() -> None:
    vote = reflection(1, tags=(("calc-00001", "helpful"), ("calc-00002", "harmful")))
    merged = "Add back taxes and 3 leases for EBITDA"
    ledger = learn(
        change("MERGE", (LEASES, TAXES), merged, "2@1", "3@1"), start=ACE.initial(GIVEN), reflections=(vote,)
    )
    assert f"helpful=6 harmful=2 :: {merged}\n" in playbook(ledger).text
    late = ACE.apply(ledger, [], [reflection(9, tags=(("calc-00001", "helpful"),))], iteration=2)
    assert f"helpful=7 harmful=2 :: {merged}\n" in playbook(late).text


def test_ids_do_not_clash_with_an_initial_playbook() -> None:
    updates = [add(f"Rule {i} says {i}", f"{i}@1", f"x{i}@1", section="calc") for i in range(300)]
    rendered = playbook(learn(*updates, start=ACE.initial(GIVEN)), budget=80_000)
    bullets = [line[1 : line.index("]")] for line in rendered.text.splitlines() if line.startswith("[")]
    assert len(bullets) == len(set(bullets)) == 302 and bullets[:2] == ["calc-00001", "calc-00002"]


def test_text_before_the_first_heading_is_kept() -> None:
    text = "Notes of the team.\n[x-1] helpful=1 harmful=0 :: Above all headings\n\n" + GIVEN
    assert playbook(ACE.initial(text)).text == text
    assert playbook(ACE.initial("no heading at all")).text == "no heading at all"


def test_failed_samples_stay_wrong_and_vote_for_nothing() -> None:
    """The denominator is the caller's; here a failed call is never taken for a right or a fixable one."""
    failed = trajectory("1@1", error="deadline")
    ledger = learn(add("Say so", "1@1"))
    assert not failed.correct and to_replay(ledger, trajectories={"1@1": failed}, readers=Readers({})) == []


def test_all_four_operations_work() -> None:
    ids = {"calc-00001": entry_digest(LEASES), "calc-00002": entry_digest(TAXES)}
    start = ACE.initial(GIVEN)
    shown = playbook(start)
    assert dict(shown.ids) == ids
    seen = [
        reflection(i, "Add back 3 leases and taxes for EBITDA; add back 4 leases; guess never")
        for i in (1, 2)
    ]
    cite = {"section": "calc", "reflections": ["r-00001", "r-00002"]}

    def after(**entry: object) -> str:
        text = json.dumps({"entries": [cite | entry]})
        updates = ACE.parse_leaf(text, reflections=seen, playbook=shown)
        return playbook(ACE.apply(start, updates, seen, iteration=1)).text

    assert "Guess never" in after(op="ADD", text="Guess never")
    updated = after(op="UPDATE", text="Add back 4 leases", bullets=["calc-00001"])
    assert "4 leases" in updated and "3 leases" not in updated
    merged = after(
        op="MERGE", text="Add back 3 leases and taxes for EBITDA", bullets=["calc-00001", "calc-00002"]
    )
    assert merged.count("[") == 1 and "helpful=5 harmful=1" in merged
    deleted = after(op="DELETE", text="", bullets=["calc-00002"])
    assert "taxes" not in deleted and "3 leases" in deleted


def test_the_token_budget_is_enforced() -> None:
    updates = [add(f"Rule {i} says {i} " + "word " * 40, f"{i}@1", f"x{i}@1") for i in range(200)]
    rendered = playbook(learn(*updates), budget=1000)
    assert estimate_tokens(rendered.text) <= 1000 and len(rendered.left_out) == 200 - len(rendered.included)


def test_an_unknown_section_gets_a_heading_of_its_own() -> None:
    text = playbook(learn(add("Say so", "1@1", "2@1", section="Legal & tax"), start=ACE.initial(GIVEN))).text
    assert text.startswith(GIVEN) and "\n## LEGAL AND TAX\n[lega-" in text


def test_one_bad_answer_costs_one_call_and_no_batch() -> None:
    good = add("Say so", "1@1", "2@1")
    assert "Say so" in playbook(learn(good, add("", "3@1"), change("UPDATE", ("gone",), "", "4@1"))).text
