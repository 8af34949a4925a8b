"""What the tests of refusals look at."""

from __future__ import annotations

import subprocess
from pathlib import Path


def bytes_of(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, with the content of its files; empty when there is no folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 2 and one line on stderr that holds the words."""
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    for word in words:
        assert word in lines[0], lines[0]
    print(lines[0])
