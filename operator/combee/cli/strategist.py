"""``combee report --strategist``: a result as the strategist's ten sections."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from combee.cli.errors import guarded, write
from combee.cli.report import read

FILES = ("strategist.md", "strategist.html")


def run_strategist(folder: Path, out: Path) -> int:
    """Print the sections of the result in ``folder``, and leave both files in ``out``."""

    def work() -> int:
        from combee.clients.store.store import Store

        made = sections_of((folder / "result.json").read_bytes(), str(folder / "result.json"), folder)
        store = Store.open(str(out))
        try:
            for name, data in made.items():
                store.put(name, data)
        finally:
            store.close()
        show(made)
        return 0

    return guarded(work)


def sections_of(result: bytes, where: str, folder: Path) -> dict[str, bytes]:
    """Return both files of a result.json, with the stamps of an audit in ``folder``. Raises DataError where
    one cannot be read."""
    from combee.report.build import build_strategist

    report = build_strategist(*read(result, where, folder))
    return dict(zip(FILES, (report.markdown.encode(), report.html.encode()), strict=True))


def show(files: Mapping[str, bytes]) -> None:
    """Print the Markdown."""
    write(sys.stdout, files[FILES[0]].decode())
