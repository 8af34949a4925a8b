"""A mark of what a place holds: equal while its content is, read as cheaply as the place allows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from combee.clients.data.remote import Secret, fetched, headers_of, object_facts
from combee.errors import DataError

_PIECE = 1 << 20
_OF_OBJECTS = ("ETag", "etag", "md5Hash", "content_md5")
_OF_HTTPS = ("etag", "last-modified")


def mark_of(place: str, secret: Secret | None = None) -> str:
    """The mark of an address or a path, 64 hexadecimal digits; raises what reading it would raise.

    An object's ETag and size, an https server's ETag or Last-Modified, else a digest of the whole content; of
    a folder the names, sizes and contents of its files."""
    if place.startswith("/"):
        return _digest(_files(Path(place)))
    facts = headers_of(place, secret) if place.startswith("https:") else object_facts(place, secret)
    chosen = [f"{name}={facts[name]}" for name in (*_OF_OBJECTS, *_OF_HTTPS) if facts.get(name)]
    if chosen:
        return _digest([*map(str.encode, chosen), str(facts.get("size", "")).encode()])
    with fetched(place, secret) as content:
        return _digest(iter(lambda: content.read(_PIECE), b""))


def _files(path: Path) -> Iterator[bytes]:
    if not path.exists():
        raise DataError("no such file or folder", where=path.name, fix="Check the claim and the path in it")
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            yield f"\n{file.relative_to(path)} {file.stat().st_size}\n".encode()
            with file.open("rb") as content:
                yield from iter(lambda: content.read(_PIECE), b"")


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part)
    return made.hexdigest()
