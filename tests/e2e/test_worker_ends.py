"""How a pod ends: exit codes, termination messages and manifests, one way of ending after the other."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from e2e_support import FORMULA, Manifest, Sims
from pods import UID, Cluster, Pod

from combee.names import step_name
from combee.plan.decide import decide
from combee.plan.types import Snapshot, Step, StepSummary
from waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def cluster(sims: Sims, key: Path, manifest: Manifest, tmp_path: Path) -> Iterator[Cluster]:
    """A run on a claim's data, with nothing done yet."""
    for name, source in (("train", "train"), ("heldOut", "heldout")):
        lines = (FORMULA / f"{source}.jsonl").read_bytes().splitlines(keepends=True)[:24]
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(lines))
    path = manifest(
        name="pods",
        batching={"mode": "Fixed", "size": 12, "reason": "test"},
        workers={"concurrency": 8, "parallelism": 2, "hedgeBudget": 0},
    )
    document = yaml.safe_load(path.read_text())
    document["spec"]["task"]["data"] = {
        name: {"pvc": {"claimName": "rows", "path": f"{name}.jsonl"}} for name in ("train", "heldOut")
    }
    path.write_text(yaml.safe_dump(document))
    sim = sims.start("--key", key, "--time-scale", "0")
    made = Cluster(tmp_path / "cluster", path, sim.url)
    yield made
    made.stop()


def next_step(cluster: Cluster) -> Step:
    """The next step that the run asks for; plans are frozen on the way."""
    while True:
        snapshot = Snapshot(cluster.summaries, cluster.plans)
        plan = decide(
            spec=cluster.run.spec, who=cluster.who, state=cluster.state, snapshot=snapshot, elapsed_seconds=0
        )
        cluster.state = plan.state
        if plan.freeze is not None:
            cluster.plans[plan.freeze.iteration] = plan.freeze
        for step in plan.start:
            return step


def profiled(cluster: Cluster) -> Step:
    """Do the profile; the first map step."""
    step = next_step(cluster)
    cluster.done(step, cluster.start(step))
    return next_step(cluster)


def ended(pod: Pod, code: int) -> StepSummary:
    assert pod.wait() == code, pod.log
    assert pod.message is not None
    return pod.message


def manifests(cluster: Cluster, step: Step) -> list[Path]:
    return sorted((cluster.folder / "store").glob(f"runs/*/steps/{step.name}/*.json"))


def after(map_step: Step, kind: str) -> Step:
    names = {one: step_name("pods", UID, 0, one) for one in ("reduce", "finish")}
    inputs = {**map_step.inputs, "map": map_step.name}
    if kind == "finish":
        inputs["reduce"] = names["reduce"]
    return Step(names[kind], kind, 0, map_step.seed, inputs=inputs)


NOWHERE = "http://127.0.0.1:9/v1"
"""Nothing listens there, and nobody is given that port by chance."""


def test_a_pod_whose_inputs_do_not_come_yields_its_place(cluster: Cluster) -> None:
    map_step = profiled(cluster)
    for kind in ("reduce", "finish"):
        step = after(map_step, kind)
        assert ended(cluster.start(step, waitSeconds=0.5), 0).error == "Yielded"
        assert manifests(cluster, step) == []


def test_a_permanent_error_is_a_result_and_is_passed_on(cluster: Cluster, sims: Sims, key: Path) -> None:
    map_step = profiled(cluster)
    cluster.engine = sims.start("--key", key, "--time-scale", "0", "--api-key", "another").url
    first = ended(cluster.start(map_step, 0), 0)
    assert first.error == "Endpoint" and "an API key is needed (401)" in first.message
    assert len(manifests(cluster, map_step)) == 1
    for kind in ("reduce", "finish"):
        step = after(map_step, kind)
        passed_on = ended(cluster.start(step, waitSeconds=60), 0)
        assert (passed_on.error, passed_on.message) == (first.error, first.message)
        assert len(manifests(cluster, step)) == 1
    again = ended(cluster.start(map_step, 0), 0)
    assert (again.error, again.message) == (first.error, first.message)


def test_an_engine_that_does_not_come_up_is_worth_another_try(cluster: Cluster) -> None:
    map_step = profiled(cluster)
    engine, cluster.engine = cluster.engine, NOWHERE
    summary = ended(cluster.start(map_step, 0, engineWaitSeconds=0.5), 1)
    assert "not ready within 0.5 s" in summary.message and manifests(cluster, map_step) == []
    cluster.engine = engine
    assert ended(cluster.start(map_step, 0), 0).error == ""


def test_what_is_remembered_needs_no_engine(cluster: Cluster) -> None:
    step = next_step(cluster)
    first = ended(cluster.start(step), 0)
    cluster.engine = NOWHERE
    assert ended(cluster.start(step), 0) == first
    for path in manifests(cluster, step):
        path.unlink()
    second = ended(cluster.start(step, engineWaitSeconds=0.5), 0)
    assert second.outputs["artifact"] == first.outputs["artifact"] and second.scores == first.scores
    assert second.usage["task"].hits == second.usage["task"].calls > 0


@pytest.mark.parametrize(("split", "code"), [("train", "InvalidData"), ("heldOut", "HeldOutMoved")])
def test_data_that_changed_ends_the_step_that_reads_it(cluster: Cluster, split: str, code: str) -> None:
    map_step = profiled(cluster)
    file = cluster.folder.parent / f"{split}.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    step = map_step
    if split == "heldOut":
        artifact = map_step.inputs["artifact"]
        name = step_name("pods", UID, 0, "evaluate")
        step = Step(name, "evaluate", 0, 7, inputs={"artifact": artifact}, params={"baseline": artifact})
    summary = ended(cluster.start(step), 0)
    assert summary.error == code and split in summary.message
    assert len(manifests(cluster, step)) == 1


def test_rows_shared_by_train_and_held_out_end_the_profile(cluster: Cluster) -> None:
    shutil.copy(cluster.folder.parent / "heldOut.jsonl", cluster.folder.parent / "train.jsonl")
    summary = ended(cluster.start(next_step(cluster)), 0)
    assert summary.error == "DataOverlap" and "24 of 24 rows" in summary.message


def test_a_budget_that_is_spent_ends_the_step(cluster: Cluster) -> None:
    budget = cluster.run.spec.budget.model_copy(update={"rollouts": 20})
    cluster.run = cluster.run.model_copy(
        update={"spec": cluster.run.spec.model_copy(update={"budget": budget})}
    )
    map_step = Step("pods-3fa9c1d2-i000-profile-a0", "profile", 0, 7)
    summary = ended(cluster.start(map_step, spent={"rollouts": 15}), 0)
    assert summary.error == "BudgetExhausted" and "20 rollouts" in summary.message


def test_a_budget_that_was_raised_meanwhile_is_the_operators_word(cluster: Cluster) -> None:
    step = next_step(cluster)
    assert ended(cluster.start(step, budget={"rollouts": 5}), 0).error == "BudgetExhausted"
    for path in manifests(cluster, step):
        path.unlink()
    assert ended(cluster.start(step, budget={"rollouts": 500}), 0).error == ""


def test_sigterm_stops_at_once(cluster: Cluster, sims: Sims, key: Path) -> None:
    sim = sims.start("--key", key, "--time-scale", "10")
    cluster.engine = sim.url
    pod = cluster.start(next_step(cluster))
    wait_until("the first stage", lambda: "profile" in (pod.root / "stderr").read_text())
    pod.process.send_signal(signal.SIGTERM)
    assert pod.wait() == 143


def test_files_that_are_not_the_operators_are_a_bug_in_one_line(cluster: Cluster) -> None:
    step = Step("pods-x", "map", 0, 7, shards=2)
    cluster.plans[0] = type("Plan", (), {"to_json": staticmethod(lambda: b"{}")})()
    pod = cluster.start(step)
    assert pod.wait() == 70
    (line,) = pod.log
    assert line["level"] == "error" and "not an iteration plan" in line["message"]
