"""Pods meet a damaged file in the store: the step that wrote it makes it again, and nobody is asked."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
import yaml
from damaging import damaged
from e2e_support import FORMULA, Manifest, Sims
from operated import Operated
from pods import Cluster, Pod

from combee.plan.decide import decide
from combee.plan.types import Snapshot, Step, StepSummary
from combee.work.context import decoded_receipt

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="pods are Linux processes")]


@pytest.fixture
def cluster(sims: Sims, key: Path, manifest: Manifest, tmp_path: Path, clusters: list[Cluster]) -> Cluster:
    for name in ("train", "heldOut"):
        rows = (FORMULA / f"{name.lower()}.jsonl").read_bytes().splitlines(keepends=True)[:40]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(rows))
    workers = {"concurrency": 8, "parallelism": 2, "hedgeBudget": 0, "overlap": "Never"}
    path = manifest(
        name="pods",
        train=tmp_path / "train.jsonl",
        held_out=tmp_path / "heldOut.jsonl",
        batching={"mode": "Fixed", "size": 20, "reason": "test"},
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


def test_a_call_that_was_lost_is_lost_again_and_no_budget_is_asked(cluster: Cluster, sims: Sims) -> None:
    """Its server would answer it now, and nothing is left of the budget."""
    mapping, _, _ = first_iteration(cluster)
    bad = sims.start("--time-scale", "0", "--error-rate", "0.8")
    good, cluster.engine = cluster.engine, bad.url.replace("127.0.0.1", "localhost")
    assert [one.error for one in mapped(cluster, mapping)] == ["", ""]
    cluster.engine = good
    before = receipt(cluster, mapping.name, 1)
    whole = decoded_receipt(before.read_bytes(), str(before))
    assert whole is not None and whole.counts["lost"] > 0 and whole.usage["task"].calls
    path = left(cluster, mapping.name, "trajectories", 1)
    data, asked = path.read_bytes(), sims.started[0].answered()
    spent = {"budget": {"rollouts": 1}, "spent": {"rollouts": 1, "tokens": 0}}

    path.unlink()
    file = path.relative_to(cluster.folder / "store").as_posix()
    assert {one.error for one in mapped(cluster, mapping, damaged=file, **spent)} == {""}
    made = decoded_receipt(before.read_bytes(), str(before))
    assert made is not None and path.read_bytes() == data
    assert (made.counts, made.usage) == (whole.counts, whole.usage), "it is charged again"

    for gone in (path, left(cluster, mapping.name, "calls", 1)):
        gone.unlink()
    _, done = mapped(cluster, mapping, damaged=file, **spent)
    assert done.error == "Store" and file in done.message and "lacks the call" in done.message
    assert sims.started[0].answered() == asked, "a model was asked"


def learned(one: Operated) -> tuple[object, ...]:
    """What a run came to, and what it is charged."""
    memory, state = one.memory, one.memory.run
    artifacts = [note.artifact for note in memory.notes]
    blobs = [(one.store / "blobs" / digest[:2] / digest).read_bytes() for digest in artifacts]
    return state.outcome, state.best, memory.gate, blobs, state.spend.rollouts, state.spend.tokens


FINISHING, LOOKING = "finish 1 0", "evaluate 2 0"
MEMO = ("memo", "", 0)
PAIRS: dict[str, tuple[str, list[tuple[str, str, int]], tuple[str, ...]]] = {
    "two shards": (FINISHING, [("map 1", "trajectories", 0), ("map 1", "trajectories", 1)], ()),
    "two files of a shard": (FINISHING, [("map 1", "trajectories", 1), ("map 1", "calls", 1)], ()),
    "a file and its receipt": (FINISHING, [("map 1", "trajectories", 1), ("map 1", "", 1)], ()),
    "two receipts": (FINISHING, [("map 1", "", 0), ("reduce 1", "", 0)], ()),
    "two steps": (FINISHING, [("map 1", "trajectories", 0), ("reduce 1", "updates", 0)], ()),
    "two iterations": (FINISHING, [("map 1", "trajectories", 0), ("finish 0", "artifact", 0)], ()),
    "an artifact and the one before": (
        LOOKING,
        [("finish 0", "artifact", 0), ("profile 0", "artifact", 0)],
        (),
    ),
    "an artifact and its receipt": (LOOKING, [("finish 0", "artifact", 0), ("finish 0", "", 0)], ("0",)),
    "an artifact and its source": (
        LOOKING,
        [("finish 0", "artifact", 0), ("map 0", "trajectories", 0)],
        ("1",),
    ),
    "a file and the memo": (FINISHING, [("map 1", "trajectories", 0), MEMO], ("0", "1")),
}
"""At which Job two files are gone, which (a step and its iteration, an output or the receipt, a shard), and
those of them that are named where they are not made again."""


def files_of(one: Operated, kind: str, output: str, shard: int, of_map: set[str]) -> list[Path]:
    """A file of a run's store, or of the memo what a map was answered."""
    step = next((job.step for name, job in one.jobs.items() if f"{job.kind} {job.iteration}" == kind), "")
    if kind == "memo":
        return [one.store / path for path in sorted(of_map)]
    return [left(one.cluster, step, output, shard) if output else receipt(one.cluster, step, shard)]


def memo_of(one: Operated) -> set[str]:
    return {str(path.relative_to(one.store)) for path in (one.store / "memo").rglob("*") if path.is_file()}


def test_two_damaged_files_are_made_again_or_one_that_is_not_is_named(
    cluster: Cluster, sims: Sims, tmp_path: Path
) -> None:
    """Where they are, the run is the one that it would have been: what it learned, asked and is charged."""
    one, at = Operated(cluster), dict[str, Operated]()
    one.goes_on("map 1 0")
    memo = memo_of(one)
    one.goes_on("reduce 1 0")
    of_map = memo_of(one) - memo
    for job in (FINISHING, LOOKING):
        one.goes_on(job)
        at[job] = one.copied(folder_of(tmp_path, job))
    sim, asked = sims.started[0], dict[str, int]()
    for job in at:
        before, whole = sim.answered().total(), at[job].copied(folder_of(tmp_path, f"{job} whole"))
        whole.goes_on()
        asked[job] = sim.answered().total() - before
    wanted = learned(whole)
    for name, (job, files, refused) in PAIRS.items():
        before, run = sim.answered().total(), at[job].copied(folder_of(tmp_path, name))
        paths = [files_of(run, *file, of_map) for file in files]
        for path in chain(*paths):
            path.unlink()
        outcome = run.goes_on()
        print(f"{name}: {run.done}; {run.memory.mended} mended; {outcome}")
        assert outcome is not None
        if not refused:
            assert learned(run) == wanted, name
            assert sim.answered().total() - before == asked[job], name
            assert run.memory.mended > 0
        else:
            assert outcome.name == "Failed", name
            for number in refused:
                assert any(str(path.relative_to(run.store)) in outcome.reason for path in paths[int(number)])


def folder_of(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name.replace(" ", "-").replace("'", "")
    folder.mkdir()
    return folder


PLACES = ("reduce 0 0", "finish 0 0", "map 1 0", "reduce 1 0", FINISHING, LOOKING)


@pytest.mark.long
@pytest.mark.timeout(3600, func_only=True)  # a hundred runs are gone on with
def test_a_hundred_random_pairs(cluster: Cluster, tmp_path: Path) -> None:
    """Two files of any kind, damaged in any way, at any of a run's Jobs."""
    one, at = Operated(cluster), dict[str, Operated]()
    for job in PLACES:
        one.goes_on(job)
        at[job] = one.copied(folder_of(tmp_path, job))
    one.goes_on()
    wanted, draw, ends = learned(one), random.Random("pairs 18"), Counter[str]()
    for number in range(100):
        job = draw.choice(PLACES)
        run = at[job].copied(folder := folder_of(tmp_path, f"pair {number}"))
        done = [damaged(run.store, at[job].store, draw) for _ in range(2)]
        names = [path.relative_to(run.store).as_posix() for _, path in done]
        outcome = run.goes_on()
        assert outcome is not None
        end = "refused" if outcome.name == "Failed" else "mended" if run.memory.mended else "identical"
        said = ", ".join(f"{how} {name}" for (how, _), name in zip(done, names, strict=True))
        print(f"{number}: before {job}: {said}: {end} {run.done}")
        if end == "refused":
            assert any(name in outcome.reason for name in names), outcome.reason
        else:
            assert learned(run) == wanted
        ends[end] += 1
        shutil.rmtree(folder)
    print(dict(ends))
