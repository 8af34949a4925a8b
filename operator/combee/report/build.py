"""Build the report of a run: ``report.md`` and one self-contained ``report.html``, and ``lessons.md``.

Everything a model, a user or a server wrote (entries, reasons, names) is hostile input: the HTML is escaped
by jinja2 and needs no script, no inline style and no resource of any kind, which its content security policy
states; in Markdown every value goes through ``text.markdown`` unless it is Markdown of ours. Equal results
give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from combee.algo.grouping import grouped
from combee.names import LESSONS_MARK
from combee.report import strategist, words
from combee.report.audit import Audit, audit_table
from combee.report.diagnosis import sentences
from combee.report.entries import lineage
from combee.report.result import Entry, Result
from combee.report.tables import Table, tables
from combee.report.text import (
    Markdown,
    amount,
    count,
    duration,
    markdown,
    score,
    signed,
    visible,
    visible_lines,
)

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_SOURCES = 12
"""The most sources named beside a bullet in the report; lessons.md names all of them."""
MAX_NOT_RENDERED = 300
"""The most entries outside the playbook that the report shows; result.json has them all."""


@dataclass(frozen=True, slots=True)
class Report:
    """The texts of the two files."""

    markdown: str
    html: str


@dataclass(frozen=True, slots=True)
class Section:
    """Entries under one heading, in the ledger's order."""

    title: str
    entries: tuple[Entry, ...]


def build_report(result: Result, *, lessons_markdown: str, audit: Audit | None = None) -> Report:
    """Return both forms of the report; ``lessons_markdown`` ends report.md; the HTML shows the entries."""
    from combee.report.figures import figures

    context = _context(result, audit)
    page = _environment(html=True)
    style, digest = style_sheet()
    html = page.get_template("report.html.j2").render(
        **context, figures=figures(result), style=style, style_digest=digest
    )
    text = _environment(html=False).get_template("report.md.j2")
    body = Markdown(_one_level_down(lessons_markdown).strip())
    return Report(text.render(**context, lessons=body), html)


def build_strategist(result: Result, audit: Audit | None = None) -> Report:
    """Return both forms of the strategist's report: the same ten sections, the HTML with figures."""
    from combee.report.figures import figures

    context = {**_context(result, audit), "strategist": strategist.sections(result, audit)}
    style, digest = style_sheet()
    html = _environment(html=True).get_template("strategist.html.j2")
    text = _environment(html=False).get_template("strategist.md.j2")
    page = html.render(**context, figures=figures(result), style=style, style_digest=digest)
    return Report(text.render(**context), page)


def style_sheet() -> tuple[str, str]:
    """Return the style sheet of the pages, and the digest by which their security policy allows it."""
    style = files(__package__).joinpath("templates/report.css").read_text("utf-8")
    return style, base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def lessons_markdown(result: Result) -> str:
    """Return what was learned as Markdown for people: rendered bullets by section, each with all its
    sources."""
    template = _environment(html=False).get_template("lessons.md.j2")
    return template.render(**_context(result))


def _context(result: Result, audit: Audit | None = None) -> dict[str, Any]:
    """Return what the templates read."""
    outside = [entry for entry in result.entries if not entry.rendered]
    gate = result.gate
    return {
        "result": result,
        "headline": words.headline(result),
        "gate": gate,
        "gate_interval": f"{signed(gate.low)} to {signed(gate.high)}" if gate else "",
        "gate_partial": words.partial_words(gate) if gate else "",
        "mark": Markdown(f" ({words.SIMULATED})" if result.simulated else ""),
        "banner": words.SIMULATED_BANNER if result.simulated else "",
        "served_by": words.served_by(result),
        "cost": words.cost(result),
        "cost_per_point": words.cost_per_point(result),
        "playbook_size": words.playbook(result),
        "refused": words.refused(result),
        "faults": words.faults(result),
        "evaluator": words.evaluator(result),
        "warnings": words.warnings(result),
        "diagnosis": [line for line in sentences(result.diagnosis) if line] if result.diagnosis else [],
        "next_steps": words.next_steps(result),
        "tables": {**tables(result), "audit": audit_table(audit)},
        "audited": audit is not None,
        "sections": _sections([entry for entry in result.entries if entry.rendered]),
        "outside": _sections(outside[:MAX_NOT_RENDERED]),
        "outside_count": len(outside),
        "outside_hidden": max(0, len(outside) - MAX_NOT_RENDERED),
        "max_sources": MAX_SOURCES,
        "prompt": [entry for entry in result.entries if entry.rendered] if result.variants else [],
        "notes": LESSONS_MARK,
    }


def _sections(entries: Sequence[Entry]) -> list[Section]:
    by_section = grouped(entries, lambda entry: entry.section)
    return [Section(title, tuple(members)) for title, members in by_section.items()]


@cache
def _environment(*, html: bool) -> Environment:
    """Return the environment: jinja2 escapes HTML; ``finalize`` escapes values that are not `Markdown`."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("combee.report", "templates"),
        autoescape=html,  # noqa: S701 - Markdown is escaped by finalize instead
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_plain if html else markdown,
    )
    environment.filters.update(score=score, signed=signed, amount=amount, count=count, duration=duration)
    environment.filters.update(verified=_verified, lineage=lineage, md_table=_md_table, quoted=_quoted)
    environment.filters.update(verbatim=_verbatim, code=_code)
    return environment


def _plain(value: object) -> object:
    """Return a string without what hides or acts, before jinja2 escapes it; our own markup stays as it is."""
    return visible(value) if type(value) is str else value


_VERIFIED = {
    "replay": "verified by replay",
    "support": "two or more sources",
    "initial": "from the initial playbook",
    "no": "not verified",
}


def _verified(entry: Entry) -> str:
    return _VERIFIED[entry.verified]


def _quoted(text: str) -> Markdown:
    """Return a text as a quotation, line by line."""
    lines = [f"> {markdown(line)}".rstrip() for line in text.strip().splitlines()]
    return Markdown("\\\n".join(lines) if lines else "> (nothing)")


def _md_table(table: Table) -> Markdown:
    """Return a table of GitHub's Markdown, or the sentence that says why it is empty."""
    if not table.rows:
        return Markdown(markdown(table.missing))
    heads = " | ".join(markdown(label) for label, _ in table.heads)
    rule = " | ".join("---:" if number else "---" for _, number in table.heads)
    rows = "\n".join(f"| {' | '.join(markdown(cell) for cell in row)} |" for row in table.rows)
    note = f"\n\n{markdown(table.note)}" if table.note else ""
    return Markdown(f"| {heads} |\n| {rule} |\n{rows}{note}")


def _verbatim(text: str) -> Markdown:
    """Return a block of our own pseudocode with its lines as they are."""
    return Markdown(text)


def _code(text: str) -> Markdown:
    """Return a text as an indented block in a list, which nothing in it can end."""
    return Markdown("\n".join(f"      {line}".rstrip() for line in visible_lines(text)))


def _one_level_down(text: str) -> str:
    """Return the text with headings one level deeper, so that the lessons are a part of the report."""
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in text.splitlines())
