"""Bytes put aside on the disk until they are asked for: as many as it holds, none of them in memory."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from combee.errors import UserError

_LEVEL = 1
"""Text of conversations is a quarter then, at several times the speed of reading it as JSON."""


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile(prefix="combee-spool-", buffering=0)


@dataclass(slots=True)
class Spool:
    """One file without a name, gone with the last of what was kept in it. One writer, any readers."""

    _opened: IO[bytes] = field(default_factory=_file)
    _end: int = 0

    def keep(self, data: bytes) -> Callable[[], bytes]:
        """Put ``data`` aside; what is returned brings it back. UserError when the disk is full."""
        packed, start = zlib.compress(data, _LEVEL), self._end
        try:
            written = 0
            while written < len(packed):
                written += os.pwrite(self._opened.fileno(), packed[written:], start + written)
        except OSError as error:
            raise UserError(
                f"no room for the data that is put aside ({error.strerror})",
                where=tempfile.gettempdir(),
                fix="Give that folder more room, or set TMPDIR to one that has it",
            ) from None
        self._end += len(packed)
        return partial(self._bring, start, len(packed))

    def _bring(self, start: int, size: int) -> bytes:
        packed = bytearray()
        while len(packed) < size:
            packed += os.pread(self._opened.fileno(), size - len(packed), start + len(packed))
        return zlib.decompress(packed)
