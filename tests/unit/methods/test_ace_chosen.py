"""The part of a playbook that one question is shown: within its budgets, with one core for all."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.tokens import estimate_tokens
from combee.api.digests import canonical
from combee.api.load import parse_run
from combee.api.method_options import Retrieval
from combee.errors import CombeeError
from combee.methods.ace import AceMethod
from combee.methods.ace.chosen import MAX_ASKED_CHARS, choosing
from combee.methods.ace.entries import bullet_line
from combee.methods.ace.parse import parse_playbook
from combee.methods.gepa import GepaMethod
from combee.methods.registry import method_of

WORDS = [
    "rate",
    "ratio",
    "P-0092",
    "P-0017",
    "1,500",
    "15%",
    "tax",
    "EBITDA",
    "yield",
    "`net_income`",
    "bond",
]
ENTRIES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.sampled_from(["FORMULAS", "STRATEGIES"]),
    ),
    max_size=25,
)
QUESTIONS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join) | st.text(max_size=40)
BUDGETS = st.tuples(st.integers(0, 150), st.integers(1, 150))


def page(entries: list[tuple[list[str], int, int, str]]) -> str:
    """A playbook of two sections."""
    lines: dict[str, list[str]] = {"FORMULAS": [], "STRATEGIES": []}
    for k, (words, helpful, harmful, section) in enumerate(entries):
        lines[section].append(bullet_line(f"b-{k}", helpful, harmful, " ".join(words)))
    return "\n\n".join("\n".join([f"## {name}", *held]) for name, held in lines.items() if held)


def of(text: str, asked: str, budgets: tuple[int, int]) -> str:
    return choosing(text, core_tokens=budgets[0], tail_tokens=budgets[1])(asked)


def ids(text: str) -> list[str]:
    return [line.id for line in parse_playbook(text).bullets]


@given(ENTRIES, QUESTIONS, QUESTIONS, BUDGETS)
def test_it_is_a_part_of_the_page_with_one_core_within_both_budgets(
    entries: list[tuple[list[str], int, int, str]], asked: str, other: str, budgets: tuple[int, int]
) -> None:
    text = page(entries)
    shown, core = of(text, asked, budgets), of(text, "", budgets)
    assert estimate_tokens(shown) <= sum(budgets)
    if estimate_tokens(text) <= sum(budgets):
        assert shown == text
        return
    assert estimate_tokens(core) <= budgets[0]
    assert shown.startswith(core) and of(text, other, budgets).startswith(core)
    tail = shown.removeprefix(core).strip("\n")
    assert estimate_tokens(tail) <= budgets[1]
    assert set(shown.splitlines()) <= {"", *text.splitlines()}, "every line is one of the page"
    assert len(ids(shown)) == len(set(ids(shown))), "no entry stands twice"
    for part in (core, tail):
        assert [one for one in ids(text) if one in ids(part)] == ids(part), "in the page's order"
    sections = {line.id: line.section for line in parse_playbook(text).bullets}
    assert all(sections[line.id] == line.section for line in parse_playbook(shown).bullets)
    assert of(shown, asked, budgets) == shown, "chosen from again it is the same"


def lines(count: int, at: int = -1, **more: int) -> str:
    """Many entries of one form, of which one has ``helpful`` or ``harmful`` votes."""
    votes = {"helpful": 0, "harmful": 0}
    bullets = (
        bullet_line(f"b-{k}", **(votes | more if k == at else votes), text=f"Procedure P-{k:04d}: add {k}")
        for k in range(count)
    )
    return "\n".join(["Always answer with a number.", "## FORMULAS", *bullets])


def test_the_core_has_the_remarks_and_what_most_votes_speak_for() -> None:
    for votes, first in (({"helpful": 1}, ["b-70"]), ({"harmful": 1}, ["b-0"])):
        core = of(lines(90, 70, **votes), "", (35, 20))
        assert core.startswith("Always answer with a number.\n\n## FORMULAS\n") and ids(core) == first


def test_remarks_stay_where_the_budget_is_too_small_for_them() -> None:
    assert of(lines(90), "", (0, 20)) == "Always answer with a number."


def test_the_tail_is_what_names_the_same_before_what_shares_common_words() -> None:
    shown = of(lines(90), "Procedure P-0042 is applied to 17. Add what?", (0, 40))
    assert "b-42" in ids(shown) and len(ids(shown)) < 3
    assert ids(of(lines(90), "nothing alike", (0, 40))) == []


def test_a_question_is_compared_by_its_first_and_last_words() -> None:
    for asked in (f"P-0042 {'x ' * MAX_ASKED_CHARS}", f"{'x ' * MAX_ASKED_CHARS} P-0042"):
        assert ids(of(lines(90), asked, (0, 30))) == ["b-42"]
    hidden = f"{'x ' * MAX_ASKED_CHARS} P-0042 {'x ' * MAX_ASKED_CHARS}"
    assert ids(of(lines(90), hidden, (0, 30))) == []


@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=60))
def test_any_text_can_be_chosen_from_and_asked_for(entry: str, asked: str) -> None:
    text = "\n".join([lines(20), bullet_line("b-20", 0, 0, entry)])
    assert set(of(text, f"{asked} {entry}", (0, 60)).split("\n")) <= {"", *text.split("\n")}


def test_every_process_chooses_the_same() -> None:
    # Sets of texts have another order in each process: sums must not depend on it.
    code = (
        "from combee.methods.ace.chosen import choosing\n"
        "entries = [f'[b-{k}] helpful=0 harmful=0 :: rate {k % 7} of {k % 5} tax {k}' for k in range(99)]\n"
        "text = '\\n'.join(entries)\n"
        "print(choosing(text, core_tokens=30, tail_tokens=200)('tax rate 3 of 4 or 2'))"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1 and "b-" in printed.pop()


def test_a_method_without_entries_shows_all() -> None:
    text, budgets = lines(90), Retrieval.model_validate({"coreTokens": 0, "tailTokens": 50})
    assert "b-41" not in ids(AceMethod().choosing(text, budgets)("P-0042"))
    assert GepaMethod().choosing(text, budgets)("P-0042") == text


def manifest(**ace: object) -> dict[str, object]:
    role = {"endpoint": {"url": "http://m/v1", "model": "m"}}
    data = {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}
    spec = {
        "task": {"type": "Formula", "data": data},
        "models": {"task": role, "proposer": role},
        "method": {"type": "ACE", "ace": ace},
    }
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": "r"}}
    return {**head, "spec": spec}


def test_a_manifest_asks_for_it_and_one_that_does_not_keeps_its_digest() -> None:
    stated = {"coreTokens": 500, "tailTokens": 300}
    spec = parse_run(manifest(retrieval=stated), "test").spec
    assert spec.method.retrieval == Retrieval.model_validate(stated)
    assert (spec.method.shown_token_budget, spec.method.render_token_budget) == (800, 8000)
    assert canonical(spec)["method"]["ace"]["retrieval"] == stated
    plain = parse_run(manifest(reasoning=True), "test").spec
    assert plain.method.retrieval is None and plain.method.shown_token_budget == 8000
    assert "retrieval" not in canonical(plain)["method"]["ace"]
    assert method_of(spec).name == "ACE"


def test_budgets_that_leave_nothing_out_are_refused() -> None:
    with pytest.raises(CombeeError, match="which is all of it"):
        parse_run(manifest(retrieval={"coreTokens": 4000, "tailTokens": 4000}), "test")
    parse_run(manifest(retrieval={"coreTokens": 4000, "tailTokens": 3999}), "test")
