"""What happened to a run's Jobs and pods, moment by moment, and how long each phase of an iteration took.

Two sources: watches, whose events are stamped when they arrive here, and the log lines of the pods. So the
clocks of this machine and of the nodes must agree; on a node of this machine they are the same.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

RUN, JOB, POD = "promptlearningruns", "jobs", "pods"
STEP, ITERATION, INDEX = "combee.dev/step", "combee.dev/iteration", "batch.kubernetes.io/job-completion-index"
CHAIN = ("map", "reduce", "finish")
PHASES = (
    ("end seen", "the last pod's result is kept -> the API server has its end"),
    ("job complete", "-> the Job is Complete"),
    ("operator", "-> the next Job is there"),
    ("pod made", "-> its pods are there"),
    ("pod placed", "-> they have a node"),
    ("container", "-> the program runs in each"),
    ("start-up", "-> it is at work"),
    ("inputs", "-> its inputs are there"),
    ("work", "-> its result is kept"),
)
"""The phases of a step, in order; each begins where the one before ended."""


@dataclass(frozen=True)
class Event:
    """One event of a watch. ``at``: seconds since 1970, when it arrived."""

    at: float
    resource: str
    kind: str
    body: Mapping[str, Any]


@dataclass
class Watch:
    """Events of a namespace's runs, Jobs and pods, until it is closed."""

    namespace: str
    environment: Mapping[str, str]
    events: list[Event] = field(default_factory=list)
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Watch:
        for resource in (RUN, JOB, POD):
            command = ["kubectl", "-n", self.namespace, "get", resource, "--watch", "--output-watch-events"]
            process = subprocess.Popen(
                [*command, "-o", "json"], env=dict(self.environment), stdout=subprocess.PIPE, text=True
            )
            thread = threading.Thread(target=self._read, args=(resource, process), daemon=True)
            thread.start()
            self._processes.append(process)
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for thread in self._threads:
            thread.join(10)

    def _read(self, resource: str, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            at, event = time.time(), json.loads(line)
            self.events.append(Event(at, resource, event["type"], event["object"]))


@dataclass(frozen=True)
class Moments:
    """When what happened to one step of one iteration; of its pods the last one counts."""

    made: float
    pods: float
    placed: float
    running: float
    at_work: float
    inputs: float
    kept: float
    end_seen: float
    complete: float


def moments(events: list[Event], logs: Mapping[str, list[dict[str, Any]]]) -> dict[tuple[int, str], Moments]:
    """(iteration, kind of step) -> its moments. ``logs``: pod -> its lines. Steps that were tried twice
    are left out: they are another story."""
    found: dict[tuple[int, str], Moments] = {}
    made, complete = _jobs(events)
    for job, (key, at) in made.items():
        pods = [pod for pod in _pods(events).values() if pod["job"] == job]
        said = [_said(logs.get(pod["name"], ())) for pod in pods]
        if [other for other, _ in made.values()].count(key) > 1 or job not in complete or not pods:
            continue
        if not all({"started", "at work", "kept"} <= set(one) for one in said):
            continue
        found[key] = Moments(
            made=at,
            pods=max(pod["made"] for pod in pods),
            placed=max(pod["placed"] for pod in pods),
            running=max(one["started"] for one in said),
            at_work=max(one["at work"] for one in said),
            inputs=max(one.get("inputs", one["at work"]) for one in said),
            kept=max(one["kept"] for one in said),
            end_seen=max(pod["ended"] for pod in pods),
            complete=complete[job],
        )
    return found


def phases(steps: Mapping[tuple[int, str], Moments]) -> list[dict[str, dict[str, float]]]:
    """Of each iteration whose end of the one before is known: step -> phase -> seconds. They add up to the
    time from one finish's result to the next: what ran beside the step before counts as nothing."""
    rows = []
    for iteration in sorted({iteration for iteration, _ in steps}):
        chain = [steps.get((iteration - 1, "finish"))]
        chain += [steps.get((iteration, kind)) for kind in CHAIN]
        if any(one is None for one in chain):
            continue
        row: dict[str, dict[str, float]] = {}
        for kind, before, step in zip(CHAIN, chain, chain[1:], strict=False):
            if before is not None and step is not None:
                row[kind] = _spent(before, step)
        rows.append(row)
    return rows


def _spent(before: Moments, step: Moments) -> dict[str, float]:
    early = step.made < before.complete
    ends = (
        before.kept if early else before.end_seen,
        before.kept if early else before.complete,
        step.made,
        step.pods,
        step.placed,
        step.running,
        step.at_work,
        step.inputs,
        step.kept,
    )
    spent, since = {}, before.kept
    for (name, _), end in zip(PHASES, ends, strict=True):
        spent[name] = max(0.0, end - since)
        since = max(since, end)
    return spent


def reactions(events: list[Event], *, overlap: bool) -> list[float]:
    """Seconds from each change of a Job that asks for something to the next Job that is made or the next
    change of the run's status. It asks when it is complete, or, where one pod does it, when that pod runs no
    more, which is known a second or two before: nothing is left to be done then when the Job is complete.
    With overlap, map and reduce ask when all their pods are placed, and what comes after them is there when
    they end."""
    ordered = sorted(events, key=lambda event: event.at)
    acts = [event.at for event in ordered if _is_act(event)]
    seen: set[tuple[str, str]] = set()
    ran: set[str] = set()
    found = []
    for event in ordered:
        if event.resource != JOB or STEP not in event.body["metadata"].get("labels", {}):
            continue
        status, name = event.body.get("status", {}), event.body["metadata"]["name"]
        kind = event.body["metadata"]["labels"][STEP]
        placed = (status.get("ready") or 0) + (status.get("succeeded") or 0) >= event.body["spec"][
            "completions"
        ]
        waited_for = not overlap or kind not in CHAIN[:-1]
        ready = bool(status.get("ready"))
        ended = _is_complete(event.body) or (name in ran and not ready and kind != CHAIN[0])
        ran |= {name} if ready else set()
        asks = {"ended": waited_for and ended, "placed": not waited_for and placed}
        for what in (what for what, asked in asks.items() if asked and (name, what) not in seen):
            seen.add((name, what))
            after = next((at for at in acts if at > event.at), None)
            if after is not None:
                found.append(after - event.at)
    return found


def quantile(values: list[float], share: float) -> float:
    """The value that ``share`` of them do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def means(rows: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """step -> phase -> mean seconds over iterations."""
    return {
        kind: {name: statistics.mean(row[kind][name] for row in rows) for name, _ in PHASES}
        for kind in rows[0]
    }


def _is_act(event: Event) -> bool:
    return (event.resource == JOB and event.kind == "ADDED") or (
        event.resource == RUN and event.kind == "MODIFIED"
    )


def _is_complete(job: Mapping[str, Any]) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)


def _jobs(events: list[Event]) -> tuple[dict[str, tuple[tuple[int, str], float]], dict[str, float]]:
    """Job -> ((iteration, kind), when it was made), and when it was complete."""
    made: dict[str, tuple[tuple[int, str], float]] = {}
    complete: dict[str, float] = {}
    for event in (event for event in events if event.resource == JOB):
        meta = event.body["metadata"]
        labels = meta.get("labels", {})
        if STEP not in labels:
            continue
        key = (int(labels[ITERATION]), labels[STEP])
        made.setdefault(meta["name"], (key, event.at))
        if _is_complete(event.body):
            complete.setdefault(meta["name"], event.at)
    return made, complete


def _pods(events: list[Event]) -> dict[str, dict[str, Any]]:
    pods: dict[str, dict[str, Any]] = {}
    for event in (event for event in events if event.resource == POD):
        meta = event.body["metadata"]
        job = meta.get("labels", {}).get("batch.kubernetes.io/job-name", "")
        pod = pods.setdefault(meta["name"], {"name": meta["name"], "job": job, "made": event.at})
        if event.body["spec"].get("nodeName"):
            pod.setdefault("placed", event.at)
        if event.body["status"].get("phase") in ("Succeeded", "Failed"):
            pod.setdefault("ended", event.at)
    return {name: pod for name, pod in pods.items() if {"placed", "ended"} <= set(pod)}


def _said(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """A pod's own moments."""
    marks = {"at work": "at work", "the inputs are there": "inputs", "the result is kept": "kept"}
    said: dict[str, float] = {}
    for line in lines:
        at = datetime.fromisoformat(str(line["time"])).timestamp()
        if (mark := marks.get(str(line["message"]))) is not None:
            said.setdefault(mark, at)
        if "startedSeconds" in line:
            said.setdefault("started", at - float(line["startedSeconds"]))
    return said
