"""``method.ace.programs``: programs enter by their own test alone, also after a kill and in a replay
(simulated model, behind a writer of programs)."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from e2e_support import Manifest, Sim, Sims, combee, result_of
from killing import Killed, survives_all
from pods import UID, Cluster
from program_writer import HOSTILE, writing
from test_worker import claims

from combee.clients.sandbox import proof
from combee.clients.store.store import Store
from combee.methods.ace.ledger import from_json
from combee.methods.ace.parse import parse_playbook
from combee.methods.ace.program import is_program
from combee.names import step_name

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="programs are confined by Linux"),
    pytest.mark.timeout(900, func_only=True),  # four runs in the longest
]
Rows = Callable[[int], Path]


@pytest.fixture
def path(manifest: Manifest, rows: Rows) -> Path:
    return manifest(
        name="programs",
        train=rows(60),
        batching={"mode": "Fixed", "size": 30, "reason": "test"},
        workers={"concurrency": 8, "hedgeBudget": 0},
        method={"type": "ACE", "ace": {"programs": {"testSeconds": 1}}},
    )


def test_only_what_passes_its_own_test_within_its_limits_enters_and_is_kept(
    quick: Sim, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with writing(quick.url) as (writer, url):
        done = combee("run", "-f", path, "-o", out, "--engine", f"main={url}")
    assert done.returncode in (0, 6), done.stderr
    assert set(writer.written) == {"", *HOSTILE}
    result, page = result_of(out), parse_playbook((out / "prompt.md").read_text())
    shown = {line.body for line in page.bullets}
    assert shown and all(map(is_program, shown)) and shown <= {*writer.written[""]}
    why = Counter(one["reason"] for one in result["refusals"] if one["kind"] == "program")
    asks = "its test asks the system for a file, a process, a socket or the like"
    assert set(why) == {"its test takes more than 1 s", asks}
    left_out = {one["text"]: one["leftOut"] for one in result["entries"] if one["leftOut"] == "program"}
    assert set(left_out) == {one for kind in HOSTILE for one in writer.written[kind]}
    assert any(one["rendered"] and one["verified"] == "replay" for one in result["entries"])
    _its_life(out, result)

    async def never(program: str, seconds: int) -> proof.Proof:
        raise AssertionError("a replay runs no program")

    monkeypatch.setattr("combee.work.proofs.proved", never)
    told = combee("replay", out, "-f", path, "--json")
    assert told.returncode == 0 and json.loads(told.stdout)["identical"], told.stdout + told.stderr


def _its_life(out: Path, result: dict) -> None:
    """Whether an entry that entered, and one that did not, tell it."""
    entered = next(one for one in result["entries"] if one["rendered"])
    refused = next(one for one in result["entries"] if one["leftOut"] == "program")
    lives = [combee("playbook", "why", out, one["id"]).stdout for one in (entered, refused)]
    assert re.search(r"^ +    return share \* scale$", lives[0], re.MULTILINE)
    assert "learned from example" in lives[0] and "its own test did not let it in" in lives[1]
    assert "refused: its test" in lives[1]
    assert "def rule_" in (out / "lessons.md").read_text()


def test_a_run_that_is_killed_goes_on_to_the_same_programs(
    sims: Sims, key: Path, path: Path, tmp_path: Path
) -> None:
    sim = sims.start("--key", key, "--time-scale", "0.01")
    with writing(sim.url) as (_, url):
        survives_all(Killed(path, replace(sim, url=url), 8), tmp_path, 3, "programs")
    assert "```python" in (tmp_path / "whole" / "prompt.md").read_text()


def test_pods_run_the_tests_as_a_laptop_does(
    quick: Sim, manifest: Manifest, rows: Rows, few: Path, tmp_path: Path, clusters: list[Cluster]
) -> None:
    path = manifest(
        name="pods",
        train=rows(18).rename(tmp_path / "train.jsonl"),
        held_out=few.rename(tmp_path / "heldOut.jsonl"),
        batching={"mode": "Fixed", "size": 18, "reason": "test"},
        workers={"concurrency": 8, "hedgeBudget": 0, "parallelism": 1, "waitSeconds": 60},
        method={"type": "ACE", "ace": {"programs": {"testSeconds": 1}}},
    )
    with writing(quick.url) as (writer, url):
        cluster = Cluster(tmp_path / "cluster", claims(path), url.replace("127.0.0.1", "localhost"))
        clusters.append(cluster)
        assert cluster.to_the_end(lambda pods, iteration: None).outcome is not None
    finish = cluster.summaries[step_name("pods", UID, 0, "finish")]
    ledger = from_json(Store.open(str(cluster.folder / "store")).get_blob(finish.outputs["artifact"]))
    refused = {ledger.texts[one.entry_digest] for one in ledger.refusals if one.kind == "program"}
    assert refused == {one for kind in HOSTILE for one in writer.written.get(kind, ())} != set()
    assert set(ledger.texts.values()) - refused == {*writer.written[""]} != set()
