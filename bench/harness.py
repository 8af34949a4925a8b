"""What the rows share: a simulated model in a process of its own, manifests, measured runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FORMULA = ROOT / "examples" / "data" / "formula"
MODEL = "openai/gpt-oss-120b"
COMBEE = [sys.executable, "-m", "combee.cli.main"]


@dataclass(frozen=True)
class Row:
    """One line of the table. ``figure`` is None where nothing was run (``how`` says why), ``met`` where there
    is nothing to compare with."""

    name: str
    figure: float | None
    target: str
    unit: str
    how: str
    met: bool | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def environment() -> dict[str, str]:
    """Ours, with the product and the bench importable."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}", "COLUMNS": "100"}


def combee(*arguments: str | Path) -> None:
    """A command that must succeed."""
    done = subprocess.run(
        [*COMBEE, *map(str, arguments)], capture_output=True, text=True, env=environment(), check=False
    )
    if done.returncode:
        raise RuntimeError(f"combee {arguments[0]} {arguments[1]}: {done.stderr.strip()}")


@contextmanager
def simulated(folder: Path, *flags: str | Path) -> Iterator[str]:
    """The URL of a simulated model that lives as long as the block."""
    port = folder / f"port-{time.monotonic_ns()}"
    command = [*COMBEE, "sim", "serve", MODEL, "--port", "0", "--port-file", str(port), *map(str, flags)]
    with (folder / "sim.err").open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment())
    try:
        deadline = time.monotonic() + 60
        while not port.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the simulated model did not come up: " + (folder / "sim.err").read_text())
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port.read_text().strip()}/v1"
    finally:
        process.terminate()
        process.wait(20)


def formula_key(folder: Path) -> Path:
    """The key file of the real Formula data."""
    path = folder / "formula-key.json"
    if not path.exists():
        splits = [FORMULA / "train.jsonl", FORMULA / "heldout.jsonl"]
        combee("sim", "key", "--task", "formula", "--data", splits[0], "--data", splits[1], "-o", path)
    return path


def formula_rows(folder: Path, count: int) -> Path:
    """The first rows of the real train split."""
    path = folder / f"formula-{count}.jsonl"
    lines = (FORMULA / "train.jsonl").read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:count]))
    return path


def planted(folder: Path, rows: int, rules: int) -> tuple[Path, Path]:
    """(train, heldOut) of the planted task."""
    made = folder / f"planted-{rows}-{rules}"
    if not made.exists():
        combee("sim", "planted", "-o", made, "--rows", str(rows), "--rules", str(rules))
    return made / "train.jsonl", made / "heldOut.jsonl"


def manifest(folder: Path, name: str, train: Path, held_out: Path, size: int, **spec: Any) -> Path:
    """A manifest with a fixed batch size; keywords are further fields of the spec."""
    model = {"engineRef": {"name": "main"}}
    document = {
        "apiVersion": "combee.dev/v1alpha1",
        "kind": "PromptLearningRun",
        "metadata": {"name": name},
        "spec": {
            "task": {
                "type": "Formula",
                "data": {"train": {"uri": str(train)}, "heldOut": {"uri": str(held_out)}},
            },
            "method": {"type": "ACE"},
            "engines": [{"name": "main", "vllm": {"model": MODEL}}],
            "models": {"task": model, "proposer": model},
            "batching": {"mode": "Fixed", "size": size, "reason": "measured at this size"},
            "stopping": {"patience": 100},
            "workers": {"concurrency": 64},
            "seed": 7,
            **spec,
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass(frozen=True)
class Measured:
    """A run that was measured: what ``bench.child`` wrote, its result, and its folder."""

    figures: dict[str, Any]
    result: dict[str, Any]
    out: Path


def run(folder: Path, path: Path, url: str) -> Measured:
    """`combee run` under ``bench.child``; it must end by itself (whatever it has learned)."""
    out, measured = folder / f"{path.stem}-out", folder / f"{path.stem}-measured.json"
    command = [sys.executable, "-m", "bench.child", str(measured), "run", "-f", str(path), "-o", str(out)]
    done = subprocess.run(
        [*command, "--engine", f"main={url}", "--json"],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    if not measured.exists() or not (out / "result.json").exists():
        raise RuntimeError(f"the run {path.stem} left no result: {done.stdout[-500:]}{done.stderr[-2000:]}")
    return Measured(json.loads(measured.read_text()), json.loads((out / "result.json").read_text()), out)


def calls_of(out: Path, iteration: int) -> list[list[Any]]:
    """The recorded call graph of one iteration: rows of ``work.asker.Asker.encode``, in stage order."""
    rows: list[list[Any]] = []
    for kind in ("map", "reduce", "finish"):
        for manifest_file in sorted((out / "store").glob(f"runs/*/steps/*-i{iteration:03d}-{kind}-*/*.json")):
            digest = json.loads(manifest_file.read_text())["outputs"]["calls"]
            blob = (out / "store" / "blobs" / digest[:2] / digest).read_text()
            rows += [json.loads(line) for line in blob.splitlines()]
    return rows
