"""How long a place at work stands empty between two rollouts, by Jobs and out of a warm pool of
agent-sandbox: printed by `make agent-sandbox`, never asserted. Both learn the same playbook."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, fresh_namespace
from runs import Runs, operating
from test_containers import ALLOWED, Gardener, model, objects, rows  # noqa: F401 - the fixture among them
from test_warm_pools import ROLLOUT, WARM

pytestmark = [pytest.mark.agent_sandbox, pytest.mark.timeout(1500, func_only=True)]
AT_ONCE, ROLLOUTS = 4, 32
"""of a map, which is most of the run."""


class Marks(threading.Thread):
    """When the program of each rollout of a namespace began and ended: the times of the files in which its
    pod says so, read on the node's own disk."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(daemon=True)
        self.cluster, self.namespace = cluster, namespace
        self.pods = Path(cluster.environment["KUBECONFIG"]).parent / "kubelet" / "pods"
        self.begun: dict[str, float] = {}
        self.over: dict[str, float] = {}
        self._stopped = threading.Event()

    def run(self) -> None:
        listed: list[str] = []
        again = 0.0
        while not self._stopped.wait(0.05):
            if time.monotonic() >= again:
                found = self.cluster.get("pods", "-l", ROLLOUT, namespace=self.namespace)["items"]
                listed, again = [pod["metadata"]["uid"] for pod in found], time.monotonic() + 0.5
            for uid in listed:
                end = self.pods / uid / "volumes" / "kubernetes.io~empty-dir" / "end"
                for name, times in (("begun", self.begun), ("code", self.over)):
                    with contextlib.suppress(OSError):
                        times.setdefault(uid, (end / name).stat().st_mtime)

    def stop(self) -> None:
        self._stopped.set()
        self.join(timeout=30)

    def gaps(self) -> list[float]:
        """Seconds from the end of each rollout to the beginning of that which takes its place."""
        over, begun = sorted(self.over.values()), sorted(self.begun.values())
        return [began - ended for ended, began in zip(over, begun[AT_ONCE:], strict=False)]


@contextlib.contextmanager
def marked(cluster: Cluster, namespace: str) -> Iterator[Marks]:
    marks = Marks(cluster, namespace)
    marks.start()
    try:
        yield marks
    finally:
        marks.stop()


def learned(cluster: Cluster, url: str, log: Path, environment: dict[str, str]) -> tuple[str, list[float]]:
    """The playbook of a run, and the seconds that a place at work stood empty."""
    claim, data, run = objects(cluster, url, {})
    data["data"]["train.jsonl"] = "".join(rows("train", ROLLOUTS))
    run["spec"]["batching"]["size"] = ROLLOUTS
    with fresh_namespace(cluster) as namespace, operating(cluster, namespace, log, **environment):
        with marked(cluster, namespace) as marks:
            cluster.kubectl("apply", "-f", "-", namespace=namespace, stdin=[claim, data, run])
            runs = Runs(cluster, namespace)
            status: dict[str, Any] = runs.ended("greenhouse", seconds=700)
        assert status["phase"] == "Learned", status["message"]
        return runs.playbook("greenhouse"), marks.gaps()


def test_a_warm_pool_fills_places_and_changes_no_byte(
    cluster: Cluster,
    together: None,
    model: Gardener,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    ways = {"by Jobs": ALLOWED, "out of a warm pool": WARM}
    made = {way: learned(cluster, model.url, tmp_path / f"{way}.log", env) for way, env in ways.items()}
    medians = {}
    for way, (_, gaps) in made.items():
        assert len(gaps) > ROLLOUTS - AT_ONCE
        medians[way] = statistics.median(gaps)
        print(f"{way}: {len(gaps)} rollouts followed another, {medians[way]:.1f} s after its end (median)")
    jobs, pool = medians.values()
    print(f"by Jobs a place stands empty {jobs / pool:.1f} times as long as out of a warm pool")
    assert made["by Jobs"][0] == made["out of a warm pool"][0]
