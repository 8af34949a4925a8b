"""``combee report`` of a folder on this machine: its reports made anew, with the stamps of its audit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from combee.cli.errors import guarded, write

if TYPE_CHECKING:
    from combee.report.audit import Audit
    from combee.report.result import Result

RESULT = "result.json"
FILES = ("report.md", "report.html")
SECTIONS = ("strategist.md", "strategist.html")


def run_report_here(folder: Path, out: Path, *, strategist: bool) -> int:
    """Make both reports of the result in ``folder`` into ``out``, and print the stamps; with ``strategist``
    the ten sections in place of the reports."""

    def work() -> int:
        from combee.clients.store.store import Store

        result, audit = read((folder / RESULT).read_bytes(), str(folder / RESULT), folder)
        made = sections(result, audit) if strategist else reports(result, audit)
        store = Store.open(str(out))
        try:
            for name, data in made.items():
                store.put(name, data)
        finally:
            store.close()
        if strategist:
            show(made)
        else:
            write(sys.stdout, f"{stamps(audit)}{out}/report.html is made anew\n")
        return 0

    return guarded(work)


def read(data: bytes, where: str, folder: Path) -> tuple[Result, Audit | None]:
    """Return a result and the audit of it in ``folder``, if any. Raises DataError where one cannot be
    read."""
    from combee.report.audit import audit_beside
    from combee.report.result import read_result

    result = read_result(data, where=where)
    return result, audit_beside(folder, result)


def reports(result: Result, audit: Audit | None) -> dict[str, bytes]:
    """Return both reports, with the stamps."""
    from combee.report.build import build_report, lessons_markdown

    made = build_report(result, lessons_markdown=lessons_markdown(result), audit=audit)
    return dict(zip(FILES, (made.markdown.encode(), made.html.encode()), strict=True))


def sections(result: Result, audit: Audit | None) -> dict[str, bytes]:
    """Return the strategist's ten sections as both files, with the stamps."""
    from combee.report.build import build_strategist

    made = build_strategist(result, audit)
    return dict(zip(SECTIONS, (made.markdown.encode(), made.html.encode()), strict=True))


def show(files: Mapping[str, bytes]) -> None:
    """Print the sections."""
    write(sys.stdout, files[SECTIONS[0]].decode())


def stamps(audit: Audit | None) -> str:
    """Return the stamps as text; empty without an audit."""
    from combee.cli.audit import text_of

    return f"{text_of(audit)}\n" if audit else ""
