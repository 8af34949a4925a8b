"""A bad day: errors, refusals, stragglers and broken answers change how long it takes, and nothing else."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from e2e_support import Manifest, Sims, process, result_of

pytestmark = pytest.mark.e2e

ROWS = 200
BAD_DAY = (
    *("--error-rate", ".05", "--rate-limit-rate", ".05", "--retry-after-seconds", "1"),
    *("--slow-one-in", "50", "--slow-factor", "10", "--malform-rate", ".01"),
)


def trajectories(out: Path) -> list[dict[str, Any]]:
    """What map left of every example."""
    found = []
    for path in sorted((out / "store").glob("runs/*/steps/*-map-*/*.manifest.json")):
        digest = json.loads(path.read_text())["outputs"]["trajectories"]
        blob = (out / "store" / "blobs" / digest[:2] / digest).read_text()
        found += [json.loads(line) for line in blob.splitlines()]
    return found


def test_a_bad_day_loses_nothing_changes_nothing_and_is_told(
    sims: Sims, key: Path, manifest: Manifest, rows, tmp_path: Path
) -> None:
    batching = {"mode": "Fixed", "size": 100, "reason": "test"}
    budgets = {"plain": 0.05, "bad": 0.05, "unhedged": 0.0}
    manifests = {
        name: manifest(
            name=name, train=rows(ROWS), batching=batching, workers={"concurrency": 64, "hedgeBudget": budget}
        )
        for name, budget in budgets.items()
    }
    urls = {
        name: sims.start("--key", key, "--time-scale", "0.02", *(BAD_DAY if name != "plain" else ())).url
        for name in budgets
    }

    def run(name: str) -> str:
        done = process("run", "-f", manifests[name], "-o", tmp_path / name, "--engine", f"main={urls[name]}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    with ThreadPoolExecutor(len(budgets)) as pool:
        screens = dict(zip(budgets, pool.map(run, budgets), strict=True))
    results = {name: result_of(tmp_path / name) for name in budgets}
    assert {result["playbook"]["digest"] for result in results.values()} == {
        results["plain"]["playbook"]["digest"]
    }, "the same lessons, whatever happened on the way"
    for name in ("bad", "unhedged"):
        nothing_is_lost(tmp_path / name, results[name])
        happened(results[name], screens[name], tmp_path / name)
    assert results["bad"]["faults"]["hedges"] > 0 == results["unhedged"]["faults"]["hedges"]
    quiet = results["plain"]["faults"]
    assert not quiet["askedAgain"] and not quiet["repaired"] and not quiet["lost"]
    assert "bad day" not in screens["plain"]


def nothing_is_lost(out: Path, result: dict[str, Any]) -> None:
    """Every example has one trajectory with an answer, and the counts add up."""
    found = trajectories(out)
    assert len(found) == len({one["example_id"] for one in found}) == ROWS
    assert not [one for one in found if one["error"]]
    assert [it["failed"] for it in result["iterations"]] == [0, 0]
    assert result["iterations"][-1]["examples"] == ROWS
    steps = [result["profile"], *result["iterations"], result["evaluation"]]
    calls = sum(stage["calls"] for step in steps for stage in step["stages"])
    assert calls == sum(usage["calls"] for usage in result["usage"].values())
    for name in ("repaired", "hedges", "lost"):
        assert result["faults"][name] == sum(step["faults"][name] for step in steps)


def happened(result: dict[str, Any], screen: str, out: Path) -> None:
    """result.json, the last screen and the report say what was met."""
    met = result["faults"]
    calls = sum(usage["calls"] - usage["hits"] for usage in result["usage"].values())
    for reason in ("429", "500"):
        assert 0.02 * calls < met["askedAgain"][reason] < 0.10 * calls
    assert 0 < met["repaired"] < 0.03 * calls and met["lost"] == 0
    said = " ".join(screen.split())
    assert "the endpoint had a bad day" in said and "nothing was lost" in said
    assert f"{met['askedAgain']['429']} × 429" in said
    report = (out / "report.html").read_text()
    assert "the endpoint had a bad day" in report and "too many requests" in report
    for step in [result["profile"], *result["iterations"], result["evaluation"]]:
        for stage in step["stages"]:
            assert stage["p50"] <= stage["p90"] <= stage["p99"] <= stage["max"]
            # A second look at a few reflections may end before the last rollout does.
            assert stage["scheduledSeconds"] > 0 or stage["stage"] == "leaf round 2"
