"""How long an index of a Job had no pod at work though it was not done."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from cluster_tools import Cluster

from waiting import looking

INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Stalls:
    """Watches the Jobs of one namespace."""

    cluster: Cluster
    namespace: str
    longest: float = 0.0
    """seconds."""
    of: str = ""
    _since: dict[str, float] = field(default_factory=dict)

    def watched(self) -> AbstractContextManager[None]:
        """Look every second."""
        return looking(self._look, 1.0)

    def _look(self) -> None:
        try:
            got = self.cluster.get("jobs,pods", "-l", "combee.dev/step", namespace=self.namespace)
        except AssertionError:
            return  # the API server is away: the clocks run on
        items = got["items"]
        at_work = {_of_pod(item) for item in items if item["kind"] == "Pod" and _runs(item)}
        waiting = {index for item in items if item["kind"] == "Job" for index in _unfinished(item)} - at_work
        now = time.monotonic()
        self._since = {index: self._since.get(index, now) for index in waiting}
        for index, since in self._since.items():
            if now - since > self.longest:
                self.longest, self.of = now - since, index


def _of_pod(pod: dict[str, Any]) -> str:
    labels = pod["metadata"]["labels"]
    return f"{labels['job-name']} index {labels[INDEX]}"


def _runs(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def _unfinished(job: dict[str, Any]) -> list[str]:
    status = job.get("status", {})
    if {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"} & {"Complete", "Failed"}:
        return []
    done = _indexes(status.get("completedIndexes", ""))
    name, wanted = job["metadata"]["name"], range(job["spec"]["completions"])
    return [f"{name} index {index}" for index in wanted if index not in done]


def _indexes(text: str) -> set[int]:
    """
    >>> sorted(_indexes("0,2-4"))
    [0, 2, 3, 4]
    """
    spans = [part.split("-") for part in text.split(",") if part]
    return {index for span in spans for index in range(int(span[0]), int(span[-1]) + 1)}
