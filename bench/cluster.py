"""What an iteration costs on a cluster beside its model time, with steps placed early and one after the other.

Needs a cluster: `eval "$(make -s cluster-env)"` first. The operator is a process of this machine; pods, Jobs and
images are the real ones. The model is simulated and fast: its time is taken off anyhow.
"""

from __future__ import annotations

import re
import secrets
import statistics
import sys
import time
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.harness import Row

TESTS = Path(__file__).resolve().parents[1] / "tests" / "cluster"
PORT = 18_137
ITERATION_TARGET = 0.5


def cluster(folder: Path) -> Row:
    """Seconds of an iteration that are not the work of its steps: overlap Auto against Never."""
    sys.path.insert(0, str(TESTS))
    from cluster_tools import Cluster  # the helpers of the cluster tests
    from runs import REPOSITORY

    connected = Cluster(_environment())
    connected.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))
    table: dict[str, Any] = {}
    means: dict[str, float] = {}
    for overlap in ("Never", "Auto"):
        measured = _measure(connected, overlap, folder / f"{overlap}.log")
        means[overlap] = measured["beside"]
        table[f"overlap {overlap}"] = measured
    return Row(
        name="cluster: seconds of an iteration beside its steps' work, overlap / in series",
        figure=round(means["Auto"] / means["Never"], 3),
        target=f"<= {ITERATION_TARGET}, aim 4 s with overlap",
        unit="x",
        met=means["Auto"] <= ITERATION_TARGET * means["Never"],
        how="quickstart, 4 iterations of 30, simulated model; an iteration ends when its result is in the status; its steps' "
        "work as their manifests say; phases by the API server's timestamps, to a second",
        detail=table,
    )


def _environment() -> dict[str, str]:
    import os

    if not os.environ.get("KUBECONFIG"):
        raise RuntimeError('no cluster: eval "$(make -s cluster-env)" first')
    return dict(os.environ)


def _measure(connected: Any, overlap: str, log: Path) -> dict[str, Any]:
    from runs import Runs, operating

    name = f"bench-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    connected.kubectl(
        "create",
        "-f",
        "-",
        stdin={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
    )
    runs = Runs(connected, name)

    def change(run: dict[str, Any]) -> None:
        run["spec"]["batching"] = {"mode": "Fixed", "size": 30, "reason": "measured"}
        run["spec"]["workers"]["overlap"] = overlap
        run["spec"]["engines"][0]["vllm"]["args"] = ["--time-scale=0.02"]

    try:
        with operating(connected, name, log, COMBEE_METRICS_PORT=str(PORT)):
            runs.apply(change)
            ends = _ends(runs)
            reaction = _reaction_p50()
        status = runs.status()
        return {**_beside(status, ends), "event to reaction p50 s": reaction, **_phases(connected, name)}
    finally:
        connected.kubectl("delete", "plr", "--all", "--timeout=60s", namespace=name)
        connected.kubectl("delete", "namespace", name, "--wait=false")


def _ends(runs: Any) -> dict[int, float]:
    """When each iteration was seen to be in the status, by our own clock."""
    ends: dict[int, float] = {}
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline:
        status = runs.status()
        ends.setdefault(int(status.get("iteration", 0)), time.monotonic())
        if status.get("phase") in ("Learned", "NothingBetter"):
            return ends
        if status.get("phase") == "Failed":
            raise RuntimeError(status["message"])
        time.sleep(0.1)
    raise RuntimeError("the run is not over after 500 s")


def _beside(status: dict[str, Any], ends: dict[int, float]) -> dict[str, Any]:
    """The first iteration is left out: its start is not seen."""
    whole = [ends[k + 1] - ends[k] for k in sorted(ends) if k >= 1 and k + 1 in ends]
    work = [record["seconds"] for record in status["history"][1:]]
    beside = [w - m for w, m in zip(whole, work, strict=True)]
    return {
        "iteration s": round(statistics.mean(whole), 2),
        "steps' work s": round(statistics.mean(work), 2),
        "beside": round(statistics.mean(beside), 2),
    }


def _phases(connected: Any, namespace: str) -> dict[str, float]:
    """Mean seconds between what the API server saw, over iterations."""
    pods = connected.get("pods", "-l", "combee.dev/step", namespace=namespace)["items"]
    times: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for pod in pods:
        labels, ended = (
            pod["metadata"]["labels"],
            pod["status"].get("containerStatuses", [{}])[0].get("state", {}),
        )
        if "terminated" in ended:
            spans = times.setdefault((int(labels["combee.dev/iteration"]), labels["combee.dev/step"]), [])
            spans.append((_at(ended["terminated"]["startedAt"]), _at(ended["terminated"]["finishedAt"])))
    steps: dict[str, list[float]] = {}
    for (iteration, kind), spans in sorted(times.items()):
        before = {
            "reduce": (iteration, "map"),
            "finish": (iteration, "reduce"),
            "map": (iteration - 1, "finish"),
        }.get(kind)
        if before in times:
            ready = max(end for _, end in times[before])
            steps.setdefault(f"{before[1]} ended -> {kind} at work", []).append(
                max(0.0, min(s for s, _ in spans) - ready)
            )
            steps.setdefault(f"{kind} at work after {before[1]} -> ended", []).append(
                max(end for _, end in spans) - max(ready, min(s for s, _ in spans))
            )
    return {name: round(statistics.mean(seconds), 1) for name, seconds in sorted(steps.items())}


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _reaction_p50() -> float:
    """The upper end of the histogram's bucket that holds the median."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    buckets = re.findall(r'combee_reaction_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)', text)
    total = float(buckets[-1][1])
    return next(float(end) for end, count in buckets if float(count) >= total / 2)
