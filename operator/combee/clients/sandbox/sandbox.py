"""A command of the user's that is not trusted, run once: as another user, in a private folder, within limits.

What it may not do ends it, and it alone: its processes are ended together (all of its user id, which is its own
while it runs), its folder goes, and of the files that it leaves only plain ones are read, up to a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from combee.clients.sandbox.leavings import bytes_below, plain_files
from combee.clients.sandbox.users import Users
from combee.errors import UserError

LAUNCH = Path(__file__).with_name("launch.py")
LOOK_SECONDS = 0.5
SAID_BYTES = 4096
"""of the end of what it writes to its standard output and error; the rest is dropped as it comes."""
_DRAINED = 16
"""pieces that are read at the end: a pipe holds no more."""
_SIGNAL = 128
_CANNOT_START = 126
_MARK = "COMBEE_ROLLOUT"
_SWEPT: set[int] = set()
"""ids of which this process knows that nothing runs: what a run that was killed left is ended once."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of the command may take. ``memory_bytes`` is each process's, ``scratch_bytes`` all files'."""

    seconds: float
    memory_bytes: int
    scratch_bytes: int
    processes: int

    def of_the_system(self, running: int) -> dict[str, int]:
        """As limits of the system, whose count of processes is the user's and so has ``running`` others in it: the
        dead ones too, until whoever is in the place of init has looked after them."""
        return {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_FSIZE": self.scratch_bytes,
            "RLIMIT_NPROC": self.processes + running,
            "RLIMIT_CPU": int(self.seconds) + 1,
            "RLIMIT_CORE": 0,
            "RLIMIT_NOFILE": 1024,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """How a command ended. ``why``: ``timeout``, ``disk`` or ``stopped`` where it was ended; else empty."""

    code: int
    why: str
    seconds: float
    files: Mapping[str, bytes]
    said: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs ``command`` in ``folder`` (its working directory, which it must be able to read).

    ``users``: None runs it as whoever runs this, who then trusts it with all that is theirs.
    """

    command: Sequence[str]
    folder: Path
    limits: Limits
    users: Users | None
    path: str
    """where programs are looked for."""
    shown: str = "the command"
    """what to call it in errors."""

    async def check(self) -> None:
        """UserError when it can plainly not be run."""
        with self._user() as uid:
            code, said = await _launched(self._told("check", uid, {}, {}))
        if code == _CANNOT_START:
            who = f" as the user {uid}" if uid is not None else ""
            raise UserError(
                f"it cannot be run{who}: {said}",
                where=self.shown,
                fix="Name a program that exists, in a folder that all may read",
            )
        if code:
            raise UserError(
                f"no command can be run as the user {uid} here: {said}",
                where=self.shown,
                fix="Give another first id with --task-user, or --task-user me to run it with your own rights",
            )

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        left: Mapping[str, int],
        stop: asyncio.Future[Any],
    ) -> Run:
        """Give it ``files``, run it, and bring back those of ``left`` (name -> most bytes) that are there.

        The folders are told as COMBEE_TASK and COMBEE_OUT. It is ended, too, when ``stop`` is done.
        """
        with self._user() as uid:
            async with _private_folder(uid, files) as folder:
                mark = secrets.token_hex(16)
                own = {
                    "PATH": self.path,
                    "LANG": "C.UTF-8",
                    "HOME": str(folder / "tmp"),
                    "TMPDIR": str(folder / "tmp"),
                    "COMBEE_TASK": str(folder / "task"),
                    "COMBEE_OUT": str(folder / "out"),
                    _MARK: mark,
                }
                if uid is not None and uid not in _SWEPT:
                    await _end_all(uid, mark)
                    _SWEPT.add(uid)
                running = await asyncio.to_thread(_running, os.getuid() if uid is None else uid)
                told = self._told("run", uid, self.limits.of_the_system(running), {**env, **own})
                code, why, said, seconds = await self._watched(told, folder, uid, mark, stop)
                if not why and await asyncio.to_thread(_size, folder) >= self.limits.scratch_bytes:
                    why = "disk"
                found = await asyncio.to_thread(
                    plain_files, folder / "out", left, os.getuid() if uid is None else uid
                )
                return Run(code, why, seconds, found, said)

    @contextlib.contextmanager
    def _user(self) -> Iterator[int | None]:
        if self.users is None:
            yield None
            return
        with self.users.one() as uid:
            yield uid

    def _told(
        self, what: str, uid: int | None, limits: Mapping[str, int], env: Mapping[str, str]
    ) -> dict[str, object]:
        return {
            "do": what,
            "uid": uid,
            "limits": limits,
            "folder": str(self.folder),
            "command": list(self.command),
            "env": {"PATH": self.path, **env},
        }

    async def _watched(
        self,
        told: Mapping[str, object],
        folder: Path,
        uid: int | None,
        mark: str,
        stop: asyncio.Future[Any],
    ) -> tuple[int, str, str, float]:
        """Exit code, why it was ended, its last words, and how many seconds it took."""
        words = _Tail()
        try:
            process = await _launch(told, words.to)
            ending = asyncio.ensure_future(process.wait())
            why, began = "", time.monotonic()
            try:
                why = await self._until_ended(ending, folder, stop)
                seconds = time.monotonic() - began
            finally:
                await _surely(_ended(process, uid, mark))
        finally:
            said = words.close()
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        return (code if code >= 0 else _SIGNAL - code), why, said, seconds

    async def _until_ended(self, ending: asyncio.Future[int], folder: Path, stop: asyncio.Future[Any]) -> str:
        until = time.monotonic() + self.limits.seconds
        while True:
            rest = max(0.0, min(LOOK_SECONDS, until - time.monotonic()))
            await asyncio.wait({ending, stop}, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return ""
            if stop.done():
                return "stopped"
            if time.monotonic() >= until:
                return "timeout"
            if await asyncio.to_thread(_size, folder) >= self.limits.scratch_bytes:
                return "disk"


class _Tail:
    """The end of what a command writes. A pipe of our own: asyncio waits for a process until its pipes are closed,
    which whatever it left running may never do."""

    def __init__(self) -> None:
        self._from, self.to = os.pipe()
        os.set_blocking(self._from, False)
        self._kept = bytearray()
        asyncio.get_running_loop().add_reader(self._from, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._from, 65_536)
            self._kept += piece
            del self._kept[:-SAID_BYTES]
            if not piece:
                asyncio.get_running_loop().remove_reader(self._from)

    def close(self) -> str:
        """What it said last."""
        for _ in range(_DRAINED):
            self._read()
        asyncio.get_running_loop().remove_reader(self._from)
        os.close(self._from)
        return self._kept.decode(errors="replace")


async def _launch(
    told: Mapping[str, object], to: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    """``to``: where what it writes goes; it is closed here where it is a pipe of the caller's."""
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            str(LAUNCH),
            stdin=asyncio.subprocess.PIPE,
            stdout=to,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={},
            cwd="/",
        )
    finally:
        if to >= 0:
            os.close(to)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(told).encode())
        await process.stdin.drain()
    process.stdin.close()
    return process


async def _launched(told: Mapping[str, object]) -> tuple[int, str]:
    """The exit code and the words of a launch that only looks or ends others."""
    process = await _launch(told)
    assert process.stdout is not None
    said = await process.stdout.read()
    code = await process.wait()
    return code, " ".join(said.decode(errors="replace").split())[-300:]


async def _surely(work: Coroutine[object, object, None]) -> None:
    """To its end, also when whoever waits is cut off meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _ended(process: asyncio.subprocess.Process, uid: int | None, mark: str) -> None:
    """Nothing of the command runs any more when this returns."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await _end_all(uid, mark)


async def _end_all(uid: int | None, mark: str) -> None:
    """End what left the command's session, too: all of the user's, or what was begun with the mark."""
    if uid is not None:
        await _launched({"do": "kill", "uid": uid})
        return
    for _ in range(50):
        if not await asyncio.to_thread(_kill_marked, f"{_MARK}={mark}".encode()):
            return
        await asyncio.sleep(0.02)


def _kill_marked(mark: bytes) -> int:
    found = 0
    for entry in _processes():
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                found += 1
    return found


def _running(uid: int) -> int:
    """Threads of this user, which the system's count of processes has in it."""
    count = 0
    for entry in _processes():
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == uid:
                count += len(list((entry / "task").iterdir()))
    return count


def _processes() -> list[Path]:
    root = Path("/proc")
    return [entry for entry in root.iterdir() if entry.name.isdigit()] if root.is_dir() else []


@asynccontextmanager
async def _private_folder(uid: int | None, files: Mapping[str, bytes]) -> AsyncIterator[Path]:
    folder = await asyncio.to_thread(_made, uid, files)
    try:
        yield folder
    finally:
        await _surely(_removed(folder))


def _made(uid: int | None, files: Mapping[str, bytes]) -> Path:
    """``task`` to read, ``out`` and ``tmp`` to write; only this user may enter."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="combee-task-"))
        for name in ("task", "out", "tmp"):
            (folder / name).mkdir(mode=0o755 if name == "task" else 0o700)
            if uid is not None and name != "task":
                os.chown(folder / name, uid, uid)
        for name, data in files.items():
            (folder / "task" / name).write_bytes(data)
            (folder / "task" / name).chmod(0o444)
        if uid is not None:
            os.chown(folder, os.getuid(), uid)
            folder.chmod(0o710)
    except OSError as error:
        raise UserError(
            f"a rollout's folder cannot be made ({error.strerror})",
            where=tempfile.gettempdir(),
            fix="Give that folder room, or set TMPDIR to one that has it and that all may enter",
        ) from None
    return folder


async def _removed(folder: Path) -> None:
    """By ``rm``: a tree may be made deeper than a program's own recursion goes."""
    process = await asyncio.create_subprocess_exec(
        "rm", "-rf", "--", str(folder), stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()


def _size(folder: Path) -> int:
    return bytes_below((folder / "out", folder / "tmp"))
