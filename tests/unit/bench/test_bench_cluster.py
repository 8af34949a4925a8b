"""What the row of the cluster calls met."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REACTED = [0.2, 0.4, 0.5, 2.0, 9.0]


@pytest.mark.parametrize(
    ("early", "reacted", "met"),
    [
        (5.0, REACTED, True),
        (5.5, REACTED, False),
        (5.0, [0.2, 0.4, 0.51, 0.6, 0.7], False),
        (5.5, [0.6], False),
    ],
    ids=["both", "the ratio is not", "the reaction is not", "neither is"],
)
def test_the_cluster_row_judges_the_ratio_and_the_reaction(
    early: float, reacted: list[float], met: bool
) -> None:
    """Iterations of 12 s in series hold 4 s of model time, so 8 s beside it; 4 s of those are half."""
    from bench.cluster import Measured, row
    from bench.timeline import CHAIN, PHASES

    def measured(seconds: float, reactions: list[float]) -> Measured:
        spent = {kind: dict.fromkeys((name for name, _ in PHASES), 0.0) for kind in CHAIN}
        spent["map"]["work"] = seconds
        return Measured([spent] * 3, [4.0] * 3, reactions)

    got = row({"Never": measured(12.0, reacted), "Auto": measured(3.0 + early, reacted)})
    assert got.figure == pytest.approx((early - 1.0) / 8.0, abs=1e-3)
    assert got.met is met
    said = got.detail["event to reaction s"]
    assert (said["events"], said["target"]) == (2 * len(reacted), "p50 <= 0.5")
    assert "p50 <= 0.5 s" in got.target


def python(*words: str, path: str) -> None:
    """Run Python as ``make`` does, outside of pytest."""
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_cluster_row_finds_the_helpers_of_the_tests() -> None:
    program = "from bench.cluster import helpers_of_tests; helpers_of_tests(); import runs"
    python("-c", program, path=".:operator")


def test_the_soak_finds_the_helpers_of_the_tests() -> None:
    line = re.search(
        r"PYTHONPATH=(\S+) \S+/python (tests/cluster/soak\.py) ", (ROOT / "Makefile").read_text()
    )
    assert line is not None
    python(line[2], "--help", path=line[1])
