"""The artifact store: named objects, written whole or not at all; the first writer wins.

It is a folder (a path or ``file:``) or anything fsspec opens (``s3://bucket/prefix``). All paths are
relative, with ``/`` between parts. Blocking calls have async twins (``a...``) on a bounded pool of
threads. A write whose caller is cancelled still finishes, since its content was paid for.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from combee.clients.store.folder import BLOBS, TEMPORARY, Folder, Paths
from combee.clients.store.s3 import is_passing, is_without_credentials
from combee.errors import BugError, CombeeError, DamagedError, StoreError, TransientError

_T = TypeVar("_T")
_PART = re.compile(r"[^/\\\x00-\x1f\x7f]{1,255}")
DIGEST = re.compile(r"[0-9a-f]{64}")
"""What names a blob."""
_SWEEP_AFTER_SECONDS = 3600.0
_THREADS = 16
RESTORE = (
    "Restore it from a copy of the store. Without one start the run anew, on a store with this one's memo: "
    "what it answers is not asked again"
)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_WRITE = {errno.EROFS, errno.EACCES, errno.EPERM}
_IN_THE_WAY = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}


class _Backend(Protocol):
    def put_new(self, path: str, data: bytes) -> bool: ...
    def put(self, path: str, data: bytes) -> None: ...
    def get(self, path: str) -> bytes | None: ...
    def exists(self, path: str) -> bool: ...
    def list(self, prefix: str) -> Paths: ...
    def delete(self, path: str) -> None: ...
    def sweep(self, older_than_seconds: float) -> int: ...


class Store:
    """Made by ``Store.open``. Safe to use from many threads and processes at once."""

    def __init__(self, backend: _Backend, display_uri: str) -> None:
        self._backend = backend
        self.uri = display_uri
        """Where the store is, without credentials, for messages."""
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="store")

    @classmethod
    def open(cls, uri: str, *, options: dict[str, Any] | None = None) -> Store:
        """Return the store at ``uri``. Nothing is written, and a folder need not exist yet.

        ``options`` go to fsspec (keys, endpoint URL). Raises StoreError when the scheme is unknown, its
        package is missing, or the URI chains file systems.
        """
        if "::" in uri:
            raise StoreError(f"{uri!r} chains file systems", fix="Give one plain URI.")
        parts = urlsplit(uri)
        if parts.scheme in ("", "file") or len(parts.scheme) == 1:
            root = Path(unquote(parts.path) if parts.scheme == "file" else uri).absolute()
            return cls(Folder(root), str(root))
        display_uri = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        try:
            from combee.clients.store.bucket import Objects  # fsspec is a seventh of a pod's start

            return cls(Objects(uri, dict(options or {})), display_uri)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"this store cannot be opened ({type(error).__name__})",
                where=display_uri,
                fix="Use a folder or an s3:// URI, and install the package for its scheme (s3fs for s3).",
            ) from error

    def __repr__(self) -> str:
        return f"Store({self.uri!r})"

    def put_new(self, path: str, data: bytes) -> bool:
        """Write ``path`` whole unless it exists; return whether this call wrote it."""
        return self._do(path, lambda: self._backend.put_new(checked(path), data))

    def put(self, path: str, data: bytes) -> None:
        """Write or replace ``path`` in one step."""
        self._do(path, lambda: self._backend.put(checked(path), data))

    def get(self, path: str) -> bytes | None:
        """Return the object's bytes, or None when there is none."""
        return self._do(path, lambda: self._backend.get(checked(path)))

    def exists(self, path: str) -> bool:
        """Return whether there is an object of that name."""
        return self._do(path, lambda: self._backend.exists(checked(path)))

    def list(self, prefix: str = "") -> Paths:
        """Return the sorted paths of all objects below the folder ``prefix`` ("" is everything)."""
        return self._do(prefix, lambda: self._backend.list(checked(prefix) if prefix else ""))

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        self._do(path, lambda: self._backend.delete(checked(path)))

    def put_blob(self, data: bytes) -> str:
        """Store ``data`` under its sha256, in place of a damaged file, and return that digest."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.put_new(blob_path(digest), data) and not self.has_blob(digest):
            self.put(blob_path(digest), data)
        return digest

    def has_blob(self, digest: str) -> bool:
        """Return whether the file of that digest is there and whole."""
        try:
            return self.get_blob(digest) is not None
        except DamagedError:
            return False

    def get_blob(self, digest: str) -> bytes:
        """Return the bytes of that digest. Raises DamagedError when they are absent or do not match it."""
        path = blob_path(digest)
        data = self.get(path)
        if data is None:
            raise DamagedError("the file is missing", where=f"{self.uri}/{path}", fix=RESTORE)
        if hashlib.sha256(data).hexdigest() != digest:
            raise DamagedError(
                f"the file's content does not match its digest ({len(data)} bytes)",
                where=f"{self.uri}/{path}",
                fix=RESTORE,
            )
        return data

    def sweep(self, older_than_seconds: float = _SWEEP_AFTER_SECONDS) -> int:
        """Remove the temporary files of dead writers and return how many. Younger ones may be in use."""
        return self._do("", lambda: self._backend.sweep(older_than_seconds))

    async def aput_new(self, path: str, data: bytes) -> bool:
        """``put_new`` on a thread."""
        return await self._run(lambda: self.put_new(path, data))

    async def aput(self, path: str, data: bytes) -> None:
        """``put`` on a thread."""
        await self._run(lambda: self.put(path, data))

    async def aget(self, path: str) -> bytes | None:
        """``get`` on a thread."""
        return await self._run(lambda: self.get(path))

    async def aexists(self, path: str) -> bool:
        """``exists`` on a thread."""
        return await self._run(lambda: self.exists(path))

    async def alist(self, prefix: str = "") -> Paths:
        """``list`` on a thread."""
        return await self._run(lambda: self.list(prefix))

    async def aput_blob(self, data: bytes) -> str:
        """``put_blob`` on a thread."""
        return await self._run(lambda: self.put_blob(data))

    async def aget_blob(self, digest: str) -> bytes:
        """``get_blob`` on a thread."""
        return await self._run(lambda: self.get_blob(digest))

    def close(self) -> None:
        """Wait for pending writes and end the threads; the store cannot be used afterwards."""
        self._pool.shutdown(wait=True)

    async def _run(self, call: Callable[[], _T]) -> _T:
        return await asyncio.shield(asyncio.wrap_future(self._pool.submit(call)))

    def _do(self, path: str, call: Callable[[], _T]) -> _T:
        """Run one operation, and turn any error of the file system into a CombeeError."""
        try:
            return call()
        except CombeeError:
            raise
        except Exception as error:
            where = f"{self.uri}/{path}" if path else self.uri
            raise _translated(error, where) from error


def checked(path: str) -> str:
    """Return ``path`` when it stays inside the store; raise BugError when it does not.

    It refuses absolute paths, empty parts, ``.`` and ``..``, backslashes, control characters, and
    names of temporary files.
    """
    for part in path.split("/"):
        if part in ("", ".", "..") or not _PART.fullmatch(part) or part.startswith(TEMPORARY):
            raise BugError(f"{path[:200]!r} is not a path inside a store")
    return path


def blob_path(digest: str) -> str:
    """Return where the bytes of a digest are. Raises BugError for what is no digest."""
    if not DIGEST.fullmatch(digest):
        raise BugError(f"{digest[:80]!r} is not a sha256 digest")
    return f"{BLOBS}/{digest[:2]}/{digest}"


def _translated(error: Exception, where: str) -> CombeeError:
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL:
        return StoreError("the store is full", where=where, fix="Free some space, or use another store.")
    if code in _NO_WRITE or isinstance(error, PermissionError):
        return StoreError(
            "the store cannot be written or read by this user (read-only or no permission)",
            where=where,
            fix="Make it writable, or give another store.",
        )
    if code in _IN_THE_WAY:
        return StoreError(
            "a file is in the way of a folder", where=where, fix="Move it, or give another store."
        )
    if isinstance(error, FileNotFoundError):
        return StoreError(
            "there is no such bucket or folder", where=where, fix="Make it, or correct the URI."
        )
    if is_without_credentials(error):
        return StoreError("no credentials for it", where=where, fix="Give a Secret with store.secretRef.")
    if is_passing(error):
        return TransientError(f"the store does not answer ({type(error).__name__})", where=where)
    return StoreError(
        f"the store failed ({type(error).__name__})", where=where, fix="See the cause; is the URI right?"
    )
