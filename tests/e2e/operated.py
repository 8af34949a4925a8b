"""A run that ``decide_cluster`` decides, of which each pod is a process: the operator's part, without an
operator."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from pods import Cluster

from combee.plan.cluster.decide import JobWish, Run, decide_cluster
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, JobSeen, Seen
from combee.plan.types import Outcome


@dataclass
class Operated:
    """One run. Its Jobs are done one after the other; it is over before anything is published."""

    cluster: Cluster
    memory: Memory = field(default_factory=Memory)
    jobs: dict[str, JobSeen] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    """the Jobs that were done, as kind, iteration and attempt."""

    def copied(self, folder: Path) -> Operated:
        """The same run at the same point, on a copy of its store."""
        cluster = replace(self.cluster, folder=folder / "cluster", pods=[], plans=dict(self.cluster.plans))
        shutil.copytree(self.store, cluster.folder / "store", dirs_exist_ok=True)
        for split in ("train", "heldOut"):
            shutil.copy(self.cluster.folder.parent / f"{split}.jsonl", folder)
        return Operated(cluster, self.memory, dict(self.jobs))

    @property
    def store(self) -> Path:
        return self.cluster.folder / "store"

    def goes_on(self, until: str = "") -> Outcome | None:
        """Do what is asked for until the run has an outcome, or the Job ``until`` is due."""
        while True:
            seen = Seen(
                now=1e9 + len(self.done),
                jobs=self.jobs,
                plans=self.cluster.plans,
                engines={"main": EngineSeen("main", 1, ready=1)},
            )
            got = decide_cluster(Run(self.cluster.who, self.cluster.run.spec), self.memory, seen)
            self.memory = got.memory
            if got.freeze is not None:
                self.cluster.plans[got.freeze.iteration] = got.freeze
                continue
            due = next((wish for wish in got.jobs if wish.name not in self.jobs), None)
            if due is None or due.step.kind == "publish":
                return got.memory.run.outcome
            name = f"{due.step.kind} {due.step.iteration} {due.attempt}"
            if name == until:
                return None
            self._do(due)
            self.done.append(name)

    def _do(self, wish: JobWish) -> None:
        step = wish.step
        pods = [self.cluster.start(step, shard) for shard in range(step.shards)]
        for pod in pods:
            assert pod.wait() == 0, pod.log
        job = JobSeen(wish.name, step.name, step.kind, step.iteration, wish.attempt, step.shards)
        summary = None if step.kind == "map" else pods[0].message
        self.jobs[wish.name] = replace(job, succeeded=step.shards, complete=True, summary=summary)
