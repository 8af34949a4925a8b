"""A reduce of any number of reflections in any number of pods: what a map would have left is written, and the
pods are those of ``pods``."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from e2e_support import ROOT, Manifest, Sim
from pods import UID, Cluster, Pod

from combee.algo.seeds import rng
from combee.assembly.context import run_prefix
from combee.clients.store.store import Store
from combee.methods.ace import AceMethod
from combee.names import step_name
from combee.plan.decide import iteration_plan
from combee.plan.state import DataFacts, RunState
from combee.plan.types import Step, StepSummary
from combee.records import Lesson, Reflection, Trajectory
from combee.sim import lessons
from combee.work.context import OBSERVED, decoded_receipt, encoded_receipt, line_of
from waiting import wait_until

STATED = 10
"""How often a lesson is stated, on average."""
TOPICS = 40
LOOK_SECONDS = 0.02


def reflection(number: int, lesson: int) -> Reflection:
    """A reflection that states a lesson, with a diagnosis of the usual length."""
    name = f"r-{number:05d}"
    text = lessons.note_entry(f"Ratio {lesson % TOPICS}", lessons.note("planted", lesson), number)
    diagnosis = lessons.at_length(lessons.DIAGNOSES[0], 150, number)
    return Reflection(name, f"{number}@0", False, diagnosis, (Lesson(f"{name}.1", text),))


def trajectory(of: Reflection) -> Trajectory:
    """The wrong answer that a reflection is on."""
    example, _, _ = of.trajectory_id.partition("@")
    return Trajectory(of.trajectory_id, example, "", "", "", 0.0, False, "")


def leave_map(
    store: Store, prefix: str, step: str, reflections: int, shards: int, lessons_in_all: int = 0
) -> None:
    """Write what a map of so many shards leaves of so many wrong answers."""
    drawn = rng(7, "planted")
    distinct = lessons_in_all or -(-reflections // STATED)
    made = [reflection(number, int(drawn.integers(distinct))) for number in range(reflections)]
    for shard in range(shards):
        rows = made[shard::shards]
        summary = StepSummary(
            step,
            "map",
            outputs={
                "reflections": store.put_blob(b"".join(map(line_of, rows))),
                "trajectories": store.put_blob(b"".join(line_of(trajectory(row)) for row in rows)),
                "calls": store.put_blob(b""),
            },
            counts={"iteration": 0, "examples": len(rows)},
            seconds={"wall": 1.0},
        )
        where = f"{prefix}/steps/{step}/{shard:05d}.manifest.json"
        store.put(where, encoded_receipt(summary, where))


@dataclass
class Reduce:
    """A reduce step that is ready to be done."""

    cluster: Cluster
    step: Step
    peaks_mib: dict[int, float]
    """the most memory that each pod had, by its shard."""
    cpu_seconds: dict[int, float]
    """the processor time that each pod took."""

    @property
    def store(self) -> Store:
        return Store.open(str(self.cluster.folder / "store"))

    def start(self, shard: int, *words: str) -> Pod:
        """One of its pods. ``words``: another program than the worker's, and its arguments."""
        self.cluster.variables["PYTHONPATH"] = f"{ROOT / 'operator'}:{Path(__file__).parent}"
        return self.cluster.start(self.step, shard, program=words, waitSeconds=600)

    def done(self) -> StepSummary:
        """What its pods left."""
        summary = self.receipt()
        assert summary is not None and summary.error == ""
        return summary

    def learned(self) -> dict[str, str]:
        """What it left, but for what clocks and servers did."""
        return {name: digest for name, digest in self.done().outputs.items() if name not in OBSERVED}

    def receipt(self) -> StepSummary | None:
        path = f"{run_prefix(self.cluster.run.name, UID)}/steps/{self.step.name}/00000.manifest.json"
        return decoded_receipt(self.store.get(path) or b"", path)

    def run(self) -> float:
        """Do it in as many pods as its step says; return the seconds it took. Nothing disturbs them."""
        began = time.monotonic()
        pods = [self.start(shard) for shard in range(self.step.shards)]
        while any(pod.process.poll() is None for pod in pods):
            self.watch(pods)
            time.sleep(LOOK_SECONDS)
        took = time.monotonic() - began
        assert [pod.wait() for pod in pods] == [0] * len(pods), [pod.log for pod in pods]
        return took

    def wait_for_claims(self, claims: int) -> None:
        """Wait until its pods have claimed so many pieces."""
        folder = f"{run_prefix(self.cluster.run.name, UID)}/claims/{self.step.name}"
        wait_until(f"{claims} claims", lambda: len(self.store.list(folder)) >= claims)

    def watch(self, pods: list[Pod]) -> None:
        for shard, pod in enumerate(pods):
            folder = Path(f"/proc/{pod.process.pid}")
            try:
                status, stat = (folder / "status").read_text(), (folder / "stat").read_text()
            except OSError:
                continue
            if peak := re.search(r"VmHWM:\s+(\d+) kB", status):
                self.peaks_mib[shard] = int(peak[1]) / 1024
                user, system = stat.rpartition(")")[2].split()[11:13]
                self.cpu_seconds[shard] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def reduce_of(
    folder: Path,
    manifest: Manifest,
    sim: Sim,
    reflections: int,
    shards: int,
    *,
    lessons_in_all: int = 0,
    **spec: Any,
) -> Reduce:
    """A reduce of so many reflections, as a map of two shards left them. ``spec``: fields of the manifest."""
    path = manifest(
        name="reduce", batching={"mode": "Fixed", "size": min(reflections, 100_000), "reason": "test"}, **spec
    )
    cluster = Cluster(folder, path, sim.url.replace("127.0.0.1", "localhost"))
    facts = DataFacts(reflections, 10, 10, 0, {})
    plan = iteration_plan(cluster.run.spec, RunState(phase="Learning", facts=facts, token_factor=1.0))
    cluster.plans[0] = replace(plan, batch_size=reflections, shards=2)
    store, prefix = Store.open(str(folder / "store")), run_prefix(cluster.run.name, UID)
    names = {kind: step_name(cluster.run.name, UID, 0, kind) for kind in ("map", "reduce")}
    leave_map(store, prefix, names["map"], reflections, 2, lessons_in_all)
    method = AceMethod()
    artifact = store.put_blob(method.empty().to_json())
    inputs = {"artifact": artifact, "map": names["map"]}
    return Reduce(
        cluster, Step(names["reduce"], "reduce", 0, plan.seed, shards=shards, inputs=inputs), {}, {}
    )
