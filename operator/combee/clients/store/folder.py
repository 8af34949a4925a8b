"""A store in a folder: whole or not at all, first wins, and durable when the call returns.

A new object is written to a temporary file beside its place, synced, and given its name by
``os.link``, which fails when the name exists: nobody ever sees half an object, and two writers
cannot both win, on one machine or over NFS. The folder's own entry is synced after.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from combee.errors import StoreError

TEMPORARY = ".tmp-"
"""Names that start so are leftovers of a writer that died; readers never see them."""

Paths = list[str]

_TRIES = 3
"""A sweep by somebody else can take our temporary file away; then it is written again."""


class Folder:
    """Objects as files under ``root``; paths are relative and already checked."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_new(self, path: str, data: bytes) -> bool:
        """Write ``path`` unless it exists; True when this call made it."""
        target = self.root / path
        if target.exists():
            return False
        for _ in range(_TRIES):
            temporary = self._write_temporary(target.parent, data)
            try:
                os.link(temporary, target)
            except FileExistsError:
                # Over NFS a link can be made and its answer be lost; the second name betrays it.
                return temporary.stat().st_nlink == 2
            except FileNotFoundError:
                continue
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)
            return True
        raise StoreError("its temporary files vanish as they are written", where=str(target.parent))

    def put(self, path: str, data: bytes) -> None:
        """Write or replace ``path``; a reader sees the old or the new bytes."""
        target = self.root / path
        for _ in range(_TRIES):
            temporary = self._write_temporary(target.parent, data)
            try:
                temporary.replace(target)
            except FileNotFoundError:
                continue
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            _sync_folder(target.parent)
            return
        raise StoreError("its temporary files vanish as they are written", where=str(target.parent))

    def get(self, path: str) -> bytes | None:
        """The object's bytes, or None when there is none."""
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        """Is there an object of that name?"""
        return (self.root / path).is_file()

    def list(self, prefix: str) -> Paths:
        """Paths of the objects below the folder ``prefix``, sorted."""
        start = self.root / prefix if prefix else self.root
        found = (file.relative_to(self.root).as_posix() for file in _files(start))
        return sorted(path for path in found if not path.rpartition("/")[2].startswith(TEMPORARY))

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        (self.root / path).unlink(missing_ok=True)

    def sweep(self, older_than_seconds: float) -> int:
        """Remove temporary files last written longer ago than that; how many went."""
        horizon = time.time() - older_than_seconds
        swept = 0
        for file in _files(self.root):
            if not file.name.startswith(TEMPORARY):
                continue
            try:
                if file.stat().st_mtime <= horizon:
                    file.unlink()
                    swept += 1
            except FileNotFoundError:
                continue
        return swept

    def _write_temporary(self, folder: Path, data: bytes) -> Path:
        temporary = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            handle = os.open(temporary, flags, 0o644)
        except FileNotFoundError:
            _make_folder(folder)
            handle = os.open(temporary, flags, 0o644)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            finally:
                os.close(handle)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return temporary


def _files(start: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(start, onerror=_raise_unless_absent):
        for name in names:
            yield Path(folder, name)


def _raise_unless_absent(error: OSError) -> None:
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        raise error


def _make_folder(folder: Path) -> None:
    """``mkdir -p``, each new entry synced into its parent."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot
            raise
    finally:
        os.close(handle)
