"""The controller in plans: trials, re-planning after a change, caps, and the words for it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decide import FACTS, LEARNING, spec

from combee.api.run import RunSpec
from combee.errors import UserError
from combee.plan.batching import EPOCH_SHARE, allowance, delay_of, next_batch, next_trial, trial_order
from combee.plan.decide import iteration_plan
from combee.plan.engine import engine_digest, hardware_slots
from combee.plan.observed import Observed, of_engine, retention_cap, variance_cap
from combee.plan.preview import DataShape, preview
from combee.plan.state import RunState, after_iteration
from combee.plan.types import PLAN_VERSION, IterationPlan, StepSummary

LAW = (36.0, 1.0)


def dynamic(**batching: object) -> RunSpec:
    return spec(batching={"mode": "Dynamic", **batching}, workers={"concurrency": 200})


def start(rows: int = 1000) -> RunState:
    return replace(LEARNING, facts=replace(FACTS, train_rows=rows))


def seconds(b: int, law: tuple[float, float] = LAW) -> float:
    return law[0] + law[1] * b


def learn(run: RunSpec, state: RunState, plan: IterationPlan, took: float, **counts: int) -> RunState:
    """The state after an iteration that went as planned."""
    summary = StepSummary(
        step="finish",
        kind="finish",
        outputs={"artifact": "A", "engine": engine_digest(run)},
        counts={"examples": plan.batch_size, "correct": plan.batch_size // 2, **counts},
        observations=((plan.batch_size, took),),
    )
    return after_iteration(state, plan, summary)


def many(run: RunSpec, state: RunState, iterations: int, law: tuple[float, float] = LAW) -> RunState:
    for _ in range(iterations):
        plan = iteration_plan(run, state)
        state = learn(run, state, plan, seconds(plan.batch_size, law))
    return state


def test_trials_alternate_learn_and_are_charged() -> None:
    run, state, plans = dynamic(), start(), []
    for _ in range(6):
        plan = iteration_plan(run, state)
        plans.append(plan)
        state = learn(run, state, plan, seconds(plan.batch_size))
    assert [(plan.batch_size, plan.trial) for plan in plans] == [
        (100, True),
        (5, True),
        (50, True),
        (10, True),
        (25, True),
        (43, False),
    ]
    assert plans[1].batch_reason == (
        "trial: 5 examples, learned from like any others, to see how the time of an iteration grows; "
        "trials take 105 of at most 200 examples, a fifth of the epoch."
    )
    assert plans[5].batch_reason == (
        "An iteration costs 36 s plus 1 s an example (5 observations), so growing past 44 saves less than "
        "45 % of the "
        "time. (fit on iterations); 810 examples left are dealt out as 19 batches of about 43"
    )
    assert state.offset == state.examples_done == 233
    assert state.trial_examples == 190


def test_a_whole_plan_of_a_trial() -> None:
    assert iteration_plan(dynamic(), start()) == IterationPlan(
        iteration=0,
        epoch=0,
        offset=0,
        batch_size=100,
        batch_reason="trial: 100 examples, learned from like any others, to see how the time of an "
        "iteration grows; "
        "trials take 100 of at most 200 examples, a fifth of the epoch.",
        seed=0,
        in_order=False,
        shards=4,
        strategy="ParallelScan",
        merge="Structured",
        verify="Replay",
        redundancy="Retransmit",
        copies=1,
        max_rounds=4,
        leaf_size=8,
        max_fan_in=32,
        max_input_tokens=24000,
        subgroups="",
        render_token_budget=8000,
        reflection_rounds=1,
        evaluate=True,
        token_factor=1.0,
        trial=True,
        variants=1,
        version=3,
    )


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=8, unique=True),
    st.integers(1, 3000),
    st.floats(1, 1000),
)
def test_trials_never_take_more_than_a_fifth(sizes: list[int], rows: int, at_most: float) -> None:
    seen: list[int] = []
    while (
        size := next_trial(sorted(sizes), seen=seen, train_rows=rows, spent=sum(seen), at_most=at_most)
    ) is not None:
        assert size <= at_most
        seen.append(size)
    assert sum(seen) <= EPOCH_SHARE * rows
    assert len(set(seen)) == len(seen)
    order = trial_order(sizes, allowance(rows))
    assert sum(order) <= allowance(rows) and len(order) != 1


CHANGES = {"all": (108.0, 3.0), "c1": (36.0, 3.0), "c0": (108.0, 1.0)}


@pytest.mark.parametrize("name", list(CHANGES))
@pytest.mark.parametrize("calm", [6, 12])
def test_a_workload_that_triples_is_re_planned_within_two_iterations(name: str, calm: int) -> None:
    run, law = dynamic(), CHANGES[name]
    state = many(run, start(4000), calm)
    first = iteration_plan(run, state)
    state = learn(run, state, first, seconds(first.batch_size, law))
    second = iteration_plan(run, state)
    assert "times what was expected" in second.batch_reason and not second.trial
    assert second.batch_size < first.batch_size
    state = learn(run, state, second, seconds(second.batch_size, law))
    delay = delay_of(run, state)
    assert len(delay.observations) == 2
    assert delay.today.law is not None
    assert (delay.today.law.a, delay.today.law.f) == (pytest.approx(law[0]), pytest.approx(law[1]))
    third = iteration_plan(run, state)
    best = min(100.0, (1 / 0.45 - 1) * law[0] / law[1])
    assert third.batch_size == pytest.approx(best, rel=0.15)


def test_times_of_another_engine_do_not_count() -> None:
    run = dynamic()
    other = spec(batching={"mode": "Dynamic"}, workers={"concurrency": 199})
    assert engine_digest(run) != engine_digest(other)
    state = many(run, start(), 6)
    assert delay_of(run, state).source == "iterations"
    assert delay_of(other, state).source == ""
    again = iteration_plan(other, state)
    assert (again.trial, again.batch_size) == (True, 5)  # what the fifth of the epoch still allows
    back = (Observed(5, 1.0, "a"), Observed(9, 1.0, "b"), Observed(9, 1.0, "a"))
    assert of_engine(back, "a") == back[2:]


def test_waves_stand_in_while_no_iteration_tells_a_law() -> None:
    run = dynamic()
    state = replace(start(40), waves=tuple((b, seconds(b)) for b in (5, 10, 25)))
    plan = iteration_plan(run, state)
    assert (plan.batch_size, plan.trial) == (40, False)
    assert "(fit on profiling waves)" in plan.batch_reason
    assert delay_of(run, replace(state, wave_engine="another")).source == ""


@pytest.mark.parametrize(
    ("args", "slots"),
    [((), 200), (("--max-num-seqs=32",), 64), (("--max-num-seqs", "32"), 64), (("--max-num-seqs", "x"), 200)],
)
def test_hardware_is_the_concurrency_or_what_the_engine_serves(args: tuple[str, ...], slots: int) -> None:
    engine = {"name": "main", "vllm": {"model": "m", "args": list(args), "replicas": 2}}
    role = {"engineRef": {"name": "main"}}
    run = spec(models={"task": role, "proposer": role}, engines=[engine], workers={"concurrency": 200})
    assert hardware_slots(run)[0] == slots


def test_hardware_caps_the_size_and_says_so() -> None:
    run = spec(batching={"mode": "Dynamic", "sizes": [5, 50, 400]}, workers={"concurrency": 30})
    state = many(run, start(200), 2)
    state = replace(state, observations=(*state.observations, Observed(60, seconds(60))))
    plan = next_batch(run, state, affordable=None)
    assert plan.size <= 30
    assert "capped at 30 by hardware (30 calls can be in flight at once, workers.concurrency)" in plan.reason


def seen(size: int, lessons: int, carried: int, **changes: int) -> Observed:
    return Observed(size, seconds(size), lessons=lessons, carried=carried, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("observations", "value"),
    [
        ([], None),
        ([seen(10, 100, 95), seen(50, 100, 94)], None),
        ([seen(10, 100, 95), seen(50, 100, 80)], 10),
        ([seen(10, 30, 30), seen(50, 30, 10)], None),  # too few to tell
        ([seen(10, 30, 30), seen(25, 30, 29), seen(50, 60, 40)], 25),
        ([seen(10, 100, 95), seen(25, 100, 50), seen(50, 100, 95)], 10),
        ([seen(50, 100, 50)], None),
    ],
)
def test_verified_retention_caps_growth(observations: list[Observed], value: int | None) -> None:
    cap = retention_cap(observations)
    assert (cap.value if cap else None) == value
    assert cap is None or (cap.name == "verified retention" and "of the lessons were carried at" in cap.why)


@pytest.mark.parametrize(
    ("rewards", "value"),
    [
        ([], None),
        ([(5, 5)], None),
        ([(50, 40)], None),
        ([(100, 100)], 100),
        ([(60, 60), (50, 50)], 50),
        ([(60, 0), (50, 0)], 50),
        ([(60, 0), (50, 50)], None),
    ],
)
def test_rewards_that_do_not_vary_cap_growth(rewards: list[tuple[int, int]], value: int | None) -> None:
    cap = variance_cap([Observed(n, 1.0, examples=n, correct=right) for n, right in rewards])
    assert (cap.value if cap else None) == value


def test_the_rule_of_the_paper_can_be_asked_for() -> None:
    state = many(dynamic(rule="Paper"), start(), 5)
    plan = iteration_plan(dynamic(rule="Paper"), state)
    assert plan.batch_size == pytest.approx(56, abs=3)
    assert "saves less than 1.6 % of what the first steps save" in plan.batch_reason


def test_given_sizes_and_sequential_know_nothing_of_the_controller() -> None:
    fixed = spec(batching={"mode": "Fixed", "size": 50, "reason": "test"}, workers={"concurrency": 3})
    assert next_batch(fixed, start(), affordable=None).size == 50
    serial = spec(aggregation={"strategy": "Sequential"})
    assert next_batch(serial, start(), affordable=None).trial is False


def test_a_preview_tries_each_size_once() -> None:
    shown = preview(dynamic(), DataShape(replace(FACTS, train_rows=1000), 100.0))
    assert [batch.size for batch in shown.batches[:5]] == [100, 5, 50, 10, 25]
    assert sum(batch.size for batch in shown.batches) == 1000


garbage = st.builds(
    Observed,
    st.integers(1, 300),
    st.floats(allow_nan=True, allow_infinity=True),
    examples=st.integers(0, 100),
    correct=st.integers(0, 120),
    lessons=st.integers(0, 100),
    carried=st.integers(0, 100),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(garbage, max_size=14),
    st.integers(1, 500),
    st.integers(1, 300),
    st.one_of(st.none(), st.integers(-5, 300)),
    st.sampled_from(["Saving", "Paper"]),
)
def test_whatever_was_measured_the_size_is_within_every_cap(
    observations, left, slots, affordable, rule
) -> None:  # type: ignore[no-untyped-def]
    run = spec(batching={"mode": "Dynamic", "rule": rule}, workers={"concurrency": slots})
    state = replace(start(1000), offset=1000 - left, observations=tuple(observations))
    got = next_batch(run, state, affordable=affordable)
    most = min(left, slots, 100, math.inf if affordable is None else max(1, affordable))
    assert 1 <= got.size <= most
    assert got.reason


def test_plans_of_older_versions_are_understood() -> None:
    plan = iteration_plan(dynamic(), start())
    assert IterationPlan.from_json(plan.to_json(), where="here") == plan
    old = asdict(plan) | {"version": 1}
    del old["trial"], old["variants"]
    read = IterationPlan.from_json(json.dumps(old).encode(), where="here")
    assert read == replace(plan, trial=False)
    for version in (0, PLAN_VERSION + 1, "2"):
        with pytest.raises(UserError, match="version"):
            IterationPlan.from_json(json.dumps(old | {"version": version}).encode(), where="here")


def test_a_plan_of_one_text_is_written_as_it_was_before_there_could_be_more() -> None:
    plan = iteration_plan(dynamic(), start())
    written = json.loads(plan.to_json())
    assert written["version"] == 2 and "variants" not in written
    several = replace(plan, variants=3)
    assert json.loads(several.to_json())["version"] == PLAN_VERSION
    assert IterationPlan.from_json(several.to_json(), where="here") == several


def test_the_largest_summary_of_an_iteration_fits() -> None:
    big = 10**9
    counts = [
        "iteration",
        "examples",
        "correct",
        "failed",
        "rollouts",
        "evaluated",
        "rendered",
        "lessons",
        "carried",
        "promptTokens",
        "cachedTokens",
    ]
    summary = StepSummary(
        step="x" * 63,
        kind="finish",
        outputs=dict.fromkeys(("artifact", "playbook", "calls", "record"), "a" * 64) | {"engine": "b" * 12},
        counts=dict.fromkeys(counts, big),
        scores=dict.fromkeys(
            ("select", "train", "partialSelect", "partialTrain", "tokenFactor"), 0.123456789012345
        ),
        usage={},
        seconds={"wall": 123456.123456, "modelled": 123456.123456},
        observations=((100_000, 123456.123456),),
    )
    assert len(summary.encode()) < 1400
