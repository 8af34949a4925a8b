"""Pods meet a damaged file in the store: the step that wrote it makes it again, and nobody is asked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from e2e_support import FORMULA, Manifest, Sims
from pods import Cluster, Pod

from combee.plan.decide import decide
from combee.plan.types import Snapshot, Step, StepSummary
from combee.work.context import decoded_receipt

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]


@pytest.fixture
def cluster(sims: Sims, key: Path, manifest: Manifest, tmp_path: Path, clusters: list[Cluster]) -> Cluster:
    for name in ("train", "heldOut"):
        rows = (FORMULA / f"{name.lower()}.jsonl").read_bytes().splitlines(keepends=True)[:16]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(rows))
    workers = {"concurrency": 8, "parallelism": 2, "hedgeBudget": 0}
    path = manifest(
        name="pods",
        train=tmp_path / "train.jsonl",
        held_out=tmp_path / "heldOut.jsonl",
        batching={"mode": "Fixed", "size": 16, "reason": "test"},
        workers=workers,
    )
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"]["data"] = {
        split: {"pvc": {"claimName": "rows", "path": f"{split}.jsonl"}} for split in ("train", "heldOut")
    }
    path.write_text(yaml.safe_dump(document))
    sim = sims.start("--key", key, "--time-scale", "0")
    made = Cluster(tmp_path / "cluster", path, sim.url.replace("127.0.0.1", "localhost"))
    clusters.append(made)
    return made


def first_iteration(cluster: Cluster) -> tuple[Step, ...]:
    """Profile and plan, and return the steps of the first iteration."""
    while True:
        snapshot = Snapshot(cluster.summaries, cluster.plans)
        plan = decide(
            spec=cluster.run.spec,
            who=cluster.who,
            state=cluster.state,
            snapshot=snapshot,
            elapsed_seconds=0.0,
        )
        cluster.state = plan.state
        if plan.freeze is not None:
            cluster.plans[plan.freeze.iteration] = plan.freeze
        for step in plan.start:
            if step.kind != "profile":
                return (step, *plan.then)
            cluster.done(step, cluster.start(step))


def ended(pod: Pod) -> StepSummary:
    """What a pod left that did all that it was to do."""
    assert pod.wait() == 0, pod.log
    assert pod.message is not None
    return pod.message


def mapped(cluster: Cluster, step: Step, **params: object) -> list[StepSummary]:
    return [ended(pod) for pod in [cluster.start(step, shard, **params) for shard in range(step.shards)]]


def receipt(cluster: Cluster, step: str, shard: int = 0) -> Path:
    (path,) = (cluster.folder / "store" / "runs").glob(f"*/steps/{step}/{shard:05d}.manifest.json")
    return path


def left(cluster: Cluster, step: str, output: str, shard: int = 0) -> Path:
    """The blob that a shard left as an output."""
    path = receipt(cluster, step, shard)
    summary = decoded_receipt(path.read_bytes(), str(path))
    assert summary is not None
    digest = summary.outputs[output]
    return cluster.folder / "store" / "blobs" / digest[:2] / digest


def met(summary: StepSummary, writer: str, path: Path) -> str:
    """The damaged file that a pod names, which it writes into no receipt."""
    assert (summary.error, summary.outputs["writer"]) == ("Damaged", writer), summary
    assert path.as_posix().endswith(summary.outputs["damaged"])
    return summary.outputs["damaged"]


def test_the_step_that_wrote_a_damaged_file_makes_it_again(cluster: Cluster, sims: Sims) -> None:
    mapping, reducing, finishing = first_iteration(cluster)
    mapped(cluster, mapping)
    sim, profile = sims.started[0], finishing.inputs["profile"]

    for path in (left(cluster, mapping.name, "reflections", 1), receipt(cluster, mapping.name)):
        whole, asked = path.read_bytes(), sim.answered()
        path.write_bytes(whole[:-1])
        file = met(ended(cluster.start(reducing)), mapping.name, path)
        assert [one.error for one in mapped(cluster, mapping, damaged=file)] == ["", ""]
        assert path.suffix or path.read_bytes() == whole
        assert sim.answered() == asked, "a model was asked"
    assert ended(cluster.start(reducing, damaged=file)).error == ""

    for step, path in (
        (Step(profile, "profile", 0, mapping.seed), left(cluster, profile, "artifact")),
        (reducing, left(cluster, reducing.name, "updates")),
        (reducing, left(cluster, reducing.name, "calls")),
    ):
        path.unlink()
        pod = cluster.start(finishing)
        file = met(ended(pod), step.name, path)
        assert any("is made again from the memo" in line["message"] for line in pod.log), pod.log
        asked = sim.answered()
        assert ended(cluster.start(step, damaged=file)).error == ""
        assert sim.answered() == asked, "a model was asked"
    assert ended(cluster.start(finishing)).error == ""


def test_a_map_that_meets_a_damaged_artifact_is_passed_on_and_done_again(cluster: Cluster) -> None:
    mapping, reducing, _ = first_iteration(cluster)
    (profile,) = cluster.summaries
    artifact = left(cluster, profile, "artifact")
    artifact.write_bytes(b"{}")
    assert {one.error for one in mapped(cluster, mapping)} == {"Damaged"}
    file = met(ended(cluster.start(reducing)), profile, artifact)
    again = Step(profile, "profile", 0, mapping.seed)
    assert ended(cluster.start(again, damaged=file)).error == ""
    assert {one.error for one in mapped(cluster, mapping, damaged=file)} == {""}
    assert ended(cluster.start(reducing, damaged=file)).error == ""
