"""What the clocks showed is recorded with each decision, and decides the same again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_bench import done, memory, plan, run_of, seen, summary
from hypothesis import given
from hypothesis import strategies as st
from test_decide import LEARNING
from test_money import USAGE, spec

from combee.algo.budget import Spend
from combee.errors import UserError
from combee.plan.cluster.decide import Run, decide_cluster
from combee.plan.cluster.memory import Memory
from combee.plan.decide import Plan, decide
from combee.plan.state import Best, RunState
from combee.plan.types import Clocks, Outcome, Snapshot

NOW = 1_000_000.0
RUN = Run(
    run_of().who,
    spec(
        budget={"money": 10.0, "gpuSeconds": 9000, "wallClockSeconds": 5000},
        batching={"mode": "Fixed", "size": 50, "reason": "test"},
    ),
)
STATE = replace(
    LEARNING,
    usage=USAGE,
    spend=Spend(rollouts=100, tokens=3_500_000),
    per_example=Spend(rollouts=2, tokens=87_500),
)


def again(run: Run, state: RunState, clocks: Clocks) -> Plan:
    """The decision made anew by recorded clocks."""
    return decide(
        spec=run.spec,
        who=run.who,
        state=state,
        snapshot=Snapshot(),
        elapsed_seconds=clocks.elapsed_seconds,
        gpu_seconds=clocks.gpu_seconds,
    )


def held(seconds: float) -> Memory:
    """A run whose engine, of four GPUs, has been up for so long."""
    return memory(STATE, engines_since={"main": NOW - seconds}, active_since=NOW - seconds)


@given(st.integers(0, 700_000).map(lambda milliseconds: milliseconds / 1000))
def test_a_plan_bounded_by_what_gpus_cost_follows_from_its_clocks(seconds: float) -> None:
    at = decide_cluster(RUN, held(seconds), seen(now=NOW))
    if at.freeze is not None:
        assert at.clocks == Clocks(round(seconds, 3), round(4 * seconds, 3))
        assert again(RUN, STATE, at.clocks).freeze == at.freeze
    else:
        stopped = at.memory.stopped
        assert stopped is not None
        assert again(RUN, STATE, stopped).state.stop == at.memory.run.stop


def test_without_its_clocks_the_plan_would_be_another() -> None:
    at = decide_cluster(RUN, held(300), seen(now=NOW))
    plain = again(RUN, STATE, Clocks())
    assert at.freeze is not None and plain.freeze is not None
    assert at.freeze.batch_size == 8 and plain.freeze.batch_size == 20


def test_a_stop_is_kept_with_its_clocks_in_the_status() -> None:
    at = decide_cluster(RUN, held(1000), seen(now=NOW))
    assert at.memory.stopped == Clocks(1000.0, 4000.0)
    assert Memory.from_status(at.memory.to_status()).stopped == at.memory.stopped
    assert again(RUN, STATE, Clocks()).state.stop is None
    old = at.memory.to_status()
    del old["stopped"]
    assert Memory.from_status(old).stopped is None


def test_a_budget_that_ends_an_iteration_leaves_no_clocks_of_a_decision_in_its_place() -> None:
    """Replay goes on there as the run did, and finds that the record ends."""
    state = replace(LEARNING, iteration=1, best=Best("A1", 0.6, 0))
    broken = summary("reduce", 1, error="BudgetExhausted", message="budget.tokens is spent")
    ended = done("reduce", 1, summary=broken)
    at = decide_cluster(run_of(), memory(state), seen(done("map", 1), ended, plans={1: plan(1)}))
    assert at.memory.run.stop == Outcome("BudgetExhausted", "budget.tokens is spent")
    assert at.memory.stopped is None


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_they_are_read_as_they_were_written(elapsed: float, gpus: float) -> None:
    clocks = Clocks(elapsed, gpus)
    assert Clocks.from_json(clocks.to_json(), where="x") == clocks


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"x": 1}',
        b'{"elapsed_seconds": "soon"}',
        b'{"elapsed_seconds": 1e999}',
        b'{"elapsed_seconds": 1%s}' % (b"0" * 400),
        b"[" * 100_000,
    ],
    ids=lambda data: data[:24].decode(),
)
def test_a_damaged_file_is_named(data: bytes) -> None:
    with pytest.raises(UserError, match="clocks/i000"):
        Clocks.from_json(data, where="clocks/i000.json")
