"""Quantiles of how long calls and steps took, by kind of step."""

from __future__ import annotations

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import result

from combee.plan.types import StepSummary
from combee.report import figures
from combee.report.build import build_report, build_strategist
from combee.report.durations import durations, step_seconds, table, task_tokens
from combee.report.result import Result, StepRecord, read_result, to_bytes

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


def test_how_long_the_task_models_calls_were_stands_in_section_one() -> None:
    def row(role: str, prompt: int, completion: int) -> bytes:
        return json.dumps([role, "rollout", 0, 1.0, prompt, completion, 0, False, 1]).encode() + b"\n"

    summary = cast(StepSummary, None)
    shards = [row("task", 900 + n, 10 * n) for n in range(1, 21)]
    tokens = task_tokens([(summary, [b"".join(shards), row("proposer", 9999, 9999)]), (summary, [])])
    assert tokens is not None and tokens.prompt.n == 20
    assert (tokens.prompt.p50, tokens.prompt.p95, tokens.completion.p95) == (910.0, 919.0, 190.0)
    assert task_tokens([(summary, [row("proposer", 1, 1)])]) is None

    def shape(made: Result) -> str:
        return build_strategist(made).markdown.partition("input and output shape")[2].partition("\n")[0]

    assert "not shown" in shape(result())
    told = shape(read_result(to_bytes(result().model_copy(update={"task_tokens": tokens}))))
    assert "910 tokens in the median, 919 at p95; its answer 100 tokens in the median, 190 at p95" in told
    assert "20 calls of the task model" in told
