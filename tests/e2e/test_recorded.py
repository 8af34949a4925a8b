"""The recording of a real model that ``make demo`` shows: it learns what it learnt, and asks nobody."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from e2e_support import ROOT, environment, result_of

from combee.clients.store.store import Store
from combee.compare.collect import read_steps
from combee.steps import EVALUATE
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
    result = result_of(tmp_path)
    assert result["heldOut"]["gate"]["low"] > 0, result["heldOut"]
    assert _facts_that_are_right(tmp_path) == {"pepper", "olive", "amber"}, "examples/demo.sh says which"


def test_the_recorded_replies_end_as_they_ended(tmp_path: Path) -> None:
    """One real model in every role, scored by a rubric: what its labels say of it, and what it used."""
    with tarfile.open(RECORDED / "replies" / "memo.tar.gz") as archive:
        archive.extractall(tmp_path / "store", filter="data")
    words = ["combee", "run", "-f", EXAMPLES / "replies-real.yaml", "-o", tmp_path, "--recorded"]
    done = run_program(words, environment())
    result, ended = result_of(tmp_path), json.loads((RECORDED / "replies" / "ended.json").read_text())
    # Prompts, schemas or rows have changed where an answer is missing: make demo-real TASK=replies RECORD=1.
    assert (result["outcome"], result["reason"]) == (ended["outcome"], ended["reason"]), done.stdout
    assert result["rollouts"] == ended["rollouts"]
    calls = {role: one["calls"] for role, one in result["usage"].items()}
    assert calls == {role: one["calls"] for role, one in ended["usage"].items()}
    assert all(one["hits"] == one["calls"] for one in result["usage"].values()), "nobody is asked"


def _facts_that_are_right(folder: Path) -> set[str]:
    """Return the targets of the questions of gate that the learned playbook answers right."""
    lines = (EXAMPLES / "office" / "heldout.jsonl").read_text().splitlines()
    targets = {row["id"]: row["target"] for row in map(json.loads, lines)}
    store = Store.open(str(folder / "store"))
    (look,) = (step for step in read_steps(folder) if step.kind == EVALUATE.name)
    record = json.loads(store.get_blob(look.outputs["record"]))
    scores = json.loads(store.get_blob(record["scores"]["gate"]))["best"]
    return {targets[key] for key, score in scores.items() if score}
