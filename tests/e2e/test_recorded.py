"""The recording of a real model that ``make demo`` shows: it learns what it learnt, and asks nobody."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from e2e_support import ROOT, environment, result_of

from warm import run_program

pytestmark = pytest.mark.e2e
EXAMPLES = ROOT / "examples"
RECORDED = EXAMPLES / "recorded"


def test_it_learns_what_it_learnt(tmp_path: Path) -> None:
    with tarfile.open(RECORDED / "memo.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    words = ["combee", "run", "-f", EXAMPLES / "real.yaml", "-o", tmp_path, "--recorded"]
    for split, file in (("train", "train.jsonl"), ("heldOut", "heldout.jsonl")):
        words += ["--data", f"{split}={EXAMPLES / 'office' / file}"]
    done = run_program(words, {**environment(), "PYTHONPATH": str(EXAMPLES / "office")})
    # Prompts, schemas or rows have changed where an answer is missing: make demo-real RECORD=1 records anew.
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "prompt.md").read_bytes() == (RECORDED / "prompt.md").read_bytes()
    gate = result_of(tmp_path)["heldOut"]["gate"]
    assert gate["low"] > 0, gate
