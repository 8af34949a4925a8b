"""What an untrusted command leaves on the disk: its size, and those of its files that are safe to read."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

BLOCK = 4096


def bytes_below(folders: Iterable[Path]) -> int:
    """Return the bytes on the disk below folders, at least a block for each name; ``sys.maxsize`` for a tree
    too deep to walk."""
    total, waiting = 0, [str(folder) for folder in folders]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    total += max(BLOCK, status.st_blocks * 512, status.st_size if status.st_nlink == 1 else 0)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return sys.maxsize  # deeper than a path may be long
    return total


def plain_files(folder: Path, names: Mapping[str, int], owner: int) -> dict[str, bytes]:
    """Return the plain files among ``names`` (name -> most bytes) that ``owner`` made itself, each cut to one
    byte more than its limit. Links, pipes and hard links to files of others are left out."""
    contents: dict[str, bytes] = {}
    for name, most in names.items():
        try:
            handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_uid == owner and status.st_nlink == 1:
                with os.fdopen(handle, "rb", closefd=False) as file:
                    contents[name] = file.read(most + 1)
        finally:
            os.close(handle)
    return contents
