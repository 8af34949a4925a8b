"""A store in a folder: objects are written whole, the first writer wins, and a write is durable on return.

A new object is written to a temporary file beside its place, synced, and given its name by
``os.link``, which fails when the name exists. So nobody ever sees half an object, and two writers
cannot both win, on one machine or over NFS. The folder's entry is synced afterwards.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from combee.errors import StoreError

TEMPORARY = ".tmp-"
"""The prefix of temporary files, which a writer that died leaves behind; readers never see them."""

Paths = list[str]

BLOBS = "blobs"
"""The folder of what is named by its digest."""
MAX_BYTES, MAX_BLOB_BYTES = 64 << 20, 4 << 30
"""No object that is written here is longer."""
HASHED_FIRST_BYTES = 64 << 20
"""A blob above this size is held against its name before it is held in memory."""

_TRIES = 3
"""A sweep of another process can delete a temporary file, which is then written again."""


class Folder:
    """Objects as files under ``root``; paths are relative and already checked."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_new(self, path: str, data: bytes) -> bool:
        """Write ``path`` unless it exists; return whether this call wrote it."""
        target = self.root / path
        if target.exists():
            return False
        for _ in range(_TRIES):
            temporary = self._write_temporary(target.parent, data)
            try:
                os.link(temporary, target)
            except FileExistsError:
                # Over NFS the answer to a link that was made can be lost; then the file has two names.
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
        """Return the object's bytes, or None when there is none. Of one that is too long to be whole they are
        none: what reads it finds it damaged, and takes no memory for it."""
        try:
            file = self.root / path
            return b"" if _is_too_long(file, path) else file.read_bytes()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        """Return whether there is an object of that name."""
        return (self.root / path).is_file()

    def list(self, prefix: str) -> Paths:
        """Return the sorted paths of the objects below the folder ``prefix``."""
        start = self.root / prefix if prefix else self.root
        paths = (file.relative_to(self.root).as_posix() for file in _files(start))
        return sorted(path for path in paths if not path.rpartition("/")[2].startswith(TEMPORARY))

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        (self.root / path).unlink(missing_ok=True)

    def sweep(self, older_than_seconds: float) -> int:
        """Remove temporary files that were last written longer ago, and return how many."""
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


def _is_too_long(file: Path, path: str) -> bool:
    size = file.stat().st_size
    if not path.startswith(f"{BLOBS}/"):
        return size > MAX_BYTES
    if HASHED_FIRST_BYTES < size <= MAX_BLOB_BYTES:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() != file.name
    return size > MAX_BLOB_BYTES


def _files(start: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(start, onerror=_raise_unless_absent):
        for name in names:
            yield Path(folder, name)


def _raise_unless_absent(error: OSError) -> None:
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        raise error


def _make_folder(folder: Path) -> None:
    """Make the folder and its parents, and sync each new entry into its parent."""
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
