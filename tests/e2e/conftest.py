"""A simulated model server and the real command line, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FORMULA = ROOT / "examples" / "data" / "formula"
MODEL = "openai/gpt-oss-120b"
COMBEE = [sys.executable, "-m", "combee.cli.main"]


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
            self.process.wait(10)
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
        deadline = time.monotonic() + 30
        while not port.exists():
            assert process.poll() is None, (self.folder / f"sim{number}.err").read_text()
            assert time.monotonic() < deadline, "the simulated model did not come up"
            time.sleep(0.05)
        sim = Sim(process, f"http://127.0.0.1:{port.read_text().strip()}/v1", log)
        self.started.append(sim)
        return sim


@pytest.fixture
def sims(tmp_path: Path) -> Iterator[Sims]:
    folder = tmp_path / "sims"
    folder.mkdir()
    running = Sims(folder)
    yield running
    for sim in running.started:
        sim.stop()


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key file of the real Formula data."""
    path = tmp_path_factory.mktemp("key") / "key.json"
    done = combee(
        "sim",
        "key",
        "--task",
        "formula",
        "--data",
        FORMULA / "train.jsonl",
        "--data",
        FORMULA / "heldout.jsonl",
        "-o",
        path,
    )
    assert done.returncode == 0, done.stderr
    return path


Manifest = Callable[..., Path]


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Writes a manifest: ``manifest(rows=100, batching={...}, ...)``; keywords are spec fields."""

    def write(
        *, name: str = "run", train: Path | None = None, held_out: Path | None = None, **spec: object
    ) -> Path:
        model = {"engineRef": {"name": "main"}}
        document = {
            "apiVersion": "combee.dev/v1alpha1",
            "kind": "PromptLearningRun",
            "metadata": {"name": name},
            "spec": {
                "task": {
                    "type": "Formula",
                    "data": {
                        "train": {"uri": str(train or FORMULA / "train.jsonl")},
                        "heldOut": {"uri": str(held_out or FORMULA / "heldout.jsonl")},
                    },
                },
                "method": {"type": "ACE"},
                "engines": [{"name": "main", "vllm": {"model": MODEL}}],
                "models": {"task": model, "proposer": model},
                "seed": 7,
                **spec,
            },
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[int], Path]:
    """The first n rows of the real train split, as a file."""

    def write(count: int) -> Path:
        path = tmp_path / f"train{count}.jsonl"
        lines = (FORMULA / "train.jsonl").read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:count]))
        return path

    return write


def result_of(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())
