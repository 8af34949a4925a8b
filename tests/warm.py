"""The project's programs in processes of their own that have imported most of what they need.

Half of the time of a program in a test is the start of Python and its imports, the same each time. Here one
process imports them once, and each program is forked from it: multiprocessing's forkserver. Its process
group, arguments, environment, files, signals and exit code are its own, as ever; only its report is made
without a process for it, and has no figures. A test of the start itself (what is imported, what Python is
given) or of figures starts Python.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from combee.report import bundle, figures
from combee.report.build import Report, build_report, lessons_markdown
from combee.report.result import Result
from waiting import wait_until

PROGRAMS = {
    "combee": ("combee.cli.main", "main"),
    "combee-gateway": ("combee.gateway.program", "main"),
    "combee-worker": ("combee.pod.main", "program"),
    "combee-operator": ("combee.operator.program", "main"),
    "kill-at-writes": ("kill_at_writes", "main"),
    "killed-at-write": ("killed_at_write", "main"),
}
"""As in pyproject.toml, and two of the tests'."""
FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["warm", "warm_imports"])


class Program:
    """A program under way; the part of ``subprocess.Popen`` that tests need."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        stdout: Path | str,
        stderr: Path | str,
        cwd: Path | str | None = None,
    ) -> None:
        """Start ``words``, the name of one of ``PROGRAMS`` and its arguments. The outputs go to the ends of
        these files, which may be the same."""
        self.args, self.stdout, self.stderr = list(words), Path(stdout), Path(stderr)
        for path in (self.stdout, self.stderr):
            path.touch()
        _begin()
        self._process = FORKING.Process(
            target=_run,
            args=(self.args, dict(environment), str(stdout), str(stderr), str(cwd or Path.cwd())),
            daemon=True,
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, minus a signal's number, or None while it works."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its exit code."""
        self._process.join(timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return what is in its files."""
        self.wait(timeout)
        return self.stdout.read_text(), self.stderr.read_text()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand still within the block. A thread on another core works on after the signal, until that core
        looks: all of them are waited for."""
        self.send_signal(signal.SIGSTOP)
        try:
            wait_until("its standing still", self._stands_still, self)
            yield
        finally:
            self.send_signal(signal.SIGCONT)

    def _stands_still(self) -> bool:
        """Whether each of its threads is stopped. A state stands behind a name, which may hold anything."""
        try:
            stats = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except OSError:  # a thread ended as it was looked at
            return False
        return {stat.rpartition(")")[2].split()[0] for stat in stats} == {"T"}

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run_program(
    words: Sequence[str | Path],
    environment: Mapping[str, str],
    cwd: Path | None = None,
    seconds: float = 500,
) -> subprocess.CompletedProcess[str]:
    """Run ``words`` to their end, and return what they printed."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "out"), Path(folder, "errors")
        program = Program([str(word) for word in words], environment, *files, cwd)
        try:
            out, errors = program.communicate(seconds)
        finally:
            program.kill()
        return subprocess.CompletedProcess(program.args, program.wait(), out, errors)


def _begin() -> None:
    """Start the process that forks the others, which imports from where this one does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        forkserver.ensure_running()


async def build_here(result: Result) -> tuple[str, Report]:
    """What ``build_apart`` returns, built in this process and without figures: drawing them takes longer than
    most runs of tests."""
    text = lessons_markdown(result)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "figures", lambda _: {})
        return text, build_report(result, lessons_markdown=text)


def _end_with(parent: int) -> None:
    """End, with all that this program started, when the process of the tests is there no more."""
    wait([parent])
    os.killpg(0, signal.SIGKILL)


def _run(words: list[str], environment: dict[str, str], stdout: str, stderr: str, cwd: str) -> None:
    os.setsid()
    tests = multiprocessing.parent_process()
    assert tests is not None
    threading.Thread(target=_end_with, args=(tests.sentinel,), daemon=True).start()
    for path, number in ((stdout, 1), (stderr, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    ours = str(Path(__file__).parent)
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*filter(None, given), *(path for path in sys.path if not path.startswith(ours))]
    invalidate_caches()
    bundle.build_apart = build_here
    sys.argv = words
    module, name = PROGRAMS[words[0]]
    getattr(import_module(module), name)()
