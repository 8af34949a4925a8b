"""Harbor itself plays tasks of ours on a real cluster, in pods: run by make harbor only."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster
from test_benchmark_pods import EXAMPLES, terminal_bench_tasks

pytestmark = pytest.mark.harbor


def harbor(cluster: Cluster, namespace: str, folder: Path, agent: str) -> subprocess.CompletedProcess[str]:
    """Harbor's own run of the tasks of a folder, played by an agent. It leaves no pod."""
    done = subprocess.run(
        [
            os.environ["HARBOR"],
            *("run", "--path", folder / "tasks", "--agent", agent, "-o", folder / "jobs"),
            *("--env", "kubernetes_environment:KubernetesEnvironment"),
            *("--ek", f"namespace={namespace}", "--ek", "restricted=true"),
        ],
        env={**cluster.environment, "PYTHONPATH": str(EXAMPLES / "terminal-bench"), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert not [pod for pod in cluster.get("pods", namespace=namespace)["items"] if going(pod)]
    return done


def going(pod: dict[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


@pytest.fixture
def tasks(cluster: Cluster, tmp_path: Path) -> Path:
    """Two tasks, each with its image."""
    made = terminal_bench_tasks(tmp_path / "all", [cluster.image("worker"), cluster.image("operator")])
    (tmp_path / "tasks").mkdir()
    for task in sorted(made.iterdir())[:2]:
        task.rename(tmp_path / "tasks" / task.name)
    return tmp_path


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_harbor_scores_a_task(
    agent: str, reward: float, cluster: Cluster, namespace: str, tasks: Path
) -> None:
    done = harbor(cluster, namespace, tasks, agent)
    assert done.returncode == 0, done.stdout
    trials = [json.loads(path.read_text()) for path in tasks.glob("jobs/*/*/result.json")]
    assert [trial["verifier_result"]["rewards"] for trial in trials] == [{"reward": reward}] * 2
    printed = next(tasks.glob("jobs/*/*/verifier/test-stdout.txt")).read_text()
    assert ("needs" in printed) is (reward == 0)


def test_harbor_says_what_a_task_without_an_image_needs(
    cluster: Cluster, namespace: str, tasks: Path
) -> None:
    for path in tasks.glob("tasks/*/task.toml"):
        lines = path.read_text().splitlines()
        path.write_text("\n".join(line for line in lines if "docker_image" not in line))
        (path.parent / "environment" / "Dockerfile").write_text("FROM scratch\n")
    done = harbor(cluster, namespace, tasks, "oracle")
    assert done.returncode and "image_prefix=PREFIX" in done.stdout + done.stderr
