"""Runs of GEPA, TextGrad and MIPRO whose operator is killed, each time at another step: the pool of texts, a
generator's state included, is the one that a laptop learns from the same plans."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from laptop import blob, kept, locally
from runs import ENDED, Runs, operating

pytestmark = pytest.mark.timeout(900, func_only=True)
MOMENTS = (("map", 0), ("reduce", 1), ("finish", 1))
"""(step, iteration) at work when the operator is killed."""
BEFORE = {"reduce": "map", "finish": "reduce"}
"""Reduce and finish are started with the map and wait: each is at work once the one before is done."""


METHODS = {
    "GEPA": ({"variantsInFlight": 2}, MOMENTS, 2),
    "TextGrad": ({"momentum": 1}, MOMENTS[1:2], 0),
    "MIPRO": ({"demonstrations": 2}, MOMENTS[2:], 0),
}
"""Options, when the operator is killed, and on how many texts side by side an iteration builds; 0 for one."""


def slower(method: str, run: dict[str, Any]) -> None:
    """Change the quickstart: two iterations by this method on a slower model."""
    spec = run["spec"]
    spec["method"] = {"type": method, method.lower(): METHODS[method][0]}
    spec["engines"][0]["vllm"]["args"] = ["--time-scale=0.5"]
    spec["batching"] = {"mode": "Fixed", "size": 60, "reason": "two iterations"}
    spec["workers"] = {"parallelism": 2, "concurrency": 16, "hedgeBudget": 0}


@pytest.mark.parametrize("method", METHODS)
def test_a_run_goes_through_operator_restarts_to_the_bytes_of_a_laptop(
    method: str, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    runs, log = Runs(cluster, namespace), tmp_path / "operator.log"
    _, moments, texts = METHODS[method]
    runs.apply(partial(slower, method))
    for step, iteration in moments:
        with operating(cluster, namespace, log):
            at = f"the {step} of iteration {iteration}"
            found = eventually(
                f"{at} is at work", lambda s=step, i=iteration: _at_work(runs, s, i), seconds=300
            )
            assert found == "at work", f"the run was over before {at} was seen at work"
        print(f"killed the operator during {at}")
    with operating(cluster, namespace, log):
        status = runs.ended()
    assert status["phase"] == "Learned", status["message"]
    locally(runs, tmp_path, partial(slower, method))
    held = cluster.get("configmap", status["published"], namespace=namespace)["data"]
    print(f"{status['message']}; pool {status['bestDigest'][:12]}")
    assert held["method"] == method
    assert blob(tmp_path, held["prompt.md"]).exists(), "the laptop learned another prompt"
    assert kept(tmp_path, status["bestDigest"]).exists(), "the laptop has another pool"
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert max(len(one["builtOn"]) for one in result["iterations"]) == texts


def _at_work(runs: Runs, step: str, iteration: int) -> str:
    """Whether that step is at work; empty while it is not yet, and ``over`` where the run is."""
    jobs = runs.cluster.get("jobs", "-l", f"combee.dev/iteration={iteration}", namespace=runs.namespace)
    by_step = {job["metadata"]["labels"]["combee.dev/step"]: job for job in jobs["items"]}
    ready = step not in BEFORE or _done(by_step.get(BEFORE[step]))
    job = by_step.get(step)
    if ready and job is not None and not _done(job) and job.get("status", {}).get("active"):
        return "at work"
    return "over" if runs.status().get("phase") in ENDED else ""


def _done(job: dict[str, Any] | None) -> bool:
    return job is not None and bool(job.get("status", {}).get("succeeded") == job["spec"]["completions"])
