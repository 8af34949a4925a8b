"""A run as a cluster runs it, without a cluster: each pod is a process with a root folder of its own.

``Cluster`` does with ``combee-worker`` processes what an operator does with Jobs: it asks ``decide``,
writes plans, lays out the files of each pod and reads termination messages. Reduce and finish
start together with the map and wait for it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import yaml
from e2e_support import environment

from combee.api.load import parse_run
from combee.names import step_name
from combee.plan.decide import Identity, decide
from combee.plan.state import RunState
from combee.plan.types import IterationPlan, Snapshot, Step, StepSummary
from warm import Program

UID = "3fa9c1d2-0000-4000-8000-000000000000"


@dataclass
class Pod:
    """A started pod."""

    process: Program
    root: Path

    def wait(self, seconds: float = 240) -> int:
        return self.process.wait(seconds)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def message(self) -> StepSummary | None:
        return StepSummary.decode((self.root / "dev/termination-log").read_bytes())

    @property
    def log(self) -> list[dict]:
        return [json.loads(line) for line in (self.root / "stderr").read_text().splitlines()]


@dataclass
class Cluster:
    """One run and its pods."""

    folder: Path
    manifest: Path
    engine: str
    store: str = "/store"
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """use -> the keys of its Secret."""
    variables: dict[str, str] = field(default_factory=dict)
    """of the image that its pods are made of."""
    params: dict[str, object] = field(default_factory=dict)
    """what the operator tells each step beside what decide does."""
    pods: list[Pod] = field(default_factory=list)
    summaries: dict[str, StepSummary] = field(default_factory=dict)
    plans: dict[int, IterationPlan] = field(default_factory=dict)
    state: RunState = field(default_factory=RunState)

    def __post_init__(self) -> None:
        document = yaml.safe_load(self.manifest.read_text())
        document["metadata"] |= {"namespace": "team", "uid": UID}
        self.run = parse_run(document, "manifest")
        self.who = Identity(self.run.name, UID)
        (self.folder / "store").mkdir(parents=True)

    def start(
        self,
        step: Step,
        shard: int = 0,
        *,
        word: str = "step",
        program: tuple[str, ...] = (),
        **params: object,
    ) -> Pod:
        """A pod of a step: exactly the files and variables that the contract names. ``program``: another one
        than the worker's."""
        step = replace(step, params={"engineWaitSeconds": 60, **step.params, **self.params, **params})
        root = self.folder / f"pod{len(self.pods):03d}"
        self._lay_out(root, step)
        variables = {
            "COMBEE_ROOT": str(root),
            "COMBEE_STEP": json.dumps(asdict(step)),
            "COMBEE_STORE": self.store,
            "COMBEE_ENGINES": json.dumps({"main": self.engine}),
            "JOB_COMPLETION_INDEX": str(shard),
            "HOME": str(root / "tmp"),
        }
        if self.run.spec.task.container is not None:
            variables["COMBEE_ADDRESS"] = self.address(len(self.pods))
        words, errors = [*(program or ("combee-worker", word))], root / "stderr"
        process = Program(words, environment(**variables, **self.variables), os.devnull, errors)
        self.pods.append(Pod(process, root))
        return self.pods[-1]

    @staticmethod
    def address(number: int) -> str:
        """A pod's own."""
        return f"127.1.{number // 200}.{number % 200 + 1}"

    def _lay_out(self, root: Path, step: Step) -> None:
        for folder in ("etc/combee/run", "etc/combee/plan", "etc/combee/secrets", "dev", "data", "tmp"):
            (root / folder).mkdir(parents=True)
        (root / "store").symlink_to(self.folder / "store")
        (root / "dev/termination-log").touch()
        metadata = {"name": self.run.name, "namespace": "team", "uid": UID}
        run = {"apiVersion": self.run.api_version, "kind": self.run.kind, "metadata": metadata}
        (root / "etc/combee/run/run.json").write_text(json.dumps(run | {"spec": self.run.spec.dump()}))
        if step.kind in ("map", "reduce", "finish"):
            (root / "etc/combee/plan/plan.json").write_bytes(self.plans[step.iteration].to_json())
        seen = {"profile": ("train", "heldOut"), "map": ("train",), "finish": ("train", "heldOut")}
        for split in seen.get(step.kind, ("heldOut",) if step.kind == "evaluate" else ()):
            self._mount(root, split)
        for use, keys in self.secrets.items():
            folder = root / "etc/combee/secrets" / use
            folder.mkdir()
            for key, value in keys.items():
                (folder / key).write_text(value)

    def _mount(self, root: Path, split: str) -> None:
        """A ConfigMap's key as a file, or a claim as a folder."""
        data = self.run.spec.task.data
        source = data.train if split == "train" else data.held_out
        if source is None:
            return
        inner = source.config_map.key if source.config_map else source.pvc.path if source.pvc else ""
        if inner:
            target = root / "data" / split / inner
            target.parent.mkdir(parents=True)
            target.write_bytes((self.folder.parent / f"{split}.jsonl").read_bytes())

    def to_the_end(
        self, disturb: Callable[[list[Pod], int], None] = lambda pods, iteration: None
    ) -> RunState:
        """Until there is an outcome. ``disturb`` gets the running map pods of each iteration."""
        while True:
            snapshot = Snapshot(self.summaries, self.plans)
            plan = decide(
                spec=self.run.spec, who=self.who, state=self.state, snapshot=snapshot, elapsed_seconds=0.0
            )
            self.state = plan.state
            if plan.outcome is not None:
                return self.state
            if plan.freeze is not None:
                self.plans[plan.freeze.iteration] = plan.freeze
            for step in plan.start:
                if step.kind == "map":
                    self.iteration(step, disturb)
                else:
                    self.done(step, self.start(step))

    def iteration(self, step: Step, disturb: Callable[[list[Pod], int], None]) -> None:
        """Map, reduce and finish, all started at once; a map pod that dies is started again."""
        after = {kind: step_name(self.run.name, UID, step.iteration, kind) for kind in ("reduce", "finish")}
        inputs = {**step.inputs, "map": step.name}
        pods = self.plans[step.iteration].reduce_shards
        reduce = Step(after["reduce"], "reduce", step.iteration, step.seed, pods, inputs=inputs)
        inputs = {**inputs, "reduce": reduce.name, "profile": step_name(self.run.name, UID, 0, "profile")}
        finish = Step(after["finish"], "finish", step.iteration, step.seed, inputs=inputs)
        maps = [self.start(step, shard) for shard in range(step.shards)]
        waiting = [(reduce, self.start(reduce, shard, waitSeconds=230)) for shard in range(pods)]
        waiting.append((finish, self.start(finish, waitSeconds=230)))
        disturb(maps, step.iteration)
        for shard, pod in enumerate(maps):
            while (code := pod.wait()) != 0:
                assert code in (1, -signal.SIGKILL), pod.log
                pod = self.start(step, shard)
        self.summaries[step.name] = StepSummary(step.name, "map")
        for one, pod in waiting:
            self.done(one, pod)

    def done(self, step: Step, pod: Pod) -> None:
        """Wait for a pod and take its summary."""
        assert pod.wait() == 0, pod.log
        summary = pod.message
        assert summary is not None and (summary.step, summary.error) == (step.name, ""), pod.log
        self.summaries[step.name] = summary

    def stop(self) -> None:
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.kill()
