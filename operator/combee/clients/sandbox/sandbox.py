"""Runs an untrusted command of the user once: as another user, in a private folder, within limits.

A command that exceeds its limits is ended, and nothing else is: all processes of its user id, which belongs
to it alone while it runs, are ended together. Its folder is deleted, and only plain files of a limited size
are read.
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
"""How much is kept of the end of its standard output and error; what comes before is dropped."""
_DRAINED = 16
"""How many pieces are read at the end: a pipe holds no more."""
_SIGNAL = 128
_CANNOT_START = 126
_MARK = "COMBEE_ROLLOUT"
_SWEPT: set[int] = set()
"""The ids whose leftover processes, of a run that was killed, this process has ended already."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one run of the command. ``memory_bytes`` is for each process, ``scratch_bytes`` for all
    files."""

    seconds: float
    memory_bytes: int
    scratch_bytes: int
    processes: int

    def of_the_system(self, running: int) -> dict[str, int]:
        """Return the limits as the system's rlimits. The system counts all processes of the user, so its
        limit has room for the ``running`` others, dead ones included until init has reaped them."""
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
    """How a command ended. ``why``: ``timeout``, ``disk`` or ``stopped`` where it was ended, else empty.
    ``files``: its output files; ``output``: the end of what it printed."""

    code: int
    why: str
    seconds: float
    files: Mapping[str, bytes]
    output: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Runs ``command`` in ``folder`` (its working directory, which it must be able to read).

    With ``users`` None the command runs as the current user, who then trusts it with all their files.
    """

    command: Sequence[str]
    folder: Path
    limits: Limits
    users: Users | None
    path: str
    """The PATH in which programs are searched."""
    shown: str = "the command"
    """The name of the command in errors."""

    async def check(self) -> None:
        """Raise UserError when the command clearly cannot be run."""
        with self._user() as uid:
            code, words = await _launched(self._task("check", uid, {}, {}))
        if code == _CANNOT_START:
            as_user = f" as the user {uid}" if uid is not None else ""
            raise UserError(
                f"it cannot be run{as_user}: {words}",
                where=self.shown,
                fix="Name a program that exists, in a folder that all may read",
            )
        if code:
            raise UserError(
                f"no command can be run as the user {uid} here: {words}",
                where=self.shown,
                fix="Give another first id with --task-user, "
                "or --task-user me to run it with your own rights",
            )

    async def run(
        self,
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        outputs: Mapping[str, int],
        stop: asyncio.Future[Any],
    ) -> Run:
        """Run the command with ``files``, and return its end with those of ``outputs`` (name -> most bytes)
        that it wrote.

        The command finds its folders in COMBEE_TASK and COMBEE_OUT. It is also ended when ``stop`` is done.
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
                task = self._task("run", uid, self.limits.of_the_system(running), {**env, **own})
                code, why, words, seconds = await self._watched(task, folder, uid, mark, stop)
                if not why and await asyncio.to_thread(_size, folder) >= self.limits.scratch_bytes:
                    why = "disk"
                contents = await asyncio.to_thread(
                    plain_files, folder / "out", outputs, os.getuid() if uid is None else uid
                )
                return Run(code, why, seconds, contents, words)

    @contextlib.contextmanager
    def _user(self) -> Iterator[int | None]:
        if self.users is None:
            yield None
            return
        with self.users.one() as uid:
            yield uid

    def _task(
        self, action: str, uid: int | None, limits: Mapping[str, int], env: Mapping[str, str]
    ) -> dict[str, object]:
        return {
            "do": action,
            "uid": uid,
            "limits": limits,
            "folder": str(self.folder),
            "command": list(self.command),
            "env": {"PATH": self.path, **env},
        }

    async def _watched(
        self,
        task: Mapping[str, object],
        folder: Path,
        uid: int | None,
        mark: str,
        stop: asyncio.Future[Any],
    ) -> tuple[int, str, str, float]:
        """Return the exit code, why the command was ended, the end of its output, and its seconds."""
        tail = _Tail()
        try:
            process = await _launch(task, tail.to)
            ending = asyncio.ensure_future(process.wait())
            why, began = "", time.monotonic()
            try:
                why = await self._until_ended(ending, folder, stop)
                seconds = time.monotonic() - began
            finally:
                await _surely(_ended(process, uid, mark))
        finally:
            words = tail.close()
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        return (code if code >= 0 else _SIGNAL - code), why, words, seconds

    async def _until_ended(self, ending: asyncio.Future[int], folder: Path, stop: asyncio.Future[Any]) -> str:
        until = time.monotonic() + self.limits.seconds
        while True:
            timeout = max(0.0, min(LOOK_SECONDS, until - time.monotonic()))
            await asyncio.wait({ending, stop}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                return ""
            if stop.done():
                return "stopped"
            if time.monotonic() >= until:
                return "timeout"
            if await asyncio.to_thread(_size, folder) >= self.limits.scratch_bytes:
                return "disk"


class _Tail:
    """The end of what a command writes. It uses its own pipe: asyncio waits for a process until its pipes are
    closed, and processes that the command left running may never close them."""

    def __init__(self) -> None:
        self._from, self.to = os.pipe()
        os.set_blocking(self._from, False)
        self._bytes = bytearray()
        asyncio.get_running_loop().add_reader(self._from, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._from, 65_536)
            self._bytes += piece
            del self._bytes[:-SAID_BYTES]
            if not piece:
                asyncio.get_running_loop().remove_reader(self._from)

    def close(self) -> str:
        """Close the pipe, and return the end of what was written."""
        for _ in range(_DRAINED):
            self._read()
        asyncio.get_running_loop().remove_reader(self._from)
        os.close(self._from)
        return self._bytes.decode(errors="replace")


async def _launch(
    task: Mapping[str, object], to: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    """Start a launch. Its output goes ``to`` a descriptor, which is closed here where it is the caller's
    pipe."""
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
        process.stdin.write(json.dumps(task).encode())
        await process.stdin.drain()
    process.stdin.close()
    return process


async def _launched(task: Mapping[str, object]) -> tuple[int, str]:
    """Return the exit code and the output of a launch that only checks, or ends processes."""
    process = await _launch(task)
    assert process.stdout is not None
    output = await process.stdout.read()
    code = await process.wait()
    return code, " ".join(output.decode(errors="replace").split())[-300:]


async def _surely(work: Coroutine[object, object, None]) -> None:
    """Run the work to its end, also when the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _ended(process: asyncio.subprocess.Process, uid: int | None, mark: str) -> None:
    """End all processes of the command; none runs any more when this returns."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await _end_all(uid, mark)


async def _end_all(uid: int | None, mark: str) -> None:
    """End also the processes that left the command's session: all of the user's, or all that bear the
    mark."""
    if uid is not None:
        await _launched({"do": "kill", "uid": uid})
        return
    quiet = 0
    for _ in range(50):
        killed = await asyncio.to_thread(_kill_marked, f"{_MARK}={mark}".encode())
        quiet = 0 if killed else quiet + 1
        # One look is not enough: a process that becomes another program shows no environment for a moment.
        if quiet == 2:
            return
        await asyncio.sleep(0.02)


def _kill_marked(mark: bytes) -> int:
    killed = 0
    for entry in _processes():
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def _running(uid: int) -> int:
    """Return the number of the user's threads, which the system counts as processes."""
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
    folder = await asyncio.to_thread(_make_folder, uid, files)
    try:
        yield folder
    finally:
        await _surely(_removed(folder))


def _make_folder(uid: int | None, files: Mapping[str, bytes]) -> Path:
    """Make a folder that only this user may enter: ``task`` to read, ``out`` and ``tmp`` to write."""
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
    """Remove the folder with ``rm``: its tree may be deeper than Python's recursion allows."""
    process = await asyncio.create_subprocess_exec(
        "rm", "-rf", "--", str(folder), stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()


def _size(folder: Path) -> int:
    return bytes_below((folder / "out", folder / "tmp"))
