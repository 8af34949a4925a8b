"""What a laptop learns from the plans of a run on the cluster."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from cluster_tools import REPOSITORY
from runs import FORMULA, Runs, quickstart

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import COMBEE, Sims, environment


def locally(runs: Runs, folder: Path, change: Callable[[dict[str, Any]], None] = lambda run: None) -> None:
    """Learn on this machine with ``combee run --plans``, from the plans of the run."""
    rows = next(o for o in quickstart() if o["kind"] == "ConfigMap")["data"]
    run = next(o for o in quickstart() if o["kind"] == "PromptLearningRun")
    change(run)
    for name, text in rows.items():
        (folder / name).write_text(text)
    key = folder / "key.json"
    data = [f for name in ("train", "heldout") for f in ("--data", str(FORMULA / f"{name}.jsonl"))]
    subprocess.run(
        [*COMBEE, "sim", "key", "--task", "formula", *data, "-o", str(key)], check=True, env=environment()
    )
    sims = Sims(folder)
    sim = sims.start("--key", str(key), "--time-scale", "0")
    try:
        for model in run["spec"]["models"].values():
            if "endpoint" in model:
                model["endpoint"]["url"] = sim.url
        (folder / "run.yaml").write_text(yaml.safe_dump(run))
        engines = ["--engine", f"main={sim.url}"] if "engines" in run["spec"] else []
        flags = [*engines, "--plans", str(runs.plans(folder / "plans"))]
        flags += [
            "--data",
            f"train={folder / 'train.jsonl'}",
            "--data",
            f"heldOut={folder / 'heldout.jsonl'}",
        ]
        done = subprocess.run(
            [*COMBEE, "run", "-f", str(folder / "run.yaml"), "-o", str(folder / "out"), *flags],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=400,
        )
        assert done.returncode == 0, done.stderr
    finally:
        sim.stop()


def blob(folder: Path, text: str) -> Path:
    """Where the local run keeps ``text``, if it has learned the very same."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return folder / "out" / "store" / "blobs" / digest[:2] / digest
