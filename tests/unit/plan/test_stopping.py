"""When learning stops on what heldOut says, and which artifact is kept: patience, the soft target, ties."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_bench import LEARNING, memory, plan, run_of, seen, spec_of, summary
from hypothesis import given
from hypothesis import strategies as st

from combee.api.conditions import ConditionType, Reason
from combee.api.run import Stopping
from combee.plan.cluster.decide import ClusterPlan
from combee.plan.cluster.standing import conditions, standing
from combee.plan.decide import decide
from combee.plan.state import Best, RunState, after_iteration
from combee.plan.types import Outcome, Snapshot

EVALUATIONS = st.lists(
    st.tuples(st.sampled_from([0.4, 0.5, 0.6, 0.7]), st.integers(1, 4)), min_size=1, max_size=12
)


def learned(evaluations: list[tuple[float, int]]) -> RunState:
    """The state after iterations of such (score on select, tokens of the playbook)."""
    state = LEARNING
    for number, (select, tokens) in enumerate(evaluations):
        made = summary("finish", number, scores={"select": select})
        made = replace(made, counts={**made.counts, "playbookTokens": tokens})
        state = after_iteration(replace(state, epoch=0), plan(number), made)
    return state


@given(EVALUATIONS)
def test_the_best_is_the_highest_then_the_shortest_then_the_earliest(
    evaluations: list[tuple[float, int]],
) -> None:
    best = learned(evaluations).best
    ranked = sorted(range(len(evaluations)), key=lambda at: (-evaluations[at][0], evaluations[at][1], at))
    highest = evaluations[ranked[0]][0]
    wanted = ranked[0] if highest > 0.5 else -1
    assert best is not None and (best.iteration, best.select) == (wanted, max(highest, 0.5))


@given(EVALUATIONS)
def test_patience_counts_evaluations_since_the_score_last_rose(evaluations: list[tuple[float, int]]) -> None:
    scores = [0.5, *(select for select, _ in evaluations)]
    rose = max(at for at, score in enumerate(scores) if at == 0 or score > max(scores[:at]))
    assert learned(evaluations).evaluations_since_best == len(scores) - 1 - rose


def test_tokens_that_an_earlier_version_did_not_keep_break_no_tie() -> None:
    old = Best("A1", 0.6, 0)
    assert not old.gives_way_to(Best("A2", 0.6, 1, tokens=5))
    assert not Best("A1", 0.6, 0, tokens=5).gives_way_to(Best("A2", 0.6, 1))


def stop_of(state: RunState, **stopping: object) -> Outcome | None:
    run = run_of(stopping=stopping)
    return decide(
        spec=run.spec, who=run.who, state=state, snapshot=Snapshot(), elapsed_seconds=0.0
    ).state.stop


def test_patience_is_three_where_nothing_is_said() -> None:
    assert Stopping().patience == 3
    assert stop_of(replace(LEARNING, evaluations_since_best=2)) is None
    stop = stop_of(replace(LEARNING, evaluations_since_best=3))
    assert stop is not None and stop.reason == "select has not improved in 3 evaluations"


@pytest.mark.parametrize(("target", "stops"), [(None, False), (0.61, False), (0.6, True), (0.5, True)])
def test_the_soft_target_stops_learning_and_says_so(target: float | None, stops: bool) -> None:
    reached = replace(LEARNING, best=Best("A1", 0.6, 0))
    stop = stop_of(reached, **({} if target is None else {"targetScore": target}))
    reason = f"select is at 0.600, the target is {target:g}" if stops else None
    assert (stop.reason if stop else None) == reason


@pytest.mark.parametrize(
    ("flat", "status", "reason", "said"),
    [
        (0, "True", Reason.IMPROVING, "best score on select 0.600"),
        (1, "True", Reason.IMPROVING, "1 of 3 evaluations in a row without a better one"),
        (2, "True", Reason.IMPROVING, "2 of 3 evaluations in a row without a better one"),
        (3, "False", Reason.PLATEAU, "3 evaluations without a better score than 0.600"),
    ],
)
def test_a_plateau_needs_the_whole_patience(flat: int, status: str, reason: Reason, said: str) -> None:
    state = replace(LEARNING, best=Best("A1", 0.6, 0), evaluations_since_best=flat)
    at = ClusterPlan(memory(state))
    end = standing(at.memory, at, seen())
    told = {one.type: one for one in conditions(spec_of(), at.memory, at, seen(), end)}
    converging = told[ConditionType.CONVERGING]
    assert (converging.status, converging.reason) == (status, reason)
    assert said in converging.message
