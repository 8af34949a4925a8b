"""Two runs of one namespace on one engine: each has its part of the slots, and the last takes it down."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cluster_tools import Cluster, eventually
from runs import FINISHED, Operator, Runs, short

pytestmark = pytest.mark.timeout(900)
NAMES = ("quickstart", "second")


def sharing(name: str, seed: int) -> Callable[[dict[str, Any]], None]:
    """The quickstart as one of several runs that share its engine. Another seed asks other questions, which
    nothing remembers."""

    def change(run: dict[str, Any]) -> None:
        short(run)
        run["metadata"]["name"] = name
        run["spec"]["seed"] = seed
        run["spec"]["playbookRef"] = {"name": name}
        run["spec"]["engines"][0]["shared"] = True

    return change


def test_two_runs_share_an_engine_and_the_last_takes_it_down(
    cluster: Cluster, namespace: str, operator: Operator
) -> None:
    runs = Runs(cluster, namespace)

    def engines(kind: str = "deployment") -> list[dict[str, Any]]:
        chosen = ("-l", "app.kubernetes.io/component=engine")
        return list(cluster.get(kind, *chosen, namespace=namespace)["items"])

    def users() -> list[str]:
        """The runs that use the engine now; one engine at most is there for both."""
        there = engines()
        assert len(there) <= 1
        refs = [ref for one in there for ref in one["metadata"]["ownerReferences"]]
        assert not any(ref.get("controller") for ref in refs)
        return sorted(ref["name"] for ref in refs)

    for seed, name in enumerate(NAMES, start=7):
        runs.apply(sharing(name, seed))
    assert eventually("both use it", lambda: users() == list(NAMES), seconds=180)

    def suspend(wanted: bool) -> None:
        body = json.dumps({"spec": {"suspend": wanted}})
        cluster.kubectl("patch", "plr", "second", "--type=merge", "-p", body, namespace=namespace)

    suspend(True)
    assert eventually("the suspended run has left", lambda: "second" not in users(), seconds=60)
    assert eventually("it says so", lambda: runs.status("second").get("phase") == "Suspended", seconds=60)
    suspend(False)
    for name in NAMES:
        status = runs.ended(name)
        assert status["phase"] in FINISHED, status["message"]
        assert status["shape"]["iterations"] == 2 and status["shape"]["slots"] == 32

    jobs = cluster.get("jobs", "-l", "combee.dev/step", namespace=namespace)["items"]
    told = set[int]()
    for job in jobs:
        (worker,) = job["spec"]["template"]["spec"]["containers"]
        step = json.loads(next(one["value"] for one in worker["env"] if one["name"] == "COMBEE_STEP"))
        if "concurrency" in step["params"]:
            told.add(step["params"]["concurrency"])
    assert 16 in told <= {16, 32}, "half of the slots beside another run, all of them alone"

    assert eventually("the engine is gone with its last run", lambda: not engines(), seconds=60)
    assert eventually("so is its Service", lambda: not engines("service"), seconds=60)
