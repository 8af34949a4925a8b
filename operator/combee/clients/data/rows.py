"""Lines of a local or remote data file, read without holding more than one line in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from combee.clients.data.remote import fetched
from combee.errors import DataError


def read_lines(uri: str, *, max_bytes: int, secret: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """Yield the lines of a path, or of a remote address, with their line ends.

    A line above ``max_bytes`` is cut to one byte more than that, and the caller must refuse it: what
    follows would be its remainder. ``secret``: the keys of the Secret that goes with an address.

    Raises DataError when the file is missing or cannot be read, and the errors of ``remote.fetched``.
    """
    try:
        with _opened(uri, secret) as file:
            while line := file.readline(max_bytes + 1):
                yield line
    except FileNotFoundError:
        raise DataError(
            "no such file",
            where=uri,
            fix="Check the path; in a manifest it is relative to the manifest's folder",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DataError(
            f"cannot be read ({reason})", where=uri, fix="Check the address and its permissions"
        ) from None


def _opened(uri: str, secret: Mapping[str, str] | None) -> AbstractContextManager[IO[bytes]]:
    return fetched(uri, secret) if "://" in uri else Path(uri).open("rb")
