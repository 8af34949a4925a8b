"""The worker as processes in the layout of a pod: what a laptop learns from the same plans, byte for byte."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from e2e_support import ENDED, FORMULA, Manifest, Sim, Sims, combee, result_of
from pods import UID, Cluster, Pod

from combee.clients.store.store import Store
from combee.names import step_name
from combee.plan.types import StepSummary
from waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]

CONCURRENCY = 9
SHARDS = 3
WORKERS = {"concurrency": CONCURRENCY, "parallelism": SHARDS, "hedgeBudget": 0, "waitSeconds": 60}


@pytest.fixture
def rows36(tmp_path: Path) -> dict[str, Path]:
    """36 train rows and 40 heldOut rows of the real data."""
    paths = {}
    for name, source, count in (("train", "train", 36), ("heldOut", "heldout", 40)):
        paths[name] = tmp_path / f"{name}.jsonl"
        lines = (FORMULA / f"{source}.jsonl").read_bytes().splitlines(keepends=True)
        paths[name].write_bytes(b"".join(lines[:count]))
    return paths


def claims(path: Path) -> Path:
    """The manifest with its data on a claim and in a ConfigMap, as a cluster has it."""
    document = yaml.safe_load(path.read_text())
    forgotten = {k: v for k, v in document["spec"]["task"]["data"]["train"].items() if k == "forgotten"}
    document["spec"]["task"]["data"] = {
        "train": {"pvc": {"claimName": "rows", "path": "deep/train.jsonl"}, **forgotten},
        "heldOut": {"configMap": {"name": "rows", "key": "heldOut.jsonl"}},
    }
    written = path.with_name("cluster.yaml")
    written.write_text(yaml.safe_dump(document))
    return written


def twice(sim: Sim) -> int:
    return sum(count - 1 for count in sim.answered().values())


def laptop_learns_the_same(
    cluster: Cluster, local: Path, sim: Sim, tmp_path: Path, *flags: str | Path
) -> None:
    """From the plans of the cluster's run, which had two iterations."""
    plans, out = tmp_path / "plans", tmp_path / "laptop"
    plans.mkdir()
    for number, plan in cluster.plans.items():
        (plans / f"i{number:03d}.json").write_bytes(plan.to_json())
    done = combee("run", "-f", local, "-o", out, "--engine", f"main={sim.url}", "--plans", plans, *flags)
    assert done.returncode in ENDED, done.stderr
    own, other = Store.open(str(cluster.folder / "store")), Store.open(str(out / "store"))
    mine = [cluster.summaries[step_name("pods", UID, n, "finish")].outputs for n in sorted(cluster.plans)]
    steps = sorted((out / "steps").glob("*-finish-a0.json"))
    theirs = [StepSummary.decode(path.read_bytes()) for path in steps]
    assert len(mine) == len(theirs) == 2
    for ours, summary in zip(mine, theirs, strict=True):
        assert summary is not None
        for what in ("artifact", "playbook"):
            assert own.get_blob(ours[what]) == other.get_blob(summary.outputs[what])
    assert (
        cluster.state.best is not None and cluster.state.best.artifact == result_of(out)["playbook"]["digest"]
    )


def test_pods_learn_without_a_row_what_a_laptop_learns_that_never_had_it(
    quick: Sim,
    manifest: Manifest,
    rows36: dict[str, Path],
    tmp_path: Path,
    clusters: list[Cluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In three shards, and reduced by three pods."""
    monkeypatch.setattr("combee.plan.decide.CALLS_A_POD", 1)
    monkeypatch.setattr("combee.plan.decide.SLOTS_A_POD", CONCURRENCY // SHARDS)
    data = {name: {"uri": str(path)} for name, path in rows36.items()}
    data["train"]["forgotten"] = ["5"]  # type: ignore[assignment]
    local = manifest(
        name="pods",
        task={"type": "Formula", "data": data},
        batching={"mode": "Fixed", "size": 18, "reason": "test"},
        workers=WORKERS,
        aggregation={"redundancy": {"mode": "Duplicate"}},
    )
    cluster = Cluster(tmp_path / "cluster", claims(local), quick.url)
    clusters.append(cluster)
    cluster.to_the_end()
    assert {(plan.shards, plan.reduce_shards) for plan in cluster.plans.values()} == {(SHARDS, SHARDS)}
    lines = rows36["train"].read_bytes().splitlines(keepends=True)
    (tmp_path / "never.jsonl").write_bytes(b"".join([*lines[:4], b"\n", *lines[5:]]))
    laptop_learns_the_same(cluster, local, quick, tmp_path, "--data", f"train={tmp_path / 'never.jsonl'}")


@pytest.mark.parametrize(
    ("method", "mode", "pods"),
    [
        ({"type": "ACE"}, "Auto", 1),
        ({"type": "ACE"}, "Duplicate", 3),
        ({"type": "GEPA"}, "Auto", 3),
        ({"type": "GEPA", "gepa": {"variantsInFlight": 3}}, "Auto", 3),
        ({"type": "TextGrad", "textgrad": {"momentum": 1}}, "Auto", 1),
        ({"type": "MIPRO", "mipro": {"demonstrations": 2, "minibatch": 8}}, "Auto", 1),
    ],
    ids=["ACE", "ACE-reduced-together", "GEPA", "GEPA-in-flight", "TextGrad", "MIPRO"],
)
def test_pods_learn_what_a_laptop_learns_and_a_killed_one_changes_nothing(
    method: dict[str, object],
    mode: str,
    pods: int,
    sims: Sims,
    key: Path,
    manifest: Manifest,
    rows36: dict[str, Path],
    tmp_path: Path,
    clusters: list[Cluster],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of so few calls none would be worth another pod of the reduce.
    monkeypatch.setattr("combee.plan.decide.CALLS_A_POD", 1)
    monkeypatch.setattr("combee.plan.decide.SLOTS_A_POD", CONCURRENCY // SHARDS)
    sim = sims.start("--key", key, "--time-scale", "0.05")
    local = manifest(
        name="pods",
        method=method,
        train=rows36["train"],
        held_out=rows36["heldOut"],
        batching={"mode": "Fixed", "size": 18, "reason": "test"},
        workers=WORKERS,
        aggregation={"redundancy": {"mode": mode}},
    )
    cluster = Cluster(tmp_path / "cluster", claims(local), sim.url.replace("127.0.0.1", "localhost"))
    # As beside another run on a shared engine: with fewer calls in flight the same is learned.
    cluster.params["concurrency"] = 5
    clusters.append(cluster)

    def kill_one(maps: list[Pod], iteration: int) -> None:
        if iteration == 1:
            asked = sum(sim.answered().values())
            wait_until("six more answers", lambda: sum(sim.answered().values()) >= asked + 6)
            maps[1].kill()

    state = cluster.to_the_end(kill_one)
    assert state.outcome is not None and state.iteration == 2
    assert [plan.reduce_shards for plan in cluster.plans.values()] == [pods, pods]
    print(f"{twice(sim)} calls answered twice, {sum(sim.answered().values())} in all; {state.outcome.name}")
    assert twice(sim) <= 2 * CONCURRENCY  # in flight when it was killed, and where a helper met an owner

    laptop_learns_the_same(cluster, local, sims.start("--key", key, "--time-scale", "0"), tmp_path)
