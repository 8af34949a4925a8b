"""Benchmarks of agents: tasks in their layouts become rows, and runs learn from them, each by its metric."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmark_layouts import STANDINS, appworld_root, tau2_checkout
from e2e_support import ROOT, combee, environment, result_of
from gardener import Gardener, code, gardener

from answering import answering
from combee.assembly.benchmarks.tau2 import read_tau2

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux"),
]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def model() -> Iterator[Gardener]:
    with gardener() as running:
        yield running


def written(folder: Path, example: str, program: str, *args: str) -> Path:
    """An example of ours with its rows in ``folder``, and its program beside the benchmark's stand-in."""
    document = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    spec = document["spec"]
    shutil.copy(EXAMPLES / example / program, folder)
    shutil.copy(STANDINS / f"{example}.py", folder)
    spec["task"]["custom"]["container"] |= {"localCommand": [sys.executable, program, *args], "memory": "1Gi"}
    for source in spec["task"]["data"].values():
        source["uri"] = Path(source["uri"]).name
    spec["batching"] = {"mode": "Fixed", "size": 12, "reason": "test"}
    spec["workers"] = {"concurrency": 8, "hedgeBudget": 0}
    spec["method"]["epochs"] = 1
    (folder / "run.yaml").write_text(yaml.safe_dump(document))
    return folder / "run.yaml"


def learned(run: Path, model: Gardener) -> dict[str, Any]:
    """The result of the run, which learns."""
    words = ("run", "-f", run, "-o", run.parent / "out", "--task-user", "me")
    done = combee(*words, "--engine", f"main={model.url}", "--engine-model", "main=openai/gpt-oss-20b")
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(run.parent / "out")
    assert result["heldOut"]["gate"]["low"] > 0 and not result["faults"]["rollouts"]
    return result


def looked(out: Path, split: str) -> dict[str, dict[str, list[bool]]]:
    """Whether each rollout of a split's closing look was right, by side and row."""
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for line in (out / "rollouts.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one["split"] == split:
            right[one["stage"].split()[1]][one["example"]].append(one["correct"])
    return right


def test_tau2_learns_by_pass_k(model: Gardener, tmp_path: Path) -> None:
    checkout = tau2_checkout(tmp_path / "tau2-bench")
    made = combee("rows", "tau2", checkout, "--domain", "greenhouse", "-o", tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[0] == "tasks: 48 train, 24 test"
    result = learned(written(tmp_path, "tau2", "play.py"), model)
    assert result["setup"]["metric"] == "accuracy, pass^4 of 4 rollouts"
    gate = looked(tmp_path / "out", "gate")
    assert {len(each) for side in gate.values() for each in side.values()} == {4}
    mean = [math.fsum(all(each) for each in gate[side].values()) / 12 for side in ("baseline", "best")]
    assert [result["heldOut"]["gate"][side] for side in ("baseline", "best")] == pytest.approx(mean)
    assert len(looked(tmp_path / "out", "test")["best"]) == 24


@pytest.mark.parametrize("refuses", ["agent", "user"])
def test_a_refusal_is_scored_where_the_agent_asked(refuses: str, model: Gardener, tmp_path: Path) -> None:
    splits = read_tau2(tau2_checkout(tmp_path / "tau2-bench"), "greenhouse")
    (tmp_path / "example.json").write_text(json.dumps(splits["train"][0]))
    (tmp_path / "artifact.md").write_text("")
    with answering(lambda request: (400, {}, b"{}")) as refusing:
        servers = {
            "agent": model.url,
            "user": model.url.replace("127.0.0.1", "localhost"),
            refuses: refusing.url,
        }
        done = subprocess.run(
            [sys.executable, EXAMPLES / "tau2/play.py", "--user-url", servers["user"], "--user-model", "u"],
            env={
                **environment(),
                "PYTHONPATH": str(STANDINS),
                "COMBEE_TASK": str(tmp_path),
                "COMBEE_OUT": str(tmp_path),
                "COMBEE_ORDINAL": "1",
                "OPENAI_MODEL": "m",
                "OPENAI_BASE_URL": servers["agent"],
                "OPENAI_API_KEY": "k",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    scored = tmp_path / "reward.json"
    if refuses == "user":
        assert done.returncode != 0 and "RefusedError: 400" in done.stderr and not scored.exists()
    else:
        assert done.returncode == 0, done.stderr
        left = json.loads(scored.read_text())
        assert left["reward"] == 0 and "the request was refused" in left["feedback"]


def test_appworld_learns_by_scenario(tmp_path: Path) -> None:
    root = appworld_root(tmp_path / "root")
    made = combee("rows", "appworld", root, "-o", tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[0] == "tasks: 16 train, 32 heldOut, 16 test"
    with gardener(agent=code) as model:
        result = learned(written(tmp_path, "appworld", "solve.py", "--root", str(root)), model)
    assert result["setup"]["metric"] == "accuracy, clustered by scenario"
    gate, test = result["heldOut"]["gate"], result["test"]
    assert gate["n"] == 8 and result["data"]["heldOut"]["gate"] == 16
    right = looked(tmp_path / "out", "test")
    for side in ("baseline", "best"):
        rows = {row: each[0] for row, each in right[side].items()}
        whole = [rows[f"c{number:02d}_1"] and rows[f"c{number:02d}_2"] for number in range(8)]
        assert test[side] == pytest.approx(math.fsum(rows.values()) / 16), "task goal completion"
        assert test[f"whole{side.title()}"] == pytest.approx(sum(whole) / 8), "scenario goal completion"
    page = (tmp_path / "out" / "report.md").read_text()
    assert f"clusters all right {gate['wholeBaseline']:.3f}" in page
