"""Killed at every step boundary: the same bytes afterwards, and no more asked twice than was in flight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from bench.harness import COMBEE, FORMULA, Row, environment, formula_key, formula_rows, manifest, simulated
from combee.compare.launch import FINISHED

CONCURRENCY = 8
TEST = "tests/e2e/test_kill.py"


def killed(folder: Path) -> Row:
    """One run undisturbed, then one killed at each step boundary and resumed."""
    held_out = folder / "held-out.jsonl"
    held_out.write_bytes(b"".join((FORMULA / "heldout.jsonl").read_bytes().splitlines(keepends=True)[:40]))
    workers = {"concurrency": CONCURRENCY, "hedgeBudget": 0}
    path = manifest(folder, "killed", formula_rows(folder, 40), held_out, 20, workers=workers)
    log = folder / "answered.jsonl"
    with simulated(folder, "--key", formula_key(folder), "--time-scale", "0.02", "--log", log) as url:
        wanted = _finish(path, folder / "whole", url)
        boundaries = len(_steps(folder / "whole"))
        found = [_kill_at(path, folder / f"cut-{step}", url, step, log) for step in range(1, boundaries)]
    same = sum(digest == wanted for digest, _, _ in found)
    most = max(twice for _, twice, _ in found)
    return Row(
        name="killed at every step boundary: byte-identical playbooks",
        figure=same,
        target=f"all {len(found)}, <= {CONCURRENCY} answered twice",
        unit=f"of {len(found)}",
        met=same == len(found) and most <= CONCURRENCY,
        how=f"SIGKILL of `combee run` (40 rows, batch 20, {CONCURRENCY} calls at a time) as soon as the "
        f"summary of its "
        f"k-th step is there, for every k but the last, then the same command; simulated model. {TEST} "
        f"kills at "
        "40 random moments and between temporary file and link, too",
        detail={
            "answeredTwice": [twice for _, twice, _ in found],
            "aliveWhenKilled": sum(alive for _, _, alive in found),
        },
    )


def _steps(out: Path) -> list[Path]:
    return list((out / "steps").glob("*.json"))


def _command(path: Path, out: Path, url: str) -> list[str]:
    return [*COMBEE, "run", "-f", str(path), "-o", str(out), "--engine", f"main={url}"]


def _finish(path: Path, out: Path, url: str) -> bytes:
    """Run to the end; the playbook's bytes and digest."""
    done = subprocess.run(
        _command(path, out, url), capture_output=True, text=True, env=environment(), check=False
    )
    if done.returncode not in FINISHED:
        raise RuntimeError(f"combee run ended with {done.returncode}: {done.stderr[-1000:]}")
    digest = json.loads((out / "result.json").read_text())["playbook"]["digest"]
    return (out / "prompt.md").read_bytes() + str(digest).encode()


def _kill_at(path: Path, out: Path, url: str, step: int, log: Path) -> tuple[bytes, int, bool]:
    """(playbook after the resume, calls answered twice, whether there was still a process to kill)."""
    before = _answered(log)
    process = subprocess.Popen(
        _command(path, out, url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    while process.poll() is None and len(_steps(out)) < step:
        time.sleep(0.02)
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    digest = _finish(path, out, url)
    asked = _answered(log) - before
    return digest, sum(count - 1 for count in asked.values()), alive


def _answered(log: Path) -> Counter[str]:
    """How often each request was answered so far, by its digest."""
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return Counter(row["request"] for row in rows if row["status"] == 200)
