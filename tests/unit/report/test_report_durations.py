"""Quantiles of how long calls and steps took, by kind of step."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import result

from combee.report import figures
from combee.report.build import build_report, build_strategist
from combee.report.durations import durations, step_seconds, table
from combee.report.result import StepRecord, read_result, to_bytes

SECONDS = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "figures", lambda _: {})


@given(SECONDS)
def test_a_quantile_is_a_value_with_its_share_at_or_below_it(seconds: list[float]) -> None:
    (one,) = durations({"map": seconds}, {})
    assert one.calls is not None and one.steps is None
    for share, value in ((0.5, one.calls.p50), (0.95, one.calls.p95), (0.99, one.calls.p99)):
        assert value in [round(each, 6) for each in seconds]
        assert sum(round(each, 6) <= value for each in seconds) >= share * len(seconds) - 1e-6
    assert one.calls.p50 <= one.calls.p95 <= one.calls.p99 <= round(max(seconds), 6)


def test_kinds_come_in_the_order_of_a_run_and_steps_are_those_of_iterations_and_around_them() -> None:
    made = result()
    steps = step_seconds(made.iterations, {"evaluate": StepRecord(wall_seconds=3.0, scheduled_seconds=2.0)})
    got = durations({"finish": [1.0], "profile": [0.5]}, steps)
    assert [one.step for one in got] == ["profile", "map", "reduce", "finish", "evaluate"]
    by_step = {one.step: one for one in got}
    assert by_step["map"].calls is None and by_step["profile"].steps is None
    assert by_step["map"].steps is not None and by_step["map"].steps.n == len(made.iterations)
    assert by_step["evaluate"].steps is not None and by_step["evaluate"].steps.p95 == 3.0


def test_they_are_in_both_reports_and_not_shown_where_an_older_version_left_none() -> None:
    old = json.loads(to_bytes(result()))
    del old["durations"]
    made = read_result(json.dumps(old).encode())
    assert table(made).rows == () and table(made).missing == "not shown"
    cost = build_strategist(made).markdown.partition("## 9.")[2].partition("## 10.")[0]
    assert "How long calls and steps took" in cost and "not shown" in cost
    measured = made.model_copy(update={"durations": durations({"map": [0.25, 4.5]}, {"map": [9.0]})})
    assert table(measured).rows == (("map", "2", "0.25 s", "4.5 s", "4.5 s", "1", "9.0 s", "9.0 s", "9.0 s"),)
    assert "| map | 2 | 0.25 s |" in build_strategist(measured).markdown
    assert "How long calls and steps took" in build_report(measured, lessons_markdown="").html
