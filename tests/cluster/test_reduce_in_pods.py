"""A reduce of many reflections in several pods of the node: the memory of each, and the time beside the
critical path. What the map would have left is written and nothing is replayed: rollouts are not what is
measured."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import REPOSITORY, Cluster, eventually
from runs import FORMULA, Operator, Runs, quickstart

from combee.assembly.context import run_prefix
from combee.clients.store.store import Store
from combee.names import step_name

sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from e2e_support import environment
from reduce_pods import leave_map

from warm import run_program

LIMIT_MIB = 2048
"""The memory that the chart gives a pod of a step."""
POD_USER = 10001
LOOK_SECONDS = 0.2


class Taken:
    """The most memory that the workers of a run's steps had, and the processor time that they took, by the
    kind of step and the pod's index: they are processes of this machine."""

    def __init__(self, run_uid: str) -> None:
        self.mib: dict[str, dict[str, float]] = {}
        self.cpu_seconds: dict[str, dict[str, float]] = {}
        self._uid, self._over = run_uid.split("-")[0], threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Taken:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    pairs = (folder / "environ").read_text(errors="replace").split("\0")
                    self._look(dict(pair.split("=", 1) for pair in pairs if "=" in pair), folder)
                except OSError:  # it has ended
                    continue

    def _look(self, variables: dict[str, str], folder: Path) -> None:
        if "COMBEE_STEP" not in variables:
            return
        step, shard = json.loads(variables["COMBEE_STEP"]), variables.get("JOB_COMPLETION_INDEX", "0")
        peak = re.search(r"VmHWM:\s+(\d+) kB", (folder / "status").read_text())
        if peak is None or self._uid not in step["name"]:
            return
        user, system = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        seconds = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        for amounts, amount in ((self.mib, int(peak[1]) / 1024), (self.cpu_seconds, seconds)):
            pods = amounts.setdefault(step["kind"], {})
            pods[shard] = max(pods.get(shard, 0.0), amount)


def claim(cluster: Cluster, namespace: str) -> tuple[dict[str, Any], Path]:
    """The claim of the quickstart's store, and its folder on this machine."""
    made = next(one for one in quickstart() if one["kind"] == "PersistentVolumeClaim")
    cluster.reader.apply([made], namespace)
    name = made["metadata"]["name"]

    def bound() -> str:
        volume: str = cluster.get("pvc", name, namespace=namespace)["spec"].get("volumeName", "")
        return volume

    volume = eventually("the claim is bound", bound)
    return made, Path(
        json.loads(cluster.kubectl("get", "pv", volume, "-o", "json"))["spec"]["hostPath"]["path"]
    )


def many_rows(folder: Path, rows: int) -> None:
    """So many rows of the Formula data, no two alike."""
    some = [json.loads(line) for line in (FORMULA / "train.jsonl").read_text().splitlines()]
    with (folder / "train.jsonl").open("w") as file:
        for number in range(rows):
            row = some[number % len(some)]
            text = f"Case {number}. {row['context']}"
            file.write(json.dumps({**row, "id": str(number), "context": text}) + "\n")


def reported(cluster: Cluster, namespace: str, out: Path) -> dict[str, Any]:
    """The one iteration of the run, as its report tells it."""
    words = ["combee", "report", "quickstart", "-n", namespace, "-o", str(out)]
    told = run_program(words, {**environment(), **cluster.environment}, seconds=400)
    assert told.returncode == 0, told.stderr
    (iteration,) = json.loads((out / "result.json").read_text())["iterations"]
    return dict(iteration)


def tell(taken: Taken, iteration: dict[str, Any], slots: int) -> None:
    """Print what the reduce took: the critical path is that of the recorded calls on the run's slots."""
    stages = [one for one in iteration["stages"] if one["step"] == "reduce"]
    calls, path = (sum(one[name] for one in stages) for name in ("calls", "scheduledSeconds"))
    wall = iteration["stepSeconds"]["reduce"]
    print(f"{calls} calls on {slots} slots: {wall:.0f} s, critical path {path:.0f} s")
    for what, amounts in (("MiB", taken.mib), ("processor seconds", taken.cpu_seconds)):
        for kind, by_pod in amounts.items():
            listed = ", ".join(f"{amount:.0f}" for _, amount in sorted(by_pod.items()))
            print(f"{what} of {kind} by pod: {listed}")


@pytest.mark.long
@pytest.mark.timeout(3600, func_only=True)
@pytest.mark.parametrize("pods", [1, 2, 3])
@pytest.mark.parametrize("reflections", [24_000, 100_000])
def test_a_reduce_in_pods_of_the_node(
    reflections: int, pods: int, cluster: Cluster, namespace: str, operator: Operator, tmp_path: Path
) -> None:
    if not cluster.own:
        pytest.skip("it writes to a claim's folder and looks at processes, which are the test node's")
    runs, slots = Runs(cluster, namespace), 256 * pods
    made, folder = claim(cluster, namespace)
    many_rows(folder, reflections)

    def large(run: dict[str, Any]) -> None:
        spec = run["spec"]
        spec["suspend"] = True
        name = made["metadata"]["name"]
        spec["task"]["data"]["train"] = {"pvc": {"claimName": name, "path": "train.jsonl"}}
        spec["method"] = {"type": "ACE", "epochs": 1}
        spec["engines"][0]["vllm"]["args"] = ["--time-scale=0.2"]
        spec["batching"] = {"mode": "Fixed", "size": reflections, "reason": "all at once"}
        spec["budget"] = {"rollouts": 10 * reflections}
        spec["aggregation"] = {"verify": "Off"}
        spec["workers"] = {"parallelism": pods, "concurrency": slots, "hedgeBudget": 0}

    runs.apply(large)
    uid = runs.get()["metadata"]["uid"]
    store = Store.open(str(folder))
    leave_map(store, run_prefix("quickstart", uid), step_name("quickstart", uid, 0, "map"), reflections, pods)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, POD_USER, POD_USER)
    with Taken(uid) as taken:
        begin = '{"spec": {"suspend": false}}'
        cluster.kubectl("patch", "plr", "quickstart", "--type=merge", "-p", begin, namespace=namespace)
        status = runs.ended(seconds=3000)
    assert status["phase"] != "Failed", status["message"]
    print(f"{reflections} reflections, {pods} pods, simulated model at a fifth of its time")
    tell(taken, reported(cluster, namespace, tmp_path / "report"), slots)
    assert len(taken.mib["reduce"]) == pods
    assert max(mib for by in taken.mib.values() for mib in by.values()) < LIMIT_MIB
