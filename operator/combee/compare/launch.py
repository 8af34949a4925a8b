"""Run the cells, some side by side, each in a process of its own: exactly ``combee run``.

A cell that has its result for this manifest is not run again; one that was cut off goes on where it
was. The first cell that fails stops the comparison, the others' finished work is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from combee.api.digests import manifest_digest
from combee.assembly.manifest import read_run
from combee.compare.cells import Cell
from combee.errors import UserError
from combee.local.flags import StandInFlags
from combee.plan.types import EXIT_CODES
from combee.report.bundle import RESULT_FILE

FINISHED_OUTCOMES = ("Learned", "Unsure", "NothingBetter")
FINISHED = tuple(EXIT_CODES[name] for name in FINISHED_OUTCOMES)
GRACE_SECONDS = 20.0
"""The time that a cell may take to write what it has when it is told to stop."""
_TAIL_BYTES = 2000


class CellError(UserError):
    """A cell that did not finish; ``exit_code`` is that of its ``combee run``."""

    def __init__(self, cell: Cell, exit_code: int, words: str) -> None:
        super().__init__(
            f"cell {cell.name} ended with exit code {exit_code}: {words or 'nothing said'}",
            where=str(cell.folder),
            fix="Mend what it names and run the same command again: finished cells are kept",
        )
        self.exit_code = exit_code


def is_finished(cell: Cell) -> bool:
    """Return whether the cell's folder has the result of the manifest beside it."""
    digest = finished_digest(cell)
    return bool(digest) and digest == manifest_digest(read_run(cell.manifest))


def finished_digest(cell: Cell) -> str:
    """Return the digest of the manifest whose result the cell's folder has; empty where it has none."""
    try:
        result = json.loads((cell.folder / RESULT_FILE).read_bytes())
    except (OSError, ValueError):
        return ""
    return str(result.get("manifestDigest", "")) if result.get("exitCode") in FINISHED else ""


@dataclass(slots=True)
class Launcher:
    """Runs cells and calls ``tell(cell, done, total)`` after each."""

    given: StandInFlags
    jobs: int
    tell: Callable[[Cell, int, int], None]
    running: set[asyncio.subprocess.Process] = field(default_factory=set)

    async def run(self, cells: Sequence[Cell]) -> None:
        """Run all cells. Raises CellError for the first that fails; cancelling stops every cell cleanly."""
        unfinished = [cell for cell in cells if not is_finished(cell)]
        todo, done = iter(unfinished), len(cells) - len(unfinished)

        async def worker() -> None:
            nonlocal done
            for cell in todo:
                await self._one(cell)
                done += 1
                self.tell(cell, done, len(cells))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.jobs):
                    group.create_task(worker())
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None

    async def _one(self, cell: Cell) -> None:
        process = await asyncio.create_subprocess_exec(
            *command(cell, self.given),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, errors = await process.communicate()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        code = process.returncode or 0
        if code not in FINISHED:
            raise CellError(cell, code, _last_line(errors))


def command(cell: Cell, given: StandInFlags) -> list[str]:
    """Return the command line of a cell, as a person would write it."""
    files = ["-f", str(cell.manifest), "-o", str(cell.folder)]
    return [sys.executable, "-m", "combee.cli.main", "run", *files, *cell.flags(given).words()]


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Interrupt the run as Ctrl-C does, so that it writes its results, and kill it if it does not end."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.communicate(), GRACE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _last_line(errors: bytes) -> str:
    lines = errors[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else ""
