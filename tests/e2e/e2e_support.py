"""What end-to-end tests share: the real command line and a simulated model, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORMULA = ROOT / "examples" / "data" / "formula"
MODEL = "openai/gpt-oss-120b"
COMBEE = [sys.executable, "-m", "combee.cli.main"]
KILL_AT_LINK = """
import os, signal, sys
real, left = os.link, [int(sys.argv[1])]
def link(*a, **k):
    left[0] -= 1
    if left[0] == 0:
        os.killpg(0, signal.SIGKILL)
    return real(*a, **k)
os.link = link
sys.argv = ["combee", *sys.argv[2:]]
from combee.cli.main import main
main()
"""


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "operator"), "COLUMNS": "100", **extra}


def combee(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [*COMBEE, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**extra),
        timeout=500,
    )


@dataclass
class Sim:
    """A running simulated model."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def answered(self) -> Counter[str]:
        """How often each request was answered, by the digest of the request."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        rows = [json.loads(line) for line in lines]
        return Counter(row["request"] for row in rows if row["status"] == 200)

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

    def start(self, *flags: str | Path) -> Sim:
        number = len(self.started)
        port, log = self.folder / f"port{number}", self.folder / f"sim{number}.log"
        process = subprocess.Popen(
            [
                *COMBEE,
                "sim",
                "serve",
                MODEL,
                "--port",
                "0",
                "--port-file",
                str(port),
                "--log",
                str(log),
                *map(str, flags),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / f"sim{number}.err").open("wb"),
            env=environment(),
        )
        deadline = time.monotonic() + 240
        while not port.exists():
            assert process.poll() is None, (self.folder / f"sim{number}.err").read_text()
            assert time.monotonic() < deadline, "the simulated model did not come up"
            time.sleep(0.05)
        sim = Sim(process, f"http://127.0.0.1:{port.read_text().strip()}/v1", log)
        self.started.append(sim)
        return sim


Manifest = Callable[..., Path]


def result_of(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """A process in a group of its own, so that all of it can be killed."""
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
