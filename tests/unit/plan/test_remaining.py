"""How long a run is said to take still."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.budget import Spend
from combee.api.run import RunSpec
from combee.assembly.manifest import read_run
from combee.plan.remaining import seconds_left
from combee.plan.state import DataFacts, RunState
from combee.plan.types import Outcome, RoleUsage

SPEC: RunSpec = read_run(Path(__file__).parents[3] / "examples" / "formula.yaml").spec
FACTS = DataFacts(train_rows=500, select_rows=150, gate_rows=150, test_rows=0, digests={})
PROFILED = RunState(
    "Learning", FACTS, spend=Spend(wall_clock_seconds=10), usage={"task": RoleUsage(150, 0, 0, 6000)}
)
HALF = replace(PROFILED, iteration=1, examples_done=250, spend=Spend(wall_clock_seconds=60))
"""250 examples took 50 seconds after a profile of 10."""
CLOSING = 2 * 10


def left(state: RunState, *, size: int = 250, begun: float = 0.0, profile: float = 10.0) -> float | None:
    return seconds_left(SPEC, replace(state, profile_seconds=profile), size, begun_seconds=begun)


@pytest.mark.parametrize(
    ("size", "begun", "expected"),
    [
        (250, 0, 50 + CLOSING),
        (250, 30, 20 + CLOSING),
        (50, 0, 50 + CLOSING),
        (50, 4, 46 + CLOSING),
        (50, 40, 40 + CLOSING),  # longer than an iteration of 50 takes: the later ones are still to come
    ],
)
def test_the_pace_of_finished_iterations_goes_on_and_gate_follows(
    size: int, begun: float, expected: float
) -> None:
    assert left(HALF, size=size, begun=begun) == pytest.approx(expected)


@pytest.mark.parametrize("begun", [0.0, 10.0, 49.0, 50.0, 90.0])
def test_it_never_grows_while_the_last_iteration_goes_on(begun: float) -> None:
    sooner, later = left(HALF, begun=begun), left(HALF, begun=begun + 5)
    assert later is None or (sooner is not None and later < sooner)


def test_a_last_iteration_that_takes_longer_than_expected_is_said_nothing_of() -> None:
    assert left(HALF, begun=51) is None


def test_the_first_iteration_is_expected_from_what_profile_took() -> None:
    once, twice = left(PROFILED), left(replace(PROFILED, spend=Spend(wall_clock_seconds=20)), profile=20)
    assert once is not None and twice == pytest.approx(2 * once)
    # 250 examples answer, reflect and are aggregated, and select is scored: more than 150 answers take.
    assert once > 2 * 10 * 250 / 150 + CLOSING


def test_the_closing_look_at_gate_counts_down() -> None:
    closing = replace(HALF, phase="Evaluating")
    assert (left(closing), left(closing, begun=15), left(closing, begun=21)) == (CLOSING, 5, None)


def test_nothing_is_said_before_anything_was_measured_and_after_the_end() -> None:
    assert left(RunState()) is None
    assert left(replace(PROFILED, spend=Spend()), profile=0) is None
    assert left(replace(HALF, outcome=Outcome("Failed", "x"))) is None
    assert left(HALF, size=0) is None


@given(
    st.sampled_from([PROFILED, HALF, replace(HALF, phase="Evaluating")]),
    st.integers(0, 600),
    st.floats(0, 1e6),
    st.floats(0, 60),
)
def test_it_is_never_negative(state: RunState, size: int, begun: float, profile: float) -> None:
    said = left(state, size=size, begun=begun, profile=profile)
    assert said is None or said > 0
