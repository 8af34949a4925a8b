"""SIGKILL anywhere, then the same command: the same bytes, and only what was in flight asked twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_support import FORMULA, Manifest, Sim, Sims
from killing import Killed, survives, survives_all, survives_every_write

pytestmark = pytest.mark.e2e

CONCURRENCY = 8
WORKERS = {"concurrency": CONCURRENCY, "hedgeBudget": 0}
"""A hedge is a call answered twice on purpose, and counted apart."""
FIXED = {"mode": "Fixed", "size": 12, "reason": "test"}
MOMENTS, MANY_MOMENTS = 4, 20


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """Train rows of two iterations and some heldOut rows of the real data. More rows make no other kind of
    write."""
    paths = []
    for name in ("train", "heldout"):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"".join((FORMULA / f"{name}.jsonl").read_bytes().splitlines(keepends=True)[:24]))
        paths.append(path)
    return paths[0], paths[1]


@pytest.fixture
def sim(sims: Sims, key: Path) -> Sim:
    return sims.start("--key", key, "--time-scale", "0.005")


def of_measured_sizes(sim: Sim, manifest: Manifest, small: tuple[Path, Path], folder: Path) -> Killed:
    """A run that measures its batch sizes, which is to be killed obeying the plans of an earlier one."""
    path = manifest(train=small[0], held_out=small[1], batching={"sizes": [4, 8, 12]}, workers=WORKERS)
    Killed(path, sim, CONCURRENCY).to_the_end(folder / "planned")
    return Killed(path, sim, CONCURRENCY, flags=("--plans", folder / "planned" / "plans"))


def test_killed_at_every_write_of_a_fixed_size(
    sim: Sim, manifest: Manifest, small: tuple[Path, Path], tmp_path: Path
) -> None:
    path = manifest(train=small[0], held_out=small[1], batching=FIXED, workers=WORKERS)
    survives_every_write(Killed(path, sim, CONCURRENCY), tmp_path)


def test_killed_at_every_write_next_to_a_given_plan(
    sim: Sim, manifest: Manifest, small: tuple[Path, Path], tmp_path: Path
) -> None:
    """Before it, while the step that leads to it is the last, and after it, in the map that obeys it."""
    run = of_measured_sizes(sim, manifest, small, tmp_path)
    survives_every_write(run, tmp_path, after="-profile|-finish|^plans/")


def test_killed_at_random_moments(
    sim: Sim, manifest: Manifest, small: tuple[Path, Path], tmp_path: Path
) -> None:
    path = manifest(train=small[0], held_out=small[1], batching=FIXED, workers=WORKERS)
    survives_all(Killed(path, sim, CONCURRENCY), tmp_path, MOMENTS, "kill Fixed")


@pytest.mark.long
@pytest.mark.timeout(1500, func_only=True)  # twenty runs, killed and gone on with
@pytest.mark.parametrize("mode", ["Fixed", "plans"])
def test_killed_at_many_random_moments(
    mode: str, sim: Sim, manifest: Manifest, small: tuple[Path, Path], tmp_path: Path
) -> None:
    if mode == "Fixed":
        path = manifest(train=small[0], held_out=small[1], batching=FIXED, workers=WORKERS)
        run = Killed(path, sim, CONCURRENCY)
    else:
        run = of_measured_sizes(sim, manifest, small, tmp_path)
    survives(run, tmp_path, MANY_MOMENTS, f"kill {mode}")
