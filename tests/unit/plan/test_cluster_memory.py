"""Memory in a status: it comes back as it went, stays small, and what is not one is refused in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from cluster_bench import LEARNING, STOPPED, memory, placed, plan, run_of, seen, step
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.budget import Spend
from combee.api.status import RunStatus
from combee.errors import BugError, CombeeError
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.memory import Gate, IterationNote, Memory, Served, Start
from combee.plan.cluster.status import About, run_status
from combee.plan.observed import Observed
from combee.plan.state import MAX_OBSERVATIONS, Best, DataFacts, RunState
from combee.plan.types import Outcome, RoleUsage

DIGEST = "f" * 64
NOTE = IterationNote(
    999, 9, 1000, "x" * 300, 12345.678901, 123456, 123456789, 123456, DIGEST, 0.123456, 0.123456
)
LARGE = memory(
    replace(
        LEARNING,
        facts=replace(LEARNING.facts, digests=dict.fromkeys(("train", "heldOut", "test"), DIGEST)),
        iteration=999,
        artifact=DIGEST,
        usage=dict.fromkeys(("task", "proposer", "evaluator", "embedder"), RoleUsage(*[123456789] * 5)),
        waves=((1000, 1234.567891),) * 12,
        observations=(Observed(1000, 12345.678901, "a" * 12, *[12345678] * 6),) * MAX_OBSERVATIONS,
    ),
    notes=(NOTE,) * 20,
    attempts={f"{step('reduce', k)}-of-a-name-of-thirty": 12 for k in range(12)},
    in_turn=tuple(f"{step('reduce', k)}-of-a-name-of-thirty" for k in range(12)),
    engines_since={"main": 1e9 + 0.123456, "judge": 1e9 + 0.123456},
    gate=Gate(0.5, 0.7, 0.1, 0.3, 20, 6),
    images={"worker": "r" * 200, "vllm": "r" * 200},
)


def written(known: Memory) -> Any:
    return json.loads(json.dumps(known.to_status(), allow_nan=False))


@pytest.mark.parametrize(
    "known", [Memory(), memory(LEARNING), memory(STOPPED), LARGE], ids=["new", "learning", "stopped", "large"]
)
def test_a_memory_comes_back_as_it_went(known: Memory) -> None:
    assert Memory.from_status(written(known)) == known
    assert written(Memory.from_status(written(known))) == written(known)


def test_the_largest_memory_stays_well_under_32_kib() -> None:
    assert len(json.dumps(written(LARGE))) < 24 * 1024


@pytest.mark.parametrize("raw", [None, {}])
def test_no_status_is_a_fresh_memory(raw: dict[str, Any] | None) -> None:
    assert Memory.from_status(raw) == Memory()


def test_a_memory_of_a_version_that_knew_less_and_one_that_knew_more_are_read() -> None:
    raw = written(memory(LEARNING))
    for new in ("failures", "lost", "error", "images"):
        del raw[new]
    raw["run"]["observations"] = [{"batch_size": 5, "seconds": 2.0}, [10, 3.0], [20, 4.0, *[""] * 1]]
    got = Memory.from_status({**raw, "version": 0, "later": 1})
    assert got.run.observations == (Observed(5, 2.0), Observed(10, 3.0), Observed(20, 4.0))
    assert (got.failures, got.lost, got.error) == ({}, {}, "")


BEFORE = {
    Memory: "run started ended active_since active_seconds attempts failures lost in_turn unplaced_since "
    "idle_since engines_since engine_users gpu_seconds halfway_since let_go_until let_goes "
    "stopped baseline notes gate test record published error start images services nodes version",
    RunState: "phase facts iteration epoch offset examples_done evaluated_at artifact baseline_select "
    "last_select best evaluations_since_best spend usage waves wave_engine observations "
    "per_example profile_seconds scored_seconds iteration_seconds token_factor load "
    "load_iterations repeating repeating_examples edit_weights diagnosis calibration stop outcome",
    DataFacts: "train_rows select_rows gate_rows test_rows digests gate_clusters",
    Best: "artifact select iteration findings tokens",
    Gate: "baseline best low high rows discordant",
    Outcome: "name reason",
    IterationNote: "iteration epoch batch_size batch_reason seconds calls tokens rollouts artifact train "
    "select",
    Spend: "rollouts tokens gpu_seconds wall_clock_seconds money",
    RoleUsage: "calls hits prompt_tokens completion_tokens cached_tokens lost_tokens",
    Start: "digest config_map",
    Served: "url model",
}
"""What the version before (761c1caa) reads."""


@pytest.mark.parametrize("of", BEFORE)
def test_the_version_before_finds_what_it_reads_under_its_names(of: Any) -> None:
    assert set(BEFORE[of].split()) <= {field.name for field in fields(of)}


def test_of_a_status_only_the_memory_has_names_of_its_own() -> None:
    about = About(run_of().spec, 1, "d", "i", "a", lambda at: "2026-01-01T00:00:00Z" if at else "")
    status = run_status(about, RunStatus(), ClusterPlan(LARGE), seen(placed("map"))).dump()
    state = status.pop("state")
    assert "active_since" in state and [name for name in _names(status) if "_" in name] == []


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(inner)


WRONG = [
    ("words", "status.state"),
    (["list"], "status.state"),
    (7, "status.state"),
    ({"run": 7}, "run"),
    ({"run": {"iteration": "three"}}, "run.iteration"),
    ({"run": {"iteration": -1}}, "run.iteration"),
    ({"run": {"iteration": 10**30}}, "run.iteration"),
    ({"run": {"phase": "Dreaming"}}, "run.phase"),
    ({"run": {"phase": "Learning"}}, "Learning without what profile found"),
    ({"run": {"observations": [7]}}, "run.observations.0"),
    ({"run": {"observations": [[]]}}, "run.observations.0"),
    ({"run": {"observations": "none"}}, "run.observations"),
    ({"run": {"phase": "Complete"}}, "Complete without an outcome"),
    (
        {**memory(STOPPED).to_status(), "run": {**memory(STOPPED).to_status()["run"], "stop": None}},
        "Evaluating",
    ),
    ({"ended": 5.0}, "ended without an outcome"),
    ({"started": "nan"}, "a time is not a number"),
    ({"engines_since": {"main": "inf"}}, "a time is not a number"),
    ({"attempts": {"x": -1}}, "attempts"),
    ({"attempts": {"x": 10**9}}, "attempts"),
    ({"attempts": ["x"]}, "attempts"),
    ({"version": 2}, "version 2"),
    ({"version": -1}, "version -1"),
    ({"gate": {"baseline": 1}}, "gate.best"),
    ({"notes": [None]}, "notes.0"),
]


@pytest.mark.parametrize(("raw", "said"), WRONG, ids=range(len(WRONG)))
def test_what_is_no_memory_is_refused_in_words(raw: Any, said: str) -> None:
    with pytest.raises(BugError, match="the state in the status cannot be read") as caught:
        Memory.from_status(raw)
    assert said in str(caught.value)
    assert "delete the run and apply it again" in caught.value.fix


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


def paths(raw: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    return [at, *(path for key, value in pairs for path in paths(value, (*at, key)))]


def put(raw: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = raw.copy()
    copy[path[0]] = put(raw[path[0]], path[1:], value)
    return copy


GOOD = [
    written(replace(one, notes=one.notes[:2], run=replace(one.run, observations=one.run.observations[:2])))
    for one in (Memory(), memory(LEARNING), memory(STOPPED), LARGE)
] + [written(memory(replace(STOPPED, phase="Publishing", outcome=Outcome("Learned", "x"))))]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_part_may_be_anything_and_nothing_but_our_own_errors_come_of_it(data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(GOOD))
    raw = put(good, data.draw(st.sampled_from(paths(good))), data.draw(anything))
    try:
        known = Memory.from_status(raw)
        got = decide_cluster(run_of(), known, seen(placed("map"), plans={0: plan()}))
    except CombeeError:
        return
    assert isinstance(got, ClusterPlan)
