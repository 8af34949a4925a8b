"""A comparison as one ``kubectl apply`` of a folder, and its table as one ``kubectl combee compare``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_tools import Cluster, eventually
from runs import FINISHED, Runs, at_once, operating, quickstart

from warm import run_program

pytestmark = pytest.mark.timeout(900, func_only=True)
STRATEGIES = "Naive@120,ParallelScan@120"


def combee(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return run_program(["combee", "compare", *words], cluster.environment, seconds=400)


def test_a_folder_of_runs_is_applied_and_becomes_one_table(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects = quickstart()
    (run,) = (one for one in objects if one["kind"] == "PromptLearningRun")
    at_once(run)
    beside = [one for one in objects if one is not run]
    manifest, folder, out = tmp_path / "run.yaml", tmp_path / "runs", tmp_path / "out"
    manifest.write_text(yaml.safe_dump(run))
    made = combee(
        cluster, "-f", str(manifest), "--for-cluster", "two", "--strategies", STRATEGIES, "--seeds", "1",
        "-o", str(folder),
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=beside)
    cluster.kubectl("apply", "-f", str(folder), namespace=namespace)
    names = [path.stem for path in sorted(folder.iterdir())]
    assert len(names) == 2
    early = combee(cluster, "two", "-n", namespace, "-o", str(out))
    assert early.returncode == 2 and "2 of 2 runs have no result" in early.stderr
    runs = Runs(cluster, namespace)
    with operating(cluster, namespace, tmp_path / "operator.log"):
        for name in names:
            status = runs.ended(name, seconds=600)
            assert status["phase"] in FINISHED, status["message"]
    done = combee(cluster, "two", "-n", namespace, "-o", str(out))
    assert done.returncode == 0, done.stderr
    print(done.stdout[:3000])
    assert "| Naive@120 |" in done.stdout and "| ParallelScan@120 |" in done.stdout
    table = json.loads((out / "compare.json").read_text())
    assert table["simulated"] and [row["seeds"] for row in table["rows"]] == [[0], [0]]
    assert all(row["modelledSeconds"] > 0 and row["calls"] > 0 for row in table["rows"])

    def readers() -> list[Any]:
        found = cluster.get("pods", "-l", "app.kubernetes.io/component=report", namespace=namespace)
        return found["items"]  # type: ignore[no-any-return]

    # It is told to go before the command ends, and a node takes its time with that.
    assert all("deletionTimestamp" in pod["metadata"] for pod in readers())
    eventually("what reads the store is gone", lambda: not readers())
    again = combee(cluster, "two", "-n", namespace, "-o", str(out))
    assert again.stdout == done.stdout and "reads the store" not in again.stderr, "nothing is fetched twice"
