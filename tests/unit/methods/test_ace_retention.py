"""What counts as carried: a citation that exists and anchors that are still there."""

from __future__ import annotations

from dataclasses import replace

from ace_makers import ACE, add, carried, change, reflection

SEEN = reflection(1, "For EBITDA add back 3 leases", "Take 21% tax off")


def test_a_lesson_is_carried_when_it_is_cited_and_its_anchors_are_there() -> None:
    assert carried(SEEN, [add("EBITDA: add back the 3 leases", "1@1")]) == ("r-00001.1",)
    assert carried(SEEN, [add("EBITDA: add back the 3 leases", "2@1")]) == ()
    assert carried(SEEN, [add("EBITDA: add back the leases", "1@1")]) == ()
    assert carried(SEEN, [add("Tax of 21%", "1@1"), add("EBITDA: add back the 3 leases", "1@1")]) == (
        "r-00001.1",
        "r-00001.2",
    )
    assert carried(SEEN, []) == ()


def test_a_citation_that_is_no_support_still_carries() -> None:
    folded = replace(add("EBITDA: 3 leases back, tax of 21% off", "9@1"), cited=frozenset({"1@1"}))
    assert carried(SEEN, [folded]) == ("r-00001.1", "r-00001.2")


def test_a_delete_carries_nothing() -> None:
    assert carried(SEEN, [change("DELETE", ("x",), "", "1@1")]) == ()


def test_an_entry_counts_for_a_few_distinct_lessons_only() -> None:
    many = [reflection(i, f"For EBITDA add back {i} leases") for i in range(1, 11)]
    basket = add(
        "EBITDA leases: " + ", ".join(str(i) for i in range(1, 11)), *[f"{i}@1" for i in range(1, 11)]
    )
    assert len(ACE.carried_all(many, [basket])) == 4
    same = [reflection(i, "For EBITDA add back 3 leases") for i in range(1, 11)]
    assert len(ACE.carried_all(same, [basket])) == 10
