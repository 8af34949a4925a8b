"""The controller in plans: trials, re-planning after a change, caps, and the words for it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_decide import FACTS, LEARNING, spec

from combee.algo.laws import T_ITER, Law
from combee.api.run import RunSpec
from combee.errors import UserError
from combee.plan.batching import EXPECTED, ITERATIONS, delay_of, next_batch, next_trial, saving
from combee.plan.decide import iteration_plan
from combee.plan.engine import engine_digest, hardware_slots
from combee.plan.expected import Pace, expected_law, pace_of
from combee.plan.observed import OWN_SECONDS, Observed, of_engine, own_seconds, retention_cap, variance_cap
from combee.plan.preview import DataShape, preview
from combee.plan.state import RunState, after_iteration
from combee.plan.types import PLAN_VERSION, SEVERAL_TEXTS_VERSION, IterationPlan, RoleUsage, StepSummary

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


def profiled(waves: tuple[tuple[int, float], ...], rows: int = 1000, tokens: int = 50) -> RunState:
    """The state after a profile whose rollouts wrote ``tokens`` each."""
    calls = sum(size for size, _ in waves)
    usage = {"task": RoleUsage(calls, 0, 100 * calls, tokens * calls)}
    return replace(start(rows), waves=waves, usage=usage)


def test_the_first_size_is_expected_from_slots_and_lengths_and_a_trial_follows_where_it_pays() -> None:
    run, state, plans = dynamic(), profiled(((5, 1.0), (145, 2.0)), rows=4000), []
    for _ in range(4):
        plan = iteration_plan(run, state)
        plans.append(plan)
        state = learn(run, state, plan, seconds(plan.batch_size))
    assert [(plan.batch_size, plan.trial) for plan in plans] == [
        (100, False),
        (5, True),
        (44, False),
        (10, True),
    ]
    assert plans[0].batch_reason == (
        "An iteration costs 13 s plus 0.0679 s an example, so growing past 234 saves less than "
        "45 % of the time; capped at 100, the largest of batching.sizes. (expected from 200 slots, "
        "workers.concurrency, and profile's calls)"
    )
    assert plans[1].batch_reason == (
        "trial: 5 examples instead of 100, to see how the time of an iteration grows: 85 s off the plan, and "
        "it can save 158 s on the 3900 left"
    )
    assert plans[2].batch_reason == (
        "An iteration costs 36 s plus 1 s an example (2 observations), so growing past 44 saves less than "
        "45 % of the time. (fit on iterations)"
    )
    assert state.offset == state.examples_done == sum(plan.batch_size for plan in plans)


def test_on_a_short_epoch_the_expectation_stands_alone_and_says_so() -> None:
    run, state, plans = dynamic(), profiled(((5, 1.0), (145, 2.0)), rows=250), []
    while state.epoch == 0:
        plan = iteration_plan(run, state)
        plans.append(plan)
        state = learn(run, state, plan, seconds(plan.batch_size))
    assert not any(plan.trial for plan in plans)
    assert [plan.batch_size for plan in plans] == [84, 83, 83]
    assert plans[0].batch_reason.endswith("; no trial would pay")


def test_a_whole_plan() -> None:
    assert iteration_plan(dynamic(), start(250)) == IterationPlan(
        iteration=0,
        epoch=0,
        offset=0,
        batch_size=84,
        batch_reason="An iteration costs 19.1 s plus 0.072 s an example, so growing past 324 "
        "saves less than 45 % of the time; capped at 100, the largest of batching.sizes. (expected from 200 "
        "slots, workers.concurrency, and calls of an H200); 250 examples left are dealt out as 3 batches of "
        "about 84; no trial would pay",
        seed=0,
        in_order=False,
        shards=4,
        strategy="ParallelScan",
        merge="Structured",
        verify="Replay",
        redundancy="Retransmit",
        copies=1,
        max_rounds=4,
        leaf_size=1,
        max_fan_in=32,
        max_input_tokens=24000,
        subgroups="",
        render_token_budget=8000,
        reflection_rounds=1,
        evaluate=True,
        token_factor=1.0,
        trial=False,
        variants=1,
        version=PLAN_VERSION,
    )


lines = st.builds(Law, st.just(T_ITER), st.floats(0.01, 1e3), st.just(1.0), st.floats(0.001, 1e2), st.just(0))


@given(
    lines,
    st.lists(st.integers(1, 400), min_size=1, max_size=8, unique=True),
    st.integers(1, 400),
    st.integers(1, 5000),
    st.floats(0.01, 0.99),
)
def test_trials_never_cost_more_than_they_can_save(
    law: Law, sizes: list[int], planned: int, left: int, share: float
) -> None:
    seen, first, paid = [planned], left, 0.0
    an_example = law.predict(planned) / planned
    while trial := next_trial(law, sizes, seen=seen, planned=planned, left=left, share=share):
        price = law.predict(trial.size) - trial.size * an_example
        assert abs(price) <= saving(share, len(seen)) * left * an_example
        assert trial.trial and trial.size in sizes and trial.size <= left and trial.size not in seen
        seen.append(trial.size)
        left -= trial.size
        paid += price
    assert paid <= saving(share, 1) * first * an_example * sum(1 / n for n in range(1, len(sizes) + 1))


@given(lines, st.floats(0.05, 0.95), st.floats(0.9, 1.1))
def test_a_trial_saves_half_of_what_a_size_off_by_a_factor_loses(law: Law, share: float, off: float) -> None:
    """Rule Saving's own measure, ln t(b) + share ln b, to second order around its size."""

    def measure(b: float) -> float:
        return math.log(law.predict(b) / b) + share * math.log(b)

    best = (1 / share - 1) * law.b_half
    lost = 2 * saving(share, 1) * (math.log(off) / math.log(2)) ** 2
    assert measure(best * off) - measure(best) == pytest.approx(lost, rel=0.1, abs=1e-6)


@given(st.floats(0, 500), st.integers(1, 500), st.integers(1, 300), st.integers(1, 300))
def test_more_slots_never_make_a_stage_slower_nor_more_calls_faster(
    chains: float, more: int, slots: int, more_slots: int
) -> None:
    pace = Pace()
    took = pace.seconds((chains, 100), slots)
    assert (
        pace.seconds((chains, 100), slots + more_slots) <= took * (1 + 1e-9) or chains <= slots + more_slots
    )
    assert pace.seconds((chains + more, 100), slots) >= took


def test_fewer_slots_ask_for_smaller_batches() -> None:
    sizes = []
    for slots in (4, 16, 64, 256):
        run = spec(workers={"concurrency": slots})
        sizes.append(expected_law(run, start())[0].b_half)
    assert sizes == sorted(sizes) and sizes[-1] > 4 * sizes[0]


def test_a_wave_larger_than_the_slots_is_several() -> None:
    run = spec(workers={"concurrency": 10})
    pace = pace_of(run, profiled(((5, 1.5), (100, 20.0)), tokens=100))
    assert pace.measured
    assert pace.seconds((100, 100), 10) == pytest.approx(20.0)
    assert pace.seconds((5, 100), 10) == pytest.approx(1.5)
    assert pace_of(run, replace(profiled(((5, 1.5),)), wave_engine="another")) == Pace()


def noisy(size: int, each: float, calls: int = 4) -> Observed:
    return Observed(size, size * calls * each, calls=size * calls)


@pytest.mark.parametrize(
    ("observations", "each"),
    [
        ([], None),
        ([noisy(20, 0.003)], 0.003),
        ([noisy(20, 0.006)], None),
        ([noisy(20, 5.0), *[noisy(20, 0.003)] * 3], 0.003),
        ([*[noisy(20, 0.003)] * 3, noisy(20, 5.0)], None),
        ([Observed(20, 0.1)], None),  # of an older version, which does not say how many calls
        ([replace(noisy(20, 0.003), seconds=math.nan)], None),
    ],
)
def test_calls_no_longer_than_the_clients_own_work_are_noise(
    observations: list[Observed], each: float
) -> None:
    assert own_seconds((), observations) == each


@given(
    st.integers(5, 100),
    st.floats(1e-4, OWN_SECONDS),
    st.integers(1, 1000),
    st.one_of(st.none(), st.integers(1, 99)),
)
def test_where_times_are_noise_the_largest_size_that_carries_lessons_is_taken(
    size: int, each: float, left: int, affordable: int | None
) -> None:
    state = replace(start(), offset=1000 - left, observations=(noisy(size, each),))
    plan = next_batch(dynamic(), state, affordable=affordable)
    most = min(left, 100, affordable or math.inf)
    assert math.ceil(left / plan.size) == math.ceil(left / most) and plan.size <= most
    assert "as fast as this client makes and reads calls" in plan.reason and not plan.trial


def test_noise_does_not_lift_verified_retention() -> None:
    lossy = (
        replace(noisy(10, 0.003), lessons=100, carried=95),
        replace(noisy(50, 0.003), lessons=100, carried=80),
    )
    plan = next_batch(dynamic(), replace(start(), observations=lossy), affordable=None)
    assert plan.size == 10
    assert "the most that verified retention allows (80 % of the lessons were carried at 50" in plan.reason


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.floats(5, 1000))
def test_what_the_law_says_is_what_the_iterations_took_however_long_one_was(
    sizes: list[int], tail: float
) -> None:
    run, state = dynamic(), start(4000)
    seen = [Observed(size, seconds(size)) for size in sizes]
    seen[-1] = replace(seen[-1], seconds=tail * seen[-1].seconds)
    delay = delay_of(run, replace(state, observations=tuple(seen)))
    law = delay.law(run.batching)
    took = math.fsum(one.seconds for one in delay.observations)
    assert math.fsum(law.predict(one.batch_size) for one in delay.observations) == pytest.approx(took)


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
    state = many(run, start(4000), 6)
    assert delay_of(run, state).source == ITERATIONS
    assert delay_of(other, state).observations == ()
    back = (Observed(5, 1.0, "a"), Observed(9, 1.0, "b"), Observed(9, 1.0, "a"))
    assert of_engine(back, "a") == back[2:]


def test_one_size_has_the_shape_that_is_expected_at_the_level_that_was_measured() -> None:
    run, state = dynamic(), profiled(((5, 1.0), (145, 2.0)))
    before = delay_of(run, state)
    after = delay_of(run, replace(state, observations=(Observed(58, 500.0),)))
    assert before.source == after.source == EXPECTED
    assert after.law(run.batching).b_half == pytest.approx(before.law(run.batching).b_half)
    assert after.law(run.batching).predict(58) == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("args", "slots"),
    [((), 200), (("--max-num-seqs=32",), 64), (("--max-num-seqs", "32"), 64), (("--max-num-seqs", "x"), 200)],
)
def test_hardware_is_the_concurrency_or_what_the_engine_serves(args: tuple[str, ...], slots: int) -> None:
    engine = {"name": "main", "vllm": {"model": "m", "args": list(args), "replicas": 2}}
    role = {"engineRef": {"name": "main"}}
    run = spec(models={"task": role, "proposer": role}, engines=[engine], workers={"concurrency": 200})
    assert hardware_slots(run)[0] == slots


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


def test_a_preview_has_the_sizes_that_are_expected() -> None:
    shown = preview(dynamic(), DataShape(replace(FACTS, train_rows=1000), 100.0))
    assert {batch.size for batch in shown.batches} == {100}
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
    most = min(left, 100, math.inf if affordable is None else max(1, affordable))
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
    assert json.loads(several.to_json())["version"] == SEVERAL_TEXTS_VERSION
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
