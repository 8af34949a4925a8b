"""What a command that is not trusted leaves on the disk: how much it is, and those of its files that are safe to read."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

BLOCK = 4096


def bytes_below(folders: Iterable[Path]) -> int:
    """Bytes on the disk below folders, at least a block for each name; ``sys.maxsize`` for a tree too deep to see."""
    total, waiting = 0, [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    total += max(BLOCK, found.st_blocks * 512, found.st_size if found.st_nlink == 1 else 0)
                    if stat.S_ISDIR(found.st_mode):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return sys.maxsize  # deeper than a path may be long
    return total


def plain_files(folder: Path, names: Mapping[str, int], owner: int) -> dict[str, bytes]:
    """The plain files that ``owner`` made itself, of each at most one byte more than ``names`` says: no link, no
    pipe, nobody else's file under another name."""
    found: dict[str, bytes] = {}
    for name, most in names.items():
        try:
            handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            about = os.fstat(handle)
            if stat.S_ISREG(about.st_mode) and about.st_uid == owner and about.st_nlink == 1:
                with os.fdopen(handle, "rb", closefd=False) as file:
                    found[name] = file.read(most + 1)
        finally:
            os.close(handle)
    return found
