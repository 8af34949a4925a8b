"""A sandbox for commands of the shell, and a user that it may become where the tests run as root."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from combee.clients.sandbox.sandbox import Limits, Run, Sandbox
from combee.clients.sandbox.users import Users
from combee.tasks.container import LEFT

PATH = "/usr/local/bin:/usr/bin:/bin"
MIB = 1024 * 1024
AS_ROOT = os.geteuid() == 0


def sandbox(script: str, *, users: Users | None, seconds: float = 120, scratch: int = 8 * MIB) -> Sandbox:
    limits = Limits(seconds=seconds, memory_bytes=512 * MIB, scratch_bytes=scratch, processes=24)
    return Sandbox(["sh", "-c", script], Path("/"), limits, users, PATH)


def run(script: str, *, users: Users | None, seconds: float = 120, scratch: int = 8 * MIB, **env: str) -> Run:
    async def once() -> Run:
        never: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        box = sandbox(script, users=users, seconds=seconds, scratch=scratch)
        return await box.run({"example.json": b'{"id": "1"}\n'}, env, LEFT, never)

    return asyncio.run(once())


def processes_that_say(words: str) -> list[bytes]:
    """The command lines, of whoever runs here, that hold ``words``."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it may have ended meanwhile
            lines.append(entry.read_bytes())
    return [line for line in lines if words.encode() in line]


def processes_of(uid: int, *, dead: bool = False, parent: int | None = None) -> list[int]:
    """Ids of live processes of a user, or of its ``dead`` ones; with ``parent``, only that one's children."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                state, of, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                wanted = (state in "ZX") == dead and parent in (None, int(of))
                found += [int(entry.name)] if wanted else []
        except OSError:
            continue
    return found
