"""A store on any fsspec file system that can create exclusively: S3, GCS, Azure, memory.

Each operation has deadlines (see ``s3``) and is retried with back-off where its error may pass.
A retried conditional write whose first answer was lost may meet its own object, and then reports that
another writer was first. That is harmless, since the loser reads the object that was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import fsspec  # type: ignore[import-untyped]
from fsspec.core import url_to_fs  # type: ignore[import-untyped]

from combee.clients.backoff import wait_seconds
from combee.clients.store.s3 import TRIES, is_passing, is_there_already, s3_options

Paths = list[str]
_T = TypeVar("_T")

_LARGE_BYTES = 256 * 1024
"""Above this size it is cheaper to look for the object first than to upload it in vain."""


class Objects:
    """Objects below ``root`` of an fsspec file system; an object appears only once it is whole."""

    def __init__(
        self, uri: str, options: dict[str, Any], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if uri.startswith("s3://"):
            options = options or s3_options()
        # Listings are never cached: other pods write to the same place.
        self._fs: fsspec.AbstractFileSystem
        self._fs, root = url_to_fs(uri, use_listings_cache=False, **options)
        self._sleep = sleep
        self.root = str(root).rstrip("/")

    def put_new(self, path: str, data: bytes) -> bool:
        """Write ``path`` unless it exists (on S3 a conditional PUT); return whether this call wrote it."""
        full = self._full(path)
        if len(data) > _LARGE_BYTES and self.exists(path):
            return False

        def create() -> bool:
            try:
                self._fs.pipe_file(full, data, mode="create")
            except Exception as error:
                if is_there_already(error):
                    return False
                raise
            return True

        return self._tried(path, create)

    def put(self, path: str, data: bytes) -> None:
        """Write or replace ``path``."""
        self._tried(path, lambda: self._fs.pipe_file(self._full(path), data))

    def get(self, path: str) -> bytes | None:
        """Return the object's bytes, or None when there is none."""
        try:
            return self._tried(path, lambda: bytes(self._fs.cat_file(self._full(path))))
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether there is an object of that name."""
        return self._tried(path, lambda: bool(self._fs.isfile(self._full(path))))

    def list(self, prefix: str) -> Paths:
        """Return the sorted paths of the objects below the folder ``prefix``."""
        start = self._full(prefix) if prefix else self.root
        skip = len(self.root) + 1
        try:
            paths = self._tried(prefix, lambda: self._fs.find(start))
        except FileNotFoundError:
            return []
        return sorted(str(path)[skip:] for path in paths)

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        try:
            self._tried(path, lambda: self._fs.rm_file(self._full(path)))
        except FileNotFoundError:
            return

    def sweep(self, older_than_seconds: float) -> int:
        """Do nothing and return 0: an interrupted upload leaves nothing visible here."""
        return 0

    def _tried(self, path: str, operation: Callable[[], _T]) -> _T:
        """Return the result of ``operation``, retried while its error may pass."""
        for attempt in range(1, TRIES):
            try:
                return operation()
            except Exception as error:
                if not is_passing(error):
                    raise
            self._sleep(wait_seconds(path, attempt, None))
        return operation()

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"
