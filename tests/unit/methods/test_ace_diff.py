"""What changed between two playbooks, for people who have to say yes or no to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from combee.methods.ace.diff import diff_playbooks
from combee.methods.diff import Changed, DiffLine

OLD = """# Notes of ours
## formulas
[f-1] helpful=2 harmful=0 :: Divide first.
[f-2] helpful=0 harmful=0 :: Round at the end.
## general
[g-1] helpful=0 harmful=0 :: Read the question twice.
"""
NEW = """# Notes of ours
## formulas
[f-1] helpful=9 harmful=1 :: Divide first.
[f-2] helpful=0 harmful=0 :: Round at the end, to two digits.
[f-3] helpful=1 harmful=0 :: Keep the sign.
"""


def test_votes_are_no_change_and_what_was_reworded_stays_one_bullet() -> None:
    found = diff_playbooks(OLD, NEW)
    assert found.changed == (
        Changed("formulas", "f-2", "Round at the end.", "Round at the end, to two digits."),
    )
    assert found.added == (DiffLine("formulas", "f-3", "Keep the sign."),)
    assert found.removed == (DiffLine("general", "g-1", "Read the question twice."),)
    assert found.same == 1 and not found.empty


def test_a_line_that_is_no_bullet_is_told_too() -> None:
    found = diff_playbooks("Ours.\n" + OLD, OLD + "\nTheirs.")
    assert [one.text for one in found.added] == ["Theirs."]
    assert [one.text for one in found.removed] == ["Ours."]


BULLETS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["One.", "Two.", "Three.", "Four."])), max_size=8
)


def text(bullets: list[tuple[str, str]]) -> str:
    return "\n".join(["## s", *(f"[x-{i}] helpful=0 harmful=0 :: {said}" for i, said in bullets)])


@given(BULLETS, BULLETS)
def test_no_bullet_is_forgotten_and_none_told_twice(before, after) -> None:
    found = diff_playbooks(text(before), text(after))
    assert len(found.added) + len(found.changed) + found.same == len(after)
    assert len(found.removed) + len(found.changed) + found.same == len(before)
    assert diff_playbooks(text(after), text(after)).empty
    back = diff_playbooks(text(after), text(before))
    assert sorted(map(repr, back.added)) == sorted(map(repr, found.removed)) or found.changed
