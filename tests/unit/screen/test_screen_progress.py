"""The pure half of the screen: never a crash, never a negative time, one line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.report.progress import ProgressState, bar, clock, progress, rows, sparkline

STATE = ProgressState(
    run="formula-ace",
    phase="Learning",
    iteration=3,
    iterations_expected=6,
    batch_size=84,
    batch_reason="further growth would save under 45 % of the time",
    stage="map",
    stage_done=31,
    stage_total=84,
    examples_done=212,
    examples_total=500,
    calls_done=412,
    calls_hit=40,
    calls_in_flight=64,
    calls_retrying=2,
    tokens=1_240_000,
    rollouts=312,
    heldout_baseline=0.64,
    heldout_best=0.861,
    heldout_last=0.855,
    heldout_history=(0.64, 0.7, 0.861, 0.855),
    elapsed_seconds=134,
    eta_seconds=181,
    budget="rollouts 312/4,000",
    simulated=True,
)
NUMBERS = st.none() | st.floats() | st.integers(-5, 10**9)


def test_a_full_line():
    assert progress(STATE).text == (
        "[2:14] iteration 3 of about 6 · map 31/84 · batch 84 · examples 212/500 · 412 calls (40 from "
        "memory), "
        "64 in flight, 2 retrying · 1.24 M tokens · held-out 0.640 start, 0.861 best, 0.855 last "
        "(simulated model) "
        "· about 3 min 01 s left"
    )


def test_an_empty_line():
    assert progress(ProgressState(run="x", phase="Profiling")).text == "[0:00] Profiling"


def test_rows_keep_their_labels():
    labels = ["batch", "examples", "calls", "tokens", "held-out"]
    assert [label for label, _ in rows(STATE)] == labels
    assert [label for label, _ in rows(ProgressState(run="x", phase="Profiling"))] == labels
    assert dict(rows(STATE, ascii_only=True))["examples"] == "########............ 212 of 500"
    assert dict(rows(STATE))["held-out"].endswith("(simulated model) ▁▃██")


@pytest.mark.parametrize(
    ("change", "worth_saying"),
    [
        ({"tokens": 2_000_000, "calls_done": 500, "elapsed_seconds": 140, "stage_done": 40}, False),
        ({"stage": "verify"}, True),
        ({"iteration": 4}, True),
        ({"heldout_last": 0.87}, True),
        ({"calls_retrying": 0}, True),
        ({"batch_size": 50}, True),
    ],
)
def test_the_key_changes_when_something_is_worth_saying(change, worth_saying):
    assert (progress(replace(STATE, **change)).key != progress(STATE).key) == worth_saying


@given(st.lists(st.floats()), st.booleans())
def test_sparkline_is_short_and_never_crashes(values, ascii_only):
    made = sparkline(values, ascii_only=ascii_only)
    assert len(made) <= 24 and (made.isascii() or not ascii_only)


@given(st.integers(-5, 1000), st.integers(-5, 1000))
def test_bar_has_its_width(done, total):
    if total > 0:
        assert len(bar(done, total).split(" ")[0]) == 20


@given(st.floats())
def test_clock_never_crashes(seconds):
    assert ":" in clock(seconds)


@given(st.text(), st.text(), st.integers(-3, 10), NUMBERS, NUMBERS)
def test_any_state_makes_one_line(run, stage, number, elapsed, score):
    state = ProgressState(
        run=run, phase=stage, stage=stage, iteration=number, elapsed_seconds=elapsed or 0, heldout_last=score
    )
    assert len(progress(state).text.splitlines()) == 1
    assert all("\n" not in value for _, value in rows(state))
