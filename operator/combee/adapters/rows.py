"""Lines of a data file, wherever it lies, without ever holding more than one line too long."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec  # type: ignore[import-untyped]

from combee.errors import DataError


def read_lines(uri: str, *, max_bytes: int) -> Iterator[bytes]:
    """The lines of ``uri`` with their line ends. A line above ``max_bytes`` comes cut to one byte
    more than that, which its reader refuses; the rest of the file is not read then by anybody.

    Raises DataError when the file is missing or cannot be read.
    """
    try:
        with fsspec.open(uri, "rb") as file:
            while line := file.readline(max_bytes + 1):
                yield line
    except FileNotFoundError:
        raise DataError(
            "no such file",
            where=uri,
            fix="Check the path; in a manifest it is relative to the manifest's folder",
        ) from None
    except ImportError:
        raise DataError(
            f"{uri.partition(':')[0]}: addresses cannot be read here",
            where=uri,
            fix="Give the path of a local copy",
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DataError(
            f"cannot be read ({reason})", where=uri, fix="Check the address and its permissions"
        ) from None
