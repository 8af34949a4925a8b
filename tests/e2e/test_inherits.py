"""``combee run`` that starts from another run: from its ledger, not from its text (simulated model)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_support import ENDED, MODEL, Manifest, Sim, Sims, combee, result_of

from combee.methods.ace.ledger import Ledger, from_json
from combee.plan.types import StepSummary

pytestmark = pytest.mark.e2e

Rows = Callable[[int], Path]
BATCH = {"mode": "Fixed", "size": 30, "reason": "test"}


def artifact_of(out: Path) -> Ledger:
    return from_json((out / "artifact.json").read_bytes())


def start_of(out: Path) -> Ledger:
    """The ledger that profile left."""
    return left_by(out, "profile")


def last_of(out: Path) -> Ledger:
    """The ledger after the last iteration, also where nothing better came of it."""
    return left_by(out, "finish")


def left_by(out: Path, kind: str) -> Ledger:
    step = max((out / "steps").glob(f"*-{kind}-*.json"))
    summary = StepSummary.decode(step.read_bytes())
    assert summary is not None
    digest = summary.outputs["artifact"]
    (blob,) = (path for path in (out / "store" / "blobs").rglob("*") if path.name == digest)
    return from_json(blob.read_bytes())


@pytest.fixture
def first(quick: Sim, manifest: Manifest, rows: Rows, tmp_path: Path) -> Path:
    """The folder of a run that learned something."""
    path = manifest(name="first", train=rows(60), batching=BATCH)
    done = combee("run", "-f", path, "-o", tmp_path / "first", "--engine", f"main={quick.url}")
    assert done.returncode in (0, 6), done.stderr
    return tmp_path / "first"


def test_a_run_starts_from_another_ones_ledger(
    quick: Sim, manifest: Manifest, rows: Rows, few: Path, tmp_path: Path, first: Path
) -> None:
    before = artifact_of(first)
    for way, uri in {"folder": first, "file": first / "artifact.json", "flag": tmp_path / "nowhere"}.items():
        data = {"train": {"uri": str(rows(40))}, "heldOut": {"uri": str(few)}}
        task = {"type": "Formula", "data": data, "initialPlaybook": {"uri": str(uri)}}
        path, out = manifest(name=f"from-{way}", task=task, batching=BATCH), tmp_path / way
        flags = ["--data", f"initialPlaybook={first}"] if way == "flag" else []
        done = combee("run", "-f", path, "-o", out, "--engine", f"main={quick.url}", *flags)
        assert done.returncode in ENDED, done.stderr
        start, after = start_of(out), artifact_of(out)
        assert start.texts == before.texts and start.verdicts == before.verdicts
        assert [run.name.rpartition("-")[0] for run in start.runs] == ["first"]
        assert {run.number for run in after.runs} == {1, 2}
        looked_at = {one.entry_digest for one in last_of(out).verdicts if one.run == 0}
        assert looked_at & before.texts.keys(), "what agents say that they used is looked at on fresh rows"
        sources = {fact.source.rpartition("@")[0] for fact in start.supports}
        assert sources and all("#" in source for source in sources), "lines of another file are others"
        assert not any(entry["verified"] == "initial" for entry in result_of(out)["entries"])


def test_a_run_with_another_model_looks_first_at_what_the_first_one_replayed(
    common: Sims, key: Path, manifest: Manifest, rows: Rows, few: Path, tmp_path: Path, first: Path
) -> None:
    other = common.shared("--key", key, "--time-scale", "0", "--served-model-name", "small")
    data = {"train": {"uri": str(rows(40))}, "heldOut": {"uri": str(few)}}
    task = {"type": "Formula", "data": data, "initialPlaybook": {"uri": str(first)}}
    engines = [{"name": "main", "vllm": {"model": "small"}}]
    path, out = manifest(name="small", task=task, batching=BATCH, engines=engines), tmp_path / "small"
    done = combee("run", "-f", path, "-o", out, "--engine", f"main={other.url}")
    assert done.returncode in ENDED, done.stderr
    assert {run.model for run in start_of(out).runs} == {MODEL}
    (warning,) = [one for one in result_of(out)["profile"]["start"].split(". ") if "another model" in one]
    assert f"({MODEL})" in warning and "(small)" in warning
    assert warning in " ".join(done.stdout.split()) and warning in (out / "report.md").read_text()
    looked_at = [one.entry_digest for one in last_of(out).verdicts if one.run == 0]
    replayed = {one.entry_digest for one in start_of(out).verdicts}
    assert replayed & {*looked_at}
    models = {run.number: run.model for run in artifact_of(out).runs}
    assert models == {1: MODEL, 2: "small"}


def test_an_entry_tells_its_life_from_the_folder_of_its_run(first: Path) -> None:
    entry = next(one for one in result_of(first)["entries"] if one["verified"] == "replay")
    done = combee("playbook", "why", first, entry["id"], "--json")
    assert done.returncode == 0, done.stderr
    life = json.loads(done.stdout)
    assert (life["id"], life["shown"], life["text"]) == (entry["id"], entry["rendered"], entry["text"])
    assert {source.partition("@")[0] for source in life["sources"]} and life["won"] > 0
    assert life["events"][0]["what"] == "added"
    assert all(event["iteration"] for event in life["events"]), "the store has the ledger of each iteration"
    (first / "store").rename(first / "gone")
    words = combee("playbook", "why", first, life["digest"][:8])
    assert words.returncode == 0 and f"{entry['id']}  in the playbook" in words.stdout, words.stderr
    assert "this run" not in words.stdout and "run first-" in words.stdout, "as the next run will know it"
    unknown = combee("playbook", "why", first, "stra-000000")
    assert unknown.returncode == 2 and "no entry 'stra-000000'" in unknown.stderr


def test_a_folder_without_what_it_needs_is_refused(
    quick: Sim, manifest: Manifest, rows: Rows, few: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    data = {"train": {"uri": str(rows(20))}, "heldOut": {"uri": str(few)}}
    task = {"type": "Formula", "data": data, "initialPlaybook": {"uri": str(tmp_path / "empty")}}
    path = manifest(task=task, batching=BATCH)
    done = combee("run", "-f", path, "-o", tmp_path / "out", "--engine", f"main={quick.url}")
    assert done.returncode == 2 and "empty/prompt.md" in done.stderr and not (tmp_path / "out").exists()
