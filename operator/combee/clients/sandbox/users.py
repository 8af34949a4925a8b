"""User ids for untrusted commands: each command has its own id, which no account and no other run uses."""

from __future__ import annotations

import fcntl
import os
import pwd
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from combee.errors import UserError

FIRST = 64_000
MOST = 500
_RUN = Path("/run")


@dataclass(slots=True)
class Users:
    """User ids from ``first`` on, each behind its own lock."""

    first: int = FIRST
    folder: Path = field(
        default_factory=lambda: (_RUN if _RUN.is_dir() else Path(tempfile.gettempdir())) / "combee"
    )

    @contextmanager
    def one(self) -> Iterator[int]:
        """Yield an id that nobody else has meanwhile. Raises UserError when none is free."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the locks of user ids cannot be kept ({error.strerror})", where=str(self.folder), fix=_FIX
            ) from None
        for uid in range(self.first, self.first + MOST):
            if _is_somebody(uid):
                continue
            lock = os.open(
                self.folder / f"uid-{uid}", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            try:
                yield uid
            finally:
                os.close(lock)
            return
        raise UserError(f"no user id from {self.first} on is free", where="--task-user", fix=_FIX)


_FIX = "Give another first id with --task-user"


def _is_somebody(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
