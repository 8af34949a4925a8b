"""What end-to-end tests share: the real command line and a simulated model, in processes of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from combee.cli.main import main
from combee.report import bundle
from waiting import wait_until
from warm import Program, build_here, run_program

ROOT = Path(__file__).resolve().parents[2]
FORMULA = ROOT / "examples" / "data" / "formula"
MODEL = "openai/gpt-oss-120b"
COMBEE = [sys.executable, "-m", "combee.cli.main"]
ENDED = (0, 3, 6)
"""Learned, nothing better, or unsure: the run came to its own end."""


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "COLUMNS": "100", **extra}


def combee(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, in this process: it costs no start of Python, and drawing its report
    none.

    What a test is about the process itself (signals, pipes, what Python is started with) needs
    ``process``."""
    words, out, errors = ["combee", *map(str, arguments)], io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        patch.setattr(sys, "argv", words)
        patch.setattr(bundle, "build_apart", build_here)
        for name, value in {"COLUMNS": "100", **extra}.items():
            patch.setenv(name, value)
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def process(
    *arguments: str | Path, cwd: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, in a process of its own."""
    return run_program(["combee", *arguments], environment(**extra), cwd)


@dataclass
class Sim:
    """A running simulated model."""

    process: Program
    url: str
    log: Path

    def answered(self, role: str = "") -> Counter[str]:
        """How often each request was answered, by the digest of the request; of ``role`` alone, if given."""
        return self.answered_until(self.said(), role)

    def answered_until(self, said: int, role: str = "") -> Counter[str]:
        """The same, of the first ``said`` bytes of its log."""
        log = self.log.read_bytes()[:said] if self.log.exists() else b""
        rows = [json.loads(line) for line in log.splitlines() if line.endswith(b"}")]
        return Counter(row["request"] for row in rows if row["status"] == 200 and role in ("", row["role"]))

    def said(self) -> int:
        """Bytes of its log."""
        return self.log.stat().st_size if self.log.exists() else 0

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Sims:
    """Starts simulated models, and stops them at the end."""

    folder: Path
    started: list[Sim] = field(default_factory=list)
    by_flags: dict[tuple[str, ...], Sim] = field(default_factory=dict)

    def shared(self, *flags: str | Path) -> Sim:
        """A model shared by all who give these flags and do not count its calls: a hedge of a finished run
        may still be answered."""
        words = tuple(map(str, flags))
        if words not in self.by_flags:
            self.by_flags[words] = self.start(*flags)
        return self.by_flags[words]

    def stop(self) -> None:
        for sim in self.started:
            sim.stop()

    def start(self, *flags: str | Path) -> Sim:
        number = len(self.started)
        port, log = self.folder / f"port{number}", self.folder / f"sim{number}.log"
        words = ["combee", "sim", "serve", MODEL, "--port", "0", "--port-file", str(port), "--log", str(log)]
        errors = self.folder / f"sim{number}.err"
        process = Program([*words, *map(str, flags)], environment(), os.devnull, errors)
        wait_until(f"the model's port, see sim{number}.err", port.exists, process)
        sim = Sim(process, f"http://127.0.0.1:{port.read_text().strip()}/v1", log)
        self.started.append(sim)
        return sim


Manifest = Callable[..., Path]


def result_of(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())
