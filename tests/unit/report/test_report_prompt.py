"""The report of a learned prompt: its components, its lines of variants, and hostile texts in them."""

from __future__ import annotations

import re
from typing import Any

import made_up

from combee.names import LESSONS_MARK
from combee.report import words
from combee.report.build import build_report, lessons_markdown
from combee.report.result import Result
from combee.report.tables import tables

HOSTILE = "</div><script>alert(1)</script> [x](https://evil.example/x)\n# heading \x1b[2J"


def variant(id: str, kind: str, *parents: str, **changes: Any) -> dict[str, Any]:
    return {"id": id, "kind": kind, "parents": parents, "iteration": 0, **changes}


def prompt(text: str = "Round late.\nDivide first.", method: str = "GEPA") -> Result:
    entry = {"verified": "replay", "rendered": True}
    entries = [
        {"id": "ask", "section": "components", "text": text, **entry},
        {"id": "ask.1", "section": "ask", "text": "Use 4 when rates are quarterly.", **entry},
    ]
    variants = [
        variant("b" * 12, "lessons", "a" * 12, iteration=2, changed=["ask"], gain=7.0, examples=20, score=0.8,
                scored=40, leads=True),
        variant("a" * 12, "start", score=0.6, scored=40),
    ]  # fmt: skip
    book = {
        "digest": "ef" * 32,
        "tokens": 90,
        "entries": 1,
        "components": {"ask": text},
        "text": text,
        "overBudget": 1,
    }
    return made_up.result(entries=entries, variants=variants, playbook=book, setup={"method": method})


def test_a_prompt_is_shown_as_it_is_with_the_lessons_below_it() -> None:
    shown = lessons_markdown(prompt())
    assert "# Lessons of " in shown and "## ask" in shown
    assert "> Round late.\\\n> Divide first." in shown and "\n- Use 4 when rates are quarterly." in shown
    assert "bullet" not in shown and LESSONS_MARK in shown.splitlines()


def test_lines_of_variants_are_a_table_that_other_methods_have_not() -> None:
    table = tables(prompt())["variants"]
    assert table.rows[0] == (
        "bbbbbbbbbbbb (this prompt)", "rewritten, with lessons below", "aaaaaaaaaaaa", "2", "ask",
         "+7.0 on 20", "0.800"
    )  # fmt: skip
    assert table.rows[1][1:4] == ("given", "none", "start")
    report = build_report(prompt(), lessons_markdown="")
    assert "Lines of variants" in report.markdown and "Lines of variants" in report.html
    other = build_report(made_up.result(), lessons_markdown="")
    assert "Lines of variants" not in other.markdown + other.html


def test_words_are_those_of_a_prompt() -> None:
    result = prompt()
    assert words.playbook(result) == "a prompt of 1 component, 90 tokens, the best of 2 variants"
    steps = " ".join(words.next_steps(result))
    assert "Read prompt.md" in steps and "Raise method.gepa.renderTokenBudget: 1 variant did not fit" in steps
    assert tables(result)["verification"].title == "Acceptance"
    steps = " ".join(words.next_steps(prompt(method="OfAPackage")))
    assert "Raise method.options.renderTokenBudget: 1 variant did not fit" in steps


def test_a_hostile_prompt_stays_text() -> None:
    result = prompt(HOSTILE)
    report = build_report(result, lessons_markdown=lessons_markdown(result))
    assert "<script>alert" not in report.html and "\x1b" not in report.html + report.markdown
    assert not re.search(r"(?<!\\)<script", report.markdown) and "https://" not in report.markdown
    assert "\n# heading" not in lessons_markdown(result)
