"""A store on any fsspec file system that can create exclusively (mode ``xb``): S3, GCS, Azure, memory."""

from __future__ import annotations

from typing import Any

import fsspec  # type: ignore[import-untyped]
from fsspec.core import url_to_fs  # type: ignore[import-untyped]

Paths = list[str]

_LARGE_BYTES = 256 * 1024
"""Above this a look before the upload is cheaper than an upload for nothing."""


class Objects:
    """Objects below ``root`` of an fsspec file system; an object appears whole, when it is closed."""

    def __init__(self, uri: str, options: dict[str, Any]) -> None:
        # Listings are never cached: other pods write to the same place.
        self._fs: fsspec.AbstractFileSystem
        self._fs, root = url_to_fs(uri, use_listings_cache=False, **options)
        self.root = str(root).rstrip("/")

    def put_new(self, path: str, data: bytes) -> bool:
        """Write ``path`` unless it exists (on S3 a conditional PUT); True when this call made it."""
        full = self._full(path)
        if len(data) > _LARGE_BYTES and self._fs.exists(full):
            return False
        try:
            with self._fs.open(full, "xb") as handle:
                handle.write(data)
        except FileExistsError:
            return False
        return True

    def put(self, path: str, data: bytes) -> None:
        """Write or replace ``path``."""
        self._fs.pipe_file(self._full(path), data)

    def get(self, path: str) -> bytes | None:
        """The object's bytes, or None when there is none."""
        try:
            return bytes(self._fs.cat_file(self._full(path)))
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Is there an object of that name?"""
        return bool(self._fs.isfile(self._full(path)))

    def list(self, prefix: str) -> Paths:
        """Paths of the objects below the folder ``prefix``, sorted."""
        start = self._full(prefix) if prefix else self.root
        skip = len(self.root) + 1
        try:
            return sorted(str(found)[skip:] for found in self._fs.find(start))
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        """Remove the object; nothing happens when there is none."""
        try:
            self._fs.rm_file(self._full(path))
        except FileNotFoundError:
            return

    def sweep(self, older_than_seconds: float) -> int:
        """An upload that was cut off leaves nothing visible here: nothing to do."""
        return 0

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"
