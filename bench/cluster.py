"""What an iteration costs on a cluster beside its model time, with steps placed early and one after the
other.

Needs a cluster: `eval "$(make -s cluster-env)"` first. The operator is a process of this machine; pods, Jobs
and images are the real ones. The model is simulated and fast: its time is taken off anyhow."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Row
from bench.timeline import PHASES, STEP, Event, Watch, means, moments, phases, quantile, reactions
from combee.compare.launch import FINISHED_OUTCOMES

TESTS = Path(__file__).resolve().parents[1] / "tests"
NAME = "cluster: seconds of an iteration that are not model time, overlap / in series"
TARGET = 0.5
AIM_SECONDS = 4.0
REACTION_SECONDS = 0.5
TARGET_TEXT = f"<= {TARGET:g}, aim {AIM_SECONDS:g} s; reaction p50 <= {REACTION_SECONDS:g} s"
SIZE, ITERATIONS = 30, 4
TIME_SCALE = 0.4
"""of the simulated model: each step asks it for some seconds. Of a shorter one a part would be over before
the API server knows that its pods are placed, and no overlap could hide behind it."""
ROUNDS = ("Never", "Auto", "Never", "Auto")
"""In turns, so that what else the machine does meets both."""
HOW = (
    f"the quickstart with {ITERATIONS} iterations of {SIZE} rows, twice in series and twice with overlap, "
    f"in turns; two map "
    f"pods, simulated model at {TIME_SCALE:g} of its time; an iteration lasts from one finish's result to "
    f"the next, the median "
    "counts, less the model time (the recorded calls on the run's slots, the smaller median of both); "
    "means of phases add "
    "up to the mean iteration: what ran beside the step before counts as nothing"
)


@dataclass(frozen=True)
class Measured:
    """One run. Seconds."""

    rows: list[dict[str, dict[str, float]]]
    """of each iteration that was seen whole: step -> phase -> seconds."""
    model: list[float]
    """model time of the iterations."""
    reactions: list[float]

    @property
    def iterations(self) -> list[float]:
        """How long each took."""
        return [sum(sum(spent.values()) for spent in row.values()) for row in self.rows]

    def __add__(self, other: Measured) -> Measured:
        return Measured(self.rows + other.rows, self.model + other.model, self.reactions + other.reactions)


def cluster(folder: Path) -> Row:
    """Seconds of an iteration that are not model time: overlap Auto against Never."""
    if why := obstacle():
        return Row(NAME, None, TARGET_TEXT, "x", f"not run: {why}")
    helpers_of_tests()
    from cluster_tools import REPOSITORY, Cluster, sharing

    connected = Cluster(dict(os.environ))
    connected.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(REPOSITORY / "crds"))
    found: dict[str, Measured] = {}
    with sharing():
        for overlap in ROUNDS:
            one = _measure(connected, overlap, folder)
            found[overlap] = found[overlap] + one if overlap in found else one
    return row(found)


def row(found: Mapping[str, Measured]) -> Row:
    """The table's line of what was measured with overlap Never and Auto. Met when overlap costs at most
    TARGET of what steps in series cost and half of the reactions took at most REACTION_SECONDS."""
    model = min(statistics.median(one.model) for one in found.values())
    beside = {name: statistics.median(one.iterations) - model for name, one in found.items()}
    reacted = [seconds for one in found.values() for seconds in one.reactions]
    half = quantile(reacted, 0.5)
    return Row(
        name=NAME,
        figure=round(beside["Auto"] / beside["Never"], 3),
        target=TARGET_TEXT,
        unit="x",
        met=beside["Auto"] <= TARGET * beside["Never"] and half <= REACTION_SECONDS,
        how=HOW,
        detail={
            "seconds beside model time": {
                **{f"overlap {name}": round(value, 2) for name, value in beside.items()},
                "model": round(model, 2),
            },
            "event to reaction s": {
                "p50": round(half, 3),
                "p99": round(quantile(reacted, 0.99), 3),
                "events": len(reacted),
                "target": f"p50 <= {REACTION_SECONDS:g}",
            },
            "stages": _printed(found),
            "phases": dict(PHASES),
        },
    )


def helpers_of_tests() -> None:
    """Make importable what the tests on a cluster work with."""
    sys.path[:0] = [str(TESTS / "cluster"), str(TESTS)]


def obstacle() -> str:
    """Why nothing can be measured here; empty when it can."""
    if not os.environ.get("KUBECONFIG"):
        return 'no cluster, KUBECONFIG is not set: eval "$(make -s cluster-env)" first'
    if shutil.which("kubectl") is None:
        return "kubectl is not on PATH"
    if importlib.util.find_spec("pytest") is None or importlib.util.find_spec("kopf") is None:
        return "the helpers of the cluster tests need what `make dev` installs"
    return ""


def _printed(found: Mapping[str, Measured]) -> dict[str, dict[str, Any]]:
    """A line of the table for each step of each run."""
    lines: dict[str, dict[str, Any]] = {}
    for overlap, one in found.items():
        for step, spent in means(one.rows).items():
            lines[f"{overlap} {step}"] = {name: round(seconds, 2) for name, seconds in spent.items()}
        each = " ".join(f"{seconds:.1f}" for seconds in one.iterations)
        lines[f"{overlap} sum"] = {"mean": round(statistics.mean(one.iterations), 2), "each": each}
    return lines


def _measure(connected: Any, overlap: str, folder: Path) -> Measured:
    from runs import Runs, operating

    def change(run: dict[str, Any]) -> None:
        run["spec"]["batching"] = {"mode": "Fixed", "size": SIZE, "reason": "measured"}
        run["spec"]["stopping"] = {"patience": 100}
        run["spec"]["workers"]["overlap"] = overlap
        run["spec"]["engines"][0]["vllm"]["args"] = [f"--time-scale={TIME_SCALE:g}"]

    with _namespace(connected) as name:
        runs = Runs(connected, name)
        with (
            Watch(name, connected.environment) as watch,
            operating(connected, name, folder / f"{overlap}.log"),
        ):
            runs.apply(change)
            status = _ended(runs)
            if status["phase"] not in FINISHED_OUTCOMES:
                raise RuntimeError(status["message"])
        return _judged(list(watch.events), _logs(connected, name), overlap)


def _ended(runs: Any) -> dict[str, Any]:
    import pytest

    try:
        return dict(runs.ended(seconds=900))
    except (pytest.fail.Exception, AssertionError) as error:
        raise RuntimeError(f"the run is not over: {error}") from None


def _judged(events: list[Event], logs: dict[str, list[dict[str, Any]]], overlap: str) -> Measured:
    steps = moments(events, logs)
    rows = phases(steps)
    if len(rows) < 2:
        raise RuntimeError(f"only {len(rows)} iterations were seen whole: {sorted(steps)}")
    reacted = reactions(events, overlap=overlap == "Auto")
    if not reacted:
        raise RuntimeError("no reaction to a Job was seen")
    return Measured(rows, _model_seconds(events), reacted)


@contextmanager
def _namespace(connected: Any) -> Iterator[str]:
    name = f"bench-{secrets.token_hex(3)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    connected.kubectl("create", "-f", "-", stdin=body)
    try:
        yield name
    finally:
        connected.kubectl("delete", "plr", "--all", "--timeout=60s", namespace=name)
        connected.kubectl("delete", "namespace", name, "--wait=false")


def _logs(connected: Any, namespace: str) -> dict[str, list[dict[str, Any]]]:
    """What the step pods said: pod -> lines."""
    names = connected.kubectl("get", "pods", "-l", STEP, "-o", "name", namespace=namespace).split()
    return {
        name.removeprefix("pod/"): [
            json.loads(line)
            for line in connected.kubectl("logs", name, namespace=namespace).splitlines()
            if line.startswith("{")
        ]
        for name in names
    }


def _model_seconds(events: list[Event]) -> list[float]:
    """Model time of each iteration but the first, from what their finish pods left."""
    from combee.plan.types import StepSummary

    modelled: dict[str, float] = {}
    for event in events:
        for status in (
            event.body.get("status", {}).get("containerStatuses", ()) if event.resource == "pods" else ()
        ):
            message = status.get("state", {}).get("terminated", {}).get("message", "")
            summary = StepSummary.decode(message.encode()) if message else None
            if summary is not None and summary.kind == "finish":
                modelled[summary.step] = summary.seconds["modelled"]
    return list(modelled.values())[1:]
