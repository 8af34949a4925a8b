"""Run the cells, some side by side, each in its own process: exactly ``combee run``.

A cell that has a result of its manifest is not run again; one that was interrupted continues. The first
cell that fails stops the comparison, and the finished work of the others is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from combee.api.run import manifest_digest
from combee.assembly.manifest import read_run
from combee.compare.cells import Cell
from combee.errors import UserError
from combee.plan.types import EXIT_CODES

FINISHED = (EXIT_CODES["Learned"], EXIT_CODES["NothingBetter"])
GRACE_SECONDS = 20.0
"""How long a cell that is told to stop may take to write its results so far."""
_TAIL_BYTES = 2000


class CellError(UserError):
    """A cell did not finish; ``exit_code`` is that of its ``combee run``."""

    def __init__(self, cell: Cell, exit_code: int, words: str) -> None:
        super().__init__(
            f"cell {cell.name} ended with exit code {exit_code}: {words or 'nothing said'}",
            where=str(cell.folder),
            fix="Mend what it names and run the same command again: finished cells are kept",
        )
        self.exit_code = exit_code


def is_finished(cell: Cell) -> bool:
    """Return whether the cell's folder holds a result of the manifest beside it."""
    try:
        result = json.loads((cell.folder / "result.json").read_bytes())
        digest = manifest_digest(read_run(cell.manifest))
    except (OSError, ValueError):
        return False
    return bool(result.get("exitCode") in FINISHED and result.get("manifestDigest") == digest)


@dataclass(slots=True)
class Launcher:
    """Runs cells; ``report(cell, finished, total)`` is called after each."""

    secrets: Sequence[str]
    jobs: int
    report: Callable[[Cell, int, int], None]
    running: set[asyncio.subprocess.Process] = field(default_factory=set)

    async def run(self, cells: Sequence[Cell]) -> None:
        """Run all cells. Raises CellError for the first that fails. When cancelled, every cell stops
        cleanly."""
        todo = iter([cell for cell in cells if not is_finished(cell)])
        finished = len(cells) - sum(not is_finished(cell) for cell in cells)

        async def worker() -> None:
            nonlocal finished
            for cell in todo:
                await self._run_cell(cell)
                finished += 1
                self.report(cell, finished, len(cells))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.jobs):
                    group.create_task(worker())
        except BaseExceptionGroup as error:
            raise error.exceptions[0] from None

    async def _run_cell(self, cell: Cell) -> None:
        process = await asyncio.create_subprocess_exec(
            *command(cell.manifest, cell.folder, cell.engines, self.secrets),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            _, output = await process.communicate()
        except asyncio.CancelledError:
            await _stop(process)
            raise
        code = process.returncode or 0
        if code not in FINISHED:
            raise CellError(cell, code, _last_line(output))


def command(manifest: Path, folder: Path, engines: Mapping[str, str], secrets: Sequence[str]) -> list[str]:
    """Return the command line of a cell, as a person would write it."""
    words = [sys.executable, "-m", "combee.cli.main", "run", "-f", str(manifest), "-o", str(folder)]
    for name, url in engines.items():
        words += ["--engine", f"{name}={url}"]
    for secret in secrets:
        words += ["--secret", secret]
    return words


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a cell as Ctrl-C does, so that it writes its results so far; kill it when that takes too long."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.communicate(), GRACE_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


def _last_line(output: bytes) -> str:
    lines = output[-_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else ""
