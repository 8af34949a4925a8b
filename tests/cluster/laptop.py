"""What a laptop learns from the plans of a run on the cluster."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from cluster_tools import REPOSITORY
from runs import FORMULA, Runs, quickstart

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import ENDED, Sims, environment

from warm import run_program


def locally(runs: Runs, folder: Path, change: Callable[[dict[str, Any]], None] = lambda run: None) -> None:
    """Learn on this machine from the plans of the run."""
    learn(runs.plans(folder / "plans"), folder, change)


def learn(plans: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Learn the quickstart with ``change`` on this machine, from ``plans``, into ``folder / "out"``."""
    rows = next(o for o in quickstart() if o["kind"] == "ConfigMap")["data"]
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    change(run)
    for name, text in rows.items():
        (folder / name).write_text(text)
    data = [f for name in ("train", "heldout") for f in ("--data", str(FORMULA / f"{name}.jsonl"))]
    key = ["sim", "key", "--task", "formula", *data, "-o", str(folder / "key.json")]
    assert run_program(["combee", *key], environment()).returncode == 0
    sim = Sims(folder).start("--key", str(folder / "key.json"), "--time-scale", "0")
    try:
        for model in run["spec"]["models"].values():
            if "endpoint" in model:
                model["endpoint"]["url"] = sim.url
        engines = ["--engine", f"main={sim.url}"] if "engines" in run["spec"] else []
        data = ["--data", f"train={folder / 'train.jsonl'}", "--data", f"heldOut={folder / 'heldout.jsonl'}"]
        combee_run(run, folder, [*engines, *data, "--plans", str(plans)])
    finally:
        sim.stop()


def combee_run(run: dict[str, Any], folder: Path, flags: Sequence[str]) -> None:
    """``combee run`` of a manifest to its end."""
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    words = ["combee", "run", "-f", folder / "run.yaml", "-o", folder / "out", *flags]
    done = run_program(words, environment(), seconds=400)
    assert done.returncode in ENDED, done.stdout + done.stderr


def blob(folder: Path, text: str) -> Path:
    """Where the local run keeps ``text``, if it has learned the very same."""
    return kept(folder, hashlib.sha256(text.encode()).hexdigest())


def kept(folder: Path, digest: str) -> Path:
    """Where the local run keeps what has ``digest``, if it has made the very same."""
    return folder / "out" / "store" / "blobs" / digest[:2] / digest
