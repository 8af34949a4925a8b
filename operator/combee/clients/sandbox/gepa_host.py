"""Processes in which adapters of the gepa package work, each on one rollout at a time.

An adapter may not be thread-safe, and may hang, die or print; in its own process this harms nothing else. A
process that was late, died or was stopped is ended with all that it started, and another takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from combee.clients.model.proxy import new_key
from combee.errors import BugError, CombeeError, ManifestError
from combee.settings import own_environment

CHILD = Path(__file__).with_name("gepa_child.py")
START_SECONDS = 600.0
"""How long a factory may take: it may import much, and read its data."""
MAX_LINE_BYTES = 64 * 1024 * 1024
LAST_WORDS_BYTES = 4000
WHERE = "spec.task.custom.adapter.factory"
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Served:
    """The model that the processes may ask: its name, and the base URL of the endpoint in front of it."""

    model: str = ""
    url: str = ""


@dataclass(slots=True)
class Host:
    """One process; ``key`` is its key for the model's endpoint."""

    key: str
    process: asyncio.subprocess.Process
    drain: asyncio.Task[None]
    last_words: bytearray
    ended: bool = False

    async def ask(self, request: Message, seconds: float, stop: asyncio.Future[CombeeError]) -> Message:
        """Return the process's answer, or one key that says why there is none: ``late`` (seconds), ``died``
        (exit code) or ``stopped``. In these cases the process is ended."""
        answering = asyncio.ensure_future(self._exchange(request))
        waiting: set[asyncio.Future[Any]] = {answering, stop}
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            return {"stopped": True} if stop.done() else {"late": seconds}
        finally:
            if not answering.done():
                answering.cancel()
                await self.end()

    async def _exchange(self, request: Message) -> Message:
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            raise BugError("a process without its pipes", where=CHILD.name)
        line = b""
        with contextlib.suppress(ConnectionError, ValueError):
            stdin.write(json.dumps(request).encode() + b"\n")
            await stdin.drain()
            line = await stdout.readline()
        if line.endswith(b"\n"):
            answer: Message = json.loads(line)
            return answer
        await self.end()
        words = self.last_words.decode(errors="replace")
        return {"died": self.process.returncode, "words": words}

    async def end(self) -> None:
        """End the process, with all that it started."""
        if self.ended:
            return
        self.ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        await asyncio.wait({self.drain}, timeout=1)
        self.drain.cancel()


@dataclass(slots=True)
class Hosts:
    """The processes of one share of a run. ``seconds``: how long a rollout may take."""

    factory: str
    seconds: float
    served: Served = field(default_factory=Served)
    code: str = ""
    """The digest of the module that makes the adapter; empty before ``ready``."""
    idle: list[Host] = field(default_factory=list)
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ready(self) -> None:
        """Start the first process if there was none yet. Raises ManifestError where the factory makes no
        adapter."""
        async with self.starting:
            if not self.code:
                self.idle.append(await self._start())

    @asynccontextmanager
    async def host(self) -> AsyncIterator[Host]:
        """Yield a process for the caller alone."""
        host = self.idle.pop() if self.idle else await self._start()
        try:
            yield host
        except BaseException:
            await host.end()
            raise
        if not host.ended:
            self.idle.append(host)

    async def close(self) -> None:
        """End the idle processes."""
        while self.idle:
            await self.idle.pop().end()

    async def _start(self) -> Host:
        key, words = new_key(), bytearray()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            str(CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=own_environment(self._variables(key)),
            limit=MAX_LINE_BYTES,
            start_new_session=True,
        )
        host = Host(key, process, asyncio.create_task(_drain(process, words)), words)
        first = {"factory": self.factory, "model": [self.served.model, self.served.url, key]}
        try:
            reply = await host.ask(first, START_SECONDS, asyncio.get_running_loop().create_future())
        except BaseException:
            await host.end()
            raise
        if "code" not in reply:
            await host.end()
            raise ManifestError(
                f"{self.factory} makes no adapter: {_reason(reply)}",
                where=WHERE,
                fix="In a cluster it must be in custom.image; on a laptop on PYTHONPATH",
            )
        self.code = str(reply["code"]) or "unknown"
        return host

    def _variables(self, key: str) -> dict[str, str]:
        url = self.served.url
        return {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_BASE": url,
            "OPENAI_API_KEY": key,
            "OPENAI_MODEL": self.served.model,
        }


def _reason(reply: Message) -> str:
    if "failed" in reply:
        return str(reply["failed"])
    if "late" in reply:
        return f"it took more than {reply['late']:.0f} s"
    return f"its process ended with exit code {reply.get('died')}"


async def _drain(process: asyncio.subprocess.Process, words: bytearray) -> None:
    """Read all that a process prints, and keep the end of it."""
    if process.stderr is None:
        return
    while chunk := await process.stderr.read(65_536):
        words += chunk
        del words[:-LAST_WORDS_BYTES]
