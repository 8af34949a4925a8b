"""What the tests of a run's life on a cluster share: a spec, summaries, and Jobs as they are seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from combee.api.load import parse_run
from combee.api.run import RunSpec
from combee.names import attempt_name, step_name
from combee.plan.cluster.decide import Run
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import JobSeen, Seen
from combee.plan.decide import Identity, iteration_plan
from combee.plan.state import Best, DataFacts, RunState
from combee.plan.types import IterationPlan, Outcome, RoleUsage, StepSummary

UID = "3fa9c1d2"
NOW = 1_000_000.0
ENDPOINT = {"endpoint": {"url": "http://models.example.com/v1", "model": "m"}}
ENGINE = {"engineRef": {"name": "main"}}
GPUS = {
    "engines": [{"name": "main", "vllm": {"model": "m", "gpusPerReplica": 2, "replicas": 2}}],
    "models": {"task": ENGINE, "proposer": ENGINE},
}
"""A run with one engine of two servers with two GPUs each."""
FACTS = DataFacts(100, 20, 20, 0, {"train": "t", "heldOut": "h"})


def spec_of(name: str = "formula", **changes: Any) -> RunSpec:
    """A Formula run of 100 examples in batches of 40 over four map pods."""
    base: dict[str, Any] = {
        "task": {"type": "Formula", "data": {"train": {"uri": "t.jsonl"}, "heldOut": {"uri": "h.jsonl"}}},
        "method": {"type": "ACE"},
        "models": {"task": ENDPOINT, "proposer": ENDPOINT},
        "batching": {"mode": "Fixed", "size": 40, "reason": "test"},
        "workers": {"parallelism": 4, "waitSeconds": 60},
        "stopping": {"evaluateEvery": 10},
        **changes,
    }
    head = {"apiVersion": "combee.dev/v1alpha1", "kind": "PromptLearningRun", "metadata": {"name": name}}
    return parse_run({**head, "spec": base}, "test").spec


def run_of(name: str = "formula", uid: str = UID, **changes: Any) -> Run:
    """A run and its spec."""
    return Run(Identity(name, uid), spec_of(name, **changes))


def step(kind: str, iteration: int = 0) -> str:
    """A step's name."""
    return step_name("formula", UID, iteration, kind)


def job(kind: str, iteration: int = 0, attempt: int = 0, **changes: Any) -> JobSeen:
    """A live Job as seen; a map has four pods."""
    name = step(kind, iteration)
    pods = 4 if kind == "map" else 1
    seen = JobSeen(attempt_name(name, attempt), name, kind, iteration, attempt, completions=pods)
    return replace(seen, **changes)


def placed(kind: str, iteration: int = 0, attempt: int = 0, **changes: Any) -> JobSeen:
    """A Job whose pods all run."""
    one = job(kind, iteration, attempt)
    return replace(one, ready=one.completions, **changes)


def done(kind: str, iteration: int = 0, attempt: int = 0, **changes: Any) -> JobSeen:
    """A finished Job; ``summary`` is what its pod left."""
    one = job(kind, iteration, attempt)
    said = None if kind == "map" else summary(kind, iteration)
    return replace(one, **{"succeeded": one.completions, "complete": True, "summary": said, **changes})


def summary(kind: str, iteration: int = 0, **changes: Any) -> StepSummary:
    """What a step's pod leaves when all is well."""
    said: dict[str, dict[str, Any]] = {
        "profile": {
            "outputs": {"artifact": "A0", "train": "t", "heldOut": "h"},
            "counts": {"train": 100, "select": 20, "gate": 20, "test": 0, "rollouts": 20},
            "scores": {"select": 0.5},
        },
        "diagnose": {
            "outputs": {"verdict": "Plateau", "diagnosis": "D"},
            "counts": {
                "at": 60,
                "scored": 20,
                "examples": 20,
                "rollouts": 140,
                **{f"headroom{name}": 12 for name in ("Rows", "Wrong", "Tried", "Own")},
                "headroomOther": 1,
            },
            "scores": {"start": 0.5, "level": 0.7, "low": 0.6, "high": 0.8, "gainLow": 0.1},
            "seconds": {"wall": 9.0, "serialExample": 4.0},
        },
        "reduce": {"counts": {"iteration": iteration}},
        "finish": {
            "outputs": {"artifact": f"A{iteration + 1}"},
            "counts": {"iteration": iteration, "rollouts": 70, "evaluated": 20},
            "scores": {"select": 0.6 + iteration / 100, "train": 0.7},
            "usage": {"task": RoleUsage(70, 10, 7000, 700, 0)},
            "seconds": {"wall": 9.0},
            "observations": ((40, 3.0),),
        },
        "evaluate": {
            "outputs": {"record": f"R{iteration}"},
            "scores": {"gateBaseline": 0.5, "gateBest": 0.7, "gateLow": 0.1, "gateHigh": 0.3},
            "counts": {"gateRows": 20, "gateDiscordant": 6, "rollouts": 40},
        },
        "publish": {"outputs": {"configMap": "formula-a3"}},
    }
    return replace(StepSummary(step(kind, iteration), kind, **said[kind]), **changes)


LEARNING = RunState(
    phase="Learning",
    facts=FACTS,
    artifact="A0",
    baseline_select=0.5,
    last_select=0.5,
    best=Best("A0", 0.5, -1),
)
STOPPED = replace(
    LEARNING, phase="Evaluating", iteration=3, stop=Outcome("Done", "1 epoch"), best=Best("A3", 0.62, 2)
)


def plan(iteration: int = 0, **changes: Any) -> IterationPlan:
    """The frozen plan of an iteration."""
    return replace(iteration_plan(spec_of(), LEARNING), iteration=iteration, **changes)


def memory(state: RunState | None = None, **changes: Any) -> Memory:
    """The memory of a run that has been active for a hundred seconds."""
    base = Memory(run=state or RunState(), started=NOW - 100, active_since=NOW - 100)
    return replace(base, **changes)


def seen(*jobs: JobSeen, **changes: Any) -> Seen:
    """One tick's facts."""
    return replace(Seen(now=NOW, jobs={one.name: one for one in jobs}), **changes)
