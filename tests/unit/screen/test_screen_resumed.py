"""What a session says of iterations that an earlier one began or finished."""

from __future__ import annotations

import io
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from test_screen import PLAN

from combee.algo.budget import Limits, Spend
from combee.algo.convergence import Reading, Verdict
from combee.assembly.guard import BudgetGuard
from combee.assembly.manifest import read_run
from combee.cli.screen import Screen
from combee.local.meter import Meter
from combee.plan.diagnosis import Diagnosis
from combee.plan.state import DataFacts, RunState

EXAMPLE = Path(__file__).parents[3] / "examples" / "formula.yaml"
PLANS = {k: replace(PLAN, iteration=k, batch_size=50 + k, batch_reason=f"reason {k}") for k in range(3)}


@pytest.fixture
def meter() -> tuple[Meter, io.StringIO]:
    spec = read_run(EXAMPLE).spec
    said = io.StringIO()
    guard = BudgetGuard.of(spec, lambda: 0.0)
    facts = DataFacts(train_rows=500, select_rows=150, gate_rows=150, test_rows=0, digests={})
    return Meter("formula-ace", spec, facts, Screen("plain", stream=said), guard), said


def test_the_primary_limit_comes_first(meter: tuple[Meter, io.StringIO]) -> None:
    it, _ = meter
    it.guard.limits = Limits(rollouts=4000, tokens=1_000_000, money=2.5, primary="money")
    assert it.screen_state().budget == "money 0.0/2.5, rollouts 0/4,000, tokens 0/1,000,000"


@pytest.mark.parametrize(("verdict", "lines"), [("Inconclusive", 1), ("Rising", 0)])
def test_a_diagnosis_that_is_inconclusive_is_said_once(
    meter: tuple[Meter, io.StringIO], verdict: Verdict, lines: int
) -> None:
    it, said = meter
    reading = Reading(verdict, 100, 0.6, 0.62, 0.5, 0.7, -0.05)
    before, after = RunState(), RunState(phase="Learning", diagnosis=Diagnosis(reading, 56))
    for states in ((before, after), (after, after)):
        it.moved(*states, {})
    assert len(said.getvalue().splitlines()) == lines
    assert ("not shown to be unable to" in said.getvalue()) == bool(lines)


def test_iterations_of_an_earlier_session_have_their_numbers_and_sizes(
    meter: tuple[Meter, io.StringIO],
) -> None:
    it, said = meter
    states = [RunState(phase="Learning", iteration=k, examples_done=50 * k) for k in range(3)]
    for before, after in itertools.pairwise(states):
        it.moved(before, after, PLANS)
    lines = said.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "iteration 1: 50 examples: reason 0",
        "iteration 1 done: batch 50",
        "iteration 2: 51 examples: reason 1",
        "iteration 2 done: batch 51",
        "iteration 3: 52 examples: reason 2",
    ]


def test_an_iteration_of_an_earlier_session_is_told_with_what_was_spent_until_its_end(
    meter: tuple[Meter, io.StringIO],
) -> None:
    it, said = meter
    it.guard.elapsed_seconds = lambda: 600.0
    it.guard.start_step(Spend(rollouts=900, tokens=9_000_000))  # the next iteration was begun, too
    before, after = (RunState(phase="Learning", iteration=k, examples_done=50 * k) for k in range(2))
    after = replace(after, spend=Spend(rollouts=200, tokens=751_000, wall_clock_seconds=15.0))
    it.moved(before, after, PLANS)
    assert "751 k tokens in 15 s so far" in said.getvalue()


def test_an_example_that_was_reflected_on_stays_counted_through_the_iteration(
    meter: tuple[Meter, io.StringIO],
) -> None:
    it, _ = meter
    before, after = (RunState(phase="Learning", iteration=k, examples_done=52 * k) for k in range(2))
    it.planned(PLANS[2], before)
    shown = []
    for stage, units in (("map", 31), ("merge", 0), ("replay round 1", 5), ("select", 150)):
        it.begin(stage, 150)
        it.advance(units)
        shown.append(it.screen_state().examples_done)
    it.moved(before, replace(after, phase="Evaluating"), {})
    it.begin("gate best", 150)
    assert [*shown, it.screen_state().examples_done] == [31, 52, 52, 52, 52]


def test_an_iteration_that_was_begun_is_told_of_once(meter: tuple[Meter, io.StringIO]) -> None:
    it, said = meter
    state = RunState(phase="Learning")
    it.planned(PLANS[0], state)
    for _ in range(3):
        it.moved(state, state, PLANS)
    assert said.getvalue().count("iteration 1: 50 examples") == 1
    assert it.screen_state().iteration == 1


def test_time_goes_on_from_where_the_last_session_ended(meter: tuple[Meter, io.StringIO]) -> None:
    it, _ = meter
    it.guard.elapsed_seconds = lambda: 600.0
    assert it.screen_state().elapsed_seconds >= 600


def test_a_run_that_stopped_early_expects_no_more_iterations_and_says_no_time_for_them(
    meter: tuple[Meter, io.StringIO],
) -> None:
    it, _ = meter
    before = RunState("Learning", it.facts, 2, examples_done=100, spend=Spend(wall_clock_seconds=60))
    it.planned(PLANS[2], before)
    it.guard.elapsed_seconds = lambda: 60.0
    assert it.screen_state().iterations_expected == 10 and it.screen_state().eta_seconds is not None
    it.moved(before, replace(before, phase="Evaluating", iteration=3, examples_done=152), PLANS)
    closing = it.screen_state()
    assert (closing.iteration, closing.iterations_expected, closing.eta_seconds) == (3, 3, None)
