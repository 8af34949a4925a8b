"""SIGKILL anywhere, then the same command: the same bytes, and only what was in flight asked twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from e2e_support import COMBEE, FORMULA, KILL_AT_LINK, Manifest, Sim, Sims, combee, result_of, start

pytestmark = pytest.mark.e2e

CONCURRENCY = 8
WORKERS = {"concurrency": CONCURRENCY, "hedgeBudget": 0}
"""A hedge is a call answered twice on purpose, and counted apart."""
POINTS = 20
LINKS = 5


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """40 train rows and 40 heldOut rows of the real data."""
    paths = []
    for name in ("train", "heldout"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join((FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)[:40]))
        paths.append(path)
    return paths[0], paths[1]


def arguments(path: Path, out: Path, sim: Sim, *flags: str | Path) -> list[str]:
    return ["run", "-f", str(path), "-o", str(out), "--engine", f"main={sim.url}", *map(str, flags)]


def kill_after(command: list[str], seconds: float) -> bool:
    """Whether the process group was still alive to be killed."""
    process = start(command)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


def digests(out: Path) -> tuple[str, bytes]:
    return result_of(out)["playbook"]["digest"], (out / "playbook.md").read_bytes()


def resume_and_compare(
    what: str, command: list[str], out: Path, sim: Sim, before: Counter[str], wanted: tuple[str, bytes]
) -> None:
    done = combee(*command)
    assert done.returncode in (0, 3), done.stderr
    asked = sim.answered() - before
    twice = sum(count - 1 for count in asked.values())
    got = digests(out)
    print(f"killed {what}: {twice} calls answered twice, playbook {got[0][:16]}")
    assert got == wanted
    assert twice <= CONCURRENCY


@pytest.mark.slow
@pytest.mark.timeout(1500, func_only=True)  # twenty runs, killed and gone on with
@pytest.mark.parametrize("mode", ["Fixed", "plans"])
def test_killed_at_random_moments(
    mode: str, sims: Sims, key: Path, manifest: Manifest, small: tuple[Path, Path], tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0.02")
    batching = {"mode": "Fixed", "size": 20, "reason": "test"} if mode == "Fixed" else {"sizes": [4, 12, 20]}
    path = manifest(train=small[0], held_out=small[1], batching=batching, workers=WORKERS)
    whole = tmp_path / "undisturbed"
    started = time.monotonic()
    assert combee(*arguments(path, whole, sim)).returncode in (0, 3)
    seconds = time.monotonic() - started
    wanted = digests(whole)
    plans = ["--plans", whole / "plans"] if mode == "plans" else []
    draw = random.Random(f"kill {mode}")
    for number in range(POINTS):
        point, tries = draw.uniform(0.1, 0.9) * seconds, 0
        while True:  # a point after the end of a quicker run kills nothing: an earlier one is taken
            out, before = tmp_path / f"out{number}-{tries}", sim.answered()
            command = arguments(path, out, sim, *plans)
            if kill_after([*COMBEE, *command], point):
                break
            point, tries = point * 0.6, tries + 1
        resume_and_compare(f"after {point:.2f} of {seconds:.2f} s", command, out, sim, before, wanted)


@pytest.mark.slow
def test_killed_between_temporary_file_and_link(
    sims: Sims, key: Path, manifest: Manifest, small: tuple[Path, Path], tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0")
    batching = {"mode": "Fixed", "size": 20, "reason": "test"}
    path = manifest(train=small[0], held_out=small[1], batching=batching, workers=WORKERS)
    assert combee(*arguments(path, tmp_path / "undisturbed", sim)).returncode in (0, 3)
    wanted = digests(tmp_path / "undisturbed")
    draw = random.Random("kill at link")
    for number in range(LINKS):
        out, before = tmp_path / f"out{number}", sim.answered()
        command = arguments(path, out, sim)
        nth = draw.randrange(1, 150)
        process = start([sys.executable, "-c", KILL_AT_LINK, str(nth), *command])
        assert process.wait(300) == -signal.SIGKILL
        resume_and_compare(f"at link {nth}", command, out, sim, before, wanted)
