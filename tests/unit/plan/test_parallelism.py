"""The shape of a run's parallelism: what it follows from, where it is told, what speaks against others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import FACTS, LEARNING, memory, seen, spec_of, summary
from cluster_bench import plan as plan_of

from combee.algo.parallelism import SHAPES, Load
from combee.api.status import Parallelism, RunStatus
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.status import About, run_status
from combee.plan.observed import Observed
from combee.plan.parallelism import parallelism_of
from combee.plan.preview import DataShape, preview
from combee.plan.state import DataFacts, RunState, after_iteration
from combee.report.shape import lines

SLOW = {"wall": 9.0, "modelled": 10.0, "busy": 200.0, "path": 8.0}
"""20 calls in flight."""


def learned(iterations: int = 1, **seconds: float) -> RunState:
    """A run after iterations whose calls took this long."""
    state = LEARNING
    for number in range(iterations):
        state = after_iteration(state, plan_of(number), summary("finish", number, seconds=SLOW | seconds))
    return state


def shape(state: RunState, **changes: Any) -> Parallelism:
    """The shape of a run at 64 calls at once."""
    made = parallelism_of(spec_of(**{"workers": {"concurrency": 64}, **changes}), state)
    assert made is not None
    return made


def test_iterations_are_measured_as_one_load() -> None:
    assert learned(3).load == Load(600.0, 24.0, 30.0) and learned(3).load_iterations == 3
    made = shape(learned(3))
    assert (made.name, made.iterations, made.slots) == ("Hybrid", 3, 64)
    assert (made.utilisation, made.speed_up, made.ceiling, made.beside) == (0.3125, 20.0, 25.0, 3.2)
    assert "31 % of 64 slots busy (measured over 3 iterations), under 50 %" in made.reason
    assert "each with a heldOut of its own" in made.advice


@pytest.mark.parametrize(
    ("busy", "rows", "name"),
    [
        (320.0, 100, "Candidate"),
        (319.0, 100, "Hybrid"),
        (319.0, 20, "Task"),
        (320.0, 20, "Candidate"),
    ],
)
def test_the_shape_follows_from_what_was_measured_and_from_the_rows(
    busy: float, rows: int, name: str
) -> None:
    state = replace(learned(busy=busy), facts=replace(FACTS, train_rows=rows))
    made = shape(state)
    assert made.name == name and bool(made.advice) == (name != "Candidate")
    assert set(made.rejected) == set(SHAPES) - {name} and all(made.rejected.values())


def test_serial_learning_has_one_example_at_once_however_many_rows() -> None:
    made = shape(learned(busy=12.0), aggregation={"strategy": "Sequential"}, batching={"mode": "Dynamic"})
    assert made.name == "Task" and "1 example at once at most" in made.reason


def test_a_server_that_takes_fewer_calls_is_full_earlier() -> None:
    engine = {"name": "main", "vllm": {"model": "m", "args": ["--max-num-seqs=24"]}}
    ref = {"engineRef": {"name": "main"}}
    made = shape(learned(), engines=[engine], models={"task": ref, "proposer": ref})
    assert (made.name, made.slots, made.utilisation) == ("Candidate", 24, round(20 / 24, 4))
    assert any("--max-num-seqs of engine main" in one for one in made.invalidated_by)


def test_before_anything_is_measured_it_is_expected_and_says_so() -> None:
    made = shape(LEARNING)
    assert made.iterations == 0 and "expected of 40 examples at the pace of calls of an H200" in made.reason
    assert "this run's own calls, which are not measured yet" in made.invalidated_by
    assert 0 < made.utilisation < shape(LEARNING, workers={"concurrency": 16}).utilisation <= 1
    assert parallelism_of(spec_of(), RunState()) is None
    measured = shape(learned())
    assert "this run's own calls, which are not measured yet" not in measured.invalidated_by


def test_iterations_of_an_earlier_version_say_nothing() -> None:
    old = after_iteration(LEARNING, plan_of(), summary("finish"))
    assert old.load_iterations == 0 and shape(old).iterations == 0
    raw = json.loads(json.dumps(memory(learned()).to_status()))
    del raw["run"]["load"], raw["run"]["load_iterations"]
    assert Memory.from_status(raw).run.load == Load()
    assert Memory.from_status(memory(learned()).to_status()).run.load == learned().load


def test_times_as_short_as_this_client_needs_itself_are_no_measure() -> None:
    quick = replace(learned(), observations=(Observed(40, 0.2, calls=100),))
    assert shape(quick).iterations == 0


def test_a_preview_says_what_is_expected_without_heldout_too() -> None:
    shown = preview(spec_of(), DataShape(DataFacts(100, 0, 0, 0, {}), 300.0)).shape
    assert shown is not None and shown.iterations == 0
    assert preview(spec_of(), DataShape(DataFacts(0, 0, 0, 0, {}), 300.0)).shape is None


def test_the_status_tells_it_and_an_earlier_status_is_read() -> None:
    about = About(spec_of(workers={"concurrency": 64}), 1, "m", "image", "algorithm", str)
    status = run_status(about, RunStatus(), ClusterPlan(memory(learned())), seen())
    assert status.shape is not None and status.shape.name == "Hybrid"
    told = json.loads(json.dumps(status.dump()))["shape"]
    assert (told["utilisation"], told["ceiling"], told["beside"]) == (0.3125, 25.0, 3.2)
    assert len(json.dumps(told)) < 2_000
    assert RunStatus.model_validate({"phase": "Learning"}).shape is None
    assert run_status(about, RunStatus(), ClusterPlan(memory()), seen()).shape is None


def test_what_is_printed_has_every_part_of_the_brief() -> None:
    told = dict(lines(shape(learned())))
    assert list(told) == [
        "shape",
        "rejected: Candidate",
        "rejected: Task",
        "ceiling",
        "what would invalidate it",
    ]
    assert told["ceiling"].startswith("20.0 times as fast as its calls one after the other on 64 slots")
