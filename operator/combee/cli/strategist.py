"""``combee report --strategist``: a result as the strategist's ten sections."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from combee.cli.errors import guarded, write

FILES = ("strategist.md", "strategist.html")


def run_strategist(folder: Path, out: Path) -> int:
    """Print the sections of the result in ``folder``, and leave both files in ``out``."""

    def work() -> int:
        from combee.clients.store.store import Store

        made = sections_of((folder / "result.json").read_bytes(), str(folder / "result.json"))
        store = Store.open(str(out))
        try:
            for name, data in made.items():
                store.put(name, data)
        finally:
            store.close()
        show(made)
        return 0

    return guarded(work)


def sections_of(result: bytes, where: str) -> dict[str, bytes]:
    """Return both files of a result.json. Raises DataError where it cannot be read."""
    from combee.report.build import build_strategist
    from combee.report.result import read_result

    report = build_strategist(read_result(result, where=where))
    return dict(zip(FILES, (report.markdown.encode(), report.html.encode()), strict=True))


def show(files: Mapping[str, bytes]) -> None:
    """Print the Markdown."""
    write(sys.stdout, files[FILES[0]].decode())
