"""Where an iteration's time goes: from watch events and pods' lines to phases that add up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest


def job(name: str, kind: str, iteration: int, **status: Any) -> dict[str, Any]:
    labels = {"combee.dev/step": kind, "combee.dev/iteration": str(iteration)}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"completions": 1}, "status": status}


def pod(name: str, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": name}
    return {
        "metadata": {"name": f"{name}-0", "labels": labels},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def line(at: float, message: str, **more: Any) -> dict[str, Any]:
    return {"time": datetime.fromtimestamp(at, UTC).isoformat(), "message": message, **more}


COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


def step(kind: str, iteration: int, begun: float, *, inputs: float = 0.0) -> tuple[list[Any], dict[str, Any]]:
    """A step made at ``begun``: pod after 1 s, node 2, program 4, at work 7, result 3 s after its inputs, end
    seen 2 s later, complete 1 s after that."""
    from bench.timeline import Event

    name = f"i{iteration}-{kind}"
    ready = max(begun + 7, inputs)
    events = [
        Event(begun, "jobs", "ADDED", job(name, kind, iteration)),
        Event(begun + 1, "pods", "ADDED", pod(name)),
        Event(begun + 2, "pods", "MODIFIED", pod(name, "node1")),
        Event(begun + 5, "jobs", "MODIFIED", job(name, kind, iteration, ready=1)),
        Event(ready + 5, "pods", "MODIFIED", pod(name, "node1", "Succeeded")),
        Event(ready + 6, "jobs", "MODIFIED", job(name, kind, iteration, **COMPLETE)),
    ]
    lines = [
        line(begun + 7, "at work", startedSeconds=3.0),
        line(ready, "the inputs are there"),
        line(ready + 3, "the result is kept"),
    ]
    return events, {f"{name}-0": lines}


def watched(*steps: tuple[list[Any], dict[str, Any]]) -> tuple[list[Any], dict[str, Any]]:
    events = sorted((event for found, _ in steps for event in found), key=lambda event: event.at)
    return events, {name: lines for _, logs in steps for name, lines in logs.items()}


def test_steps_in_series_pay_for_every_phase() -> None:
    from bench import timeline

    # Each is made .5 s after the one before is complete, 13 s after it was made.
    begun = [100.0, 113.5, 127.0, 140.5]
    kinds = [("finish", 0), ("map", 1), ("reduce", 1), ("finish", 1)]
    steps = [step(kind, iteration, at) for at, (kind, iteration) in zip(begun, kinds, strict=True)]
    events, logs = watched(*steps)
    (row,) = timeline.phases(timeline.moments(events, logs))
    spent = {
        "end seen": 2.0,
        "job complete": 1.0,
        "operator": 0.5,
        "pod made": 1.0,
        "pod placed": 1.0,
        "container": 2.0,
        "start-up": 3.0,
        "inputs": 0.0,
        "work": 3.0,
    }
    assert row == {kind: pytest.approx(spent) for kind in ("map", "reduce", "finish")}
    assert sum(sum(one.values()) for one in row.values()) == pytest.approx(begun[3] - begun[0])
    assert timeline.reactions(events, overlap=False) == pytest.approx([0.5, 0.5, 0.5])


def test_what_was_placed_early_costs_only_what_it_is_late_by() -> None:
    from bench import timeline

    first = step("finish", 0, 100.0)
    mapped = step("map", 1, 113.5)  # its result is kept at 123.5
    reduced = step(
        "reduce", 1, 119.0, inputs=123.7
    )  # at work at 126: 2.5 s after the map's result; kept at 129
    finished = step("finish", 1, 120.0, inputs=129.25)
    events, logs = watched(first, mapped, reduced, finished)
    (row,) = timeline.phases(timeline.moments(events, logs))
    assert sum(row["map"].values()) == pytest.approx(13.5)
    assert {name: seconds for name, seconds in row["reduce"].items() if seconds > 1e-6} == pytest.approx(
        {"start-up": 2.5, "work": 3.0}
    )
    assert {name: seconds for name, seconds in row["finish"].items() if seconds > 1e-6} == pytest.approx(
        {"inputs": 0.25, "work": 3.0}
    )


def test_with_overlap_it_is_being_placed_that_asks_for_the_next_job() -> None:
    from bench import timeline

    events, _ = watched(step("map", 1, 100.0), step("reduce", 1, 105.25))
    assert timeline.reactions(events, overlap=True) == pytest.approx([0.25])


def test_of_a_step_of_one_pod_it_is_the_pods_end_that_asks() -> None:
    """The Job is complete later, and what happens next has another cause."""
    from bench import timeline

    name = "i1-reduce"
    rest = timeline.Event(112.0, "jobs", "MODIFIED", job(name, "reduce", 1, active=1, ready=0))
    begun = timeline.Event(100.0, "jobs", "MODIFIED", job(name, "reduce", 1, active=1, ready=0))
    events, _ = watched(step("reduce", 1, 100.0), step("finish", 1, 112.25), ([begun, rest], {}))
    assert timeline.reactions(events, overlap=False) == pytest.approx([0.25])


def test_a_step_that_was_tried_twice_is_left_out() -> None:
    from bench import timeline

    events, logs = watched(step("map", 1, 100.0), step("reduce", 1, 120.0))
    again = [
        timeline.Event(e.at, e.resource, e.kind, {**e.body, "metadata": {**e.body["metadata"]}})
        for e in events
    ]
    for event in again[:6]:
        event.body["metadata"]["name"] += "-again"
    assert set(timeline.moments(events, logs)) == {(1, "map"), (1, "reduce")}
    assert set(timeline.moments([*events, *again], logs)) == {(1, "reduce")}


def test_quantiles() -> None:
    from bench.timeline import quantile

    assert (quantile([3.0, 1.0, 2.0], 0.5), quantile([3.0, 1.0, 2.0], 0.99), quantile([1.0], 0.5)) == (
        2.0,
        3.0,
        1.0,
    )


def test_without_a_cluster_the_row_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bench.cluster import cluster
    from bench.core import BY_NAME_ONLY

    assert "cluster" not in BY_NAME_ONLY
    monkeypatch.delenv("KUBECONFIG", raising=False)
    row = cluster(tmp_path)
    assert (row.figure, row.met) == (None, None)
    assert row.how.startswith("not run: no cluster") and "make -s cluster-env" in row.how
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cluster(tmp_path).how == "not run: kubectl is not on PATH"
