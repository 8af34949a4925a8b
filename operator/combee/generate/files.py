"""Files that are generated: written, or compared with what is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def keep(files: Mapping[Path, str], arguments: Sequence[str]) -> int:
    """Write the files with ``--write``, else say which are out of date. Return the exit status."""
    if "--write" in arguments:
        for path, text in files.items():
            path.write_text(text, "utf-8")
        return 0
    stale = [
        str(path) for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text
    ]
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run: make fix\n")
    return 1 if stale else 0
