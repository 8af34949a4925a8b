"""Runs that use one engine side by side: equal parts of its slots, and of what its GPUs cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_bench import ENDPOINT, ENGINE, LEARNING, NOW, memory, placed, run_of, seen, spec_of
from cluster_bench import plan as plan_of
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.budget import Limits, Spend
from combee.algo.parallelism import share
from combee.api.conditions import ConditionType
from combee.assembly.context import Share
from combee.assembly.guard import BudgetGuard
from combee.errors import BugError
from combee.plan.cluster.decide import ClusterPlan, decide_cluster
from combee.plan.cluster.engines import EngineWish, account, calls_at_once, deadline, gpu_seconds
from combee.plan.cluster.memory import Memory
from combee.plan.cluster.seen import EngineSeen, Seen
from combee.plan.cluster.standing import conditions, standing
from combee.plan.parallelism import parallelism_of
from combee.plan.types import Step
from combee.pod.budget import gpus_by, shared_limits

VLLM = {"model": "m", "gpusPerReplica": 2, "replicas": 2}
BOTH = {"task": ENGINE, "proposer": ENGINE}


def shared(**changes: Any) -> dict[str, Any]:
    """A spec whose engine of four GPUs is shared."""
    return {"engines": [{"name": "main", "vllm": VLLM, "shared": True}], "models": BOTH, **changes}


def engine(users: int = 1, place: int = 0, **changes: Any) -> dict[str, EngineSeen]:
    """The engine as seen, ready."""
    return {"main": EngineSeen("main", 2, 2, users=users, place=place, **changes)}


@given(
    taken=st.one_of(st.none(), st.integers(1, 300)),
    own=st.lists(st.integers(1, 300), min_size=1, max_size=12),
)
def test_runs_together_ask_no_more_than_the_engine_takes_and_none_is_left_out(
    taken: int | None, own: list[int]
) -> None:
    """``own``: workers.concurrency of each run. What the engine takes may be stated; else each goes by its
    own, and together they have no more than the mean of these and one call each."""
    args = [] if taken is None else [f"--max-num-seqs={taken}"]
    one = {"name": "main", "vllm": {**VLLM, "replicas": 1, "args": args}, "shared": True}
    parts = []
    for place, concurrency in enumerate(own):
        spec = spec_of(**shared(engines=[one], workers={"concurrency": concurrency}))
        part = calls_at_once(spec, seen(engines=engine(len(own), place)), ("task",))
        assert part is not None and 1 <= part <= concurrency
        parts.append(part)
    if taken is not None:
        assert sum(parts) <= max(taken, len(own))
        least = taken // len(own)
        assert all(part >= min(least, concurrency) for part, concurrency in zip(parts, own, strict=True))
    else:
        assert sum(parts) <= sum(own) / len(own) + len(own)
    if len(set(own)) == 1:
        assert max(parts) - min(parts) <= 1


@given(
    slots=st.integers(1, 500),
    users=st.integers(1, 20),
    pods=st.integers(1, 9),
    concurrency=st.integers(1, 500),
)
def test_pods_of_a_run_have_its_part_together(slots: int, users: int, pods: int, concurrency: int) -> None:
    workers = spec_of(workers={"concurrency": concurrency}).workers
    part = share(slots, users, users - 1)
    each = [Share(pods, index, part).concurrency(workers) for index in range(pods)]
    assert sum(each) == max(pods, min(part, concurrency))
    assert Share(pods, 0).concurrency(workers) == Share(pods, 0).of(concurrency)


@pytest.mark.parametrize(
    ("args", "concurrency", "users", "place", "calls"),
    [
        ([], 64, 1, 0, 64),
        ([], 64, 2, 1, 32),
        ([], 63, 2, 0, 32),
        ([], 63, 2, 1, 31),
        (["--max-num-seqs=24"], 64, 2, 0, 24),
        (["--max-num-seqs=256"], 64, 2, 0, 64),
        (["--max-num-seqs=256"], 64, 16, 3, 32),
        ([], 2, 5, 4, 1),
    ],
)
def test_a_run_has_an_equal_part_of_what_the_engine_takes(
    args: list[str], concurrency: int, users: int, place: int, calls: int
) -> None:
    one = {"name": "main", "vllm": {**VLLM, "args": args}, "shared": True}
    spec = spec_of(**shared(engines=[one], workers={"concurrency": concurrency}))
    assert calls_at_once(spec, seen(engines=engine(users, place)), ("task",)) == calls


def test_where_none_is_shared_nothing_is_divided() -> None:
    own = spec_of(**shared(engines=[{"name": "main", "vllm": VLLM}]))
    assert calls_at_once(own, seen(engines=engine(3)), ("task", "proposer")) is None
    mixed = spec_of(**shared(models={"task": ENDPOINT, "proposer": ENGINE}))
    assert calls_at_once(mixed, seen(engines=engine(2)), ("task",)) is None
    assert calls_at_once(mixed, seen(engines=engine(2)), ("task", "proposer")) == 32
    assert calls_at_once(mixed, seen(), ("proposer",)) is None, "it is not there yet"


def decided(facts: Seen, state: Memory | None = None, **changes: Any) -> ClusterPlan:
    return decide_cluster(run_of(**shared(**changes)), state or memory(LEARNING), facts)


def test_each_step_is_told_the_part_of_the_moment_when_its_job_is_made() -> None:
    workers = {"parallelism": 4, "concurrency": 64}
    for users, calls in ((1, 64), (2, 32), (4, 16)):
        facts = seen(engines=engine(users), plans={0: plan_of()})
        (job,) = decided(facts, workers=workers).jobs
        assert job.step.kind == "map" and job.step.params["concurrency"] == calls
    alone = decide_cluster(
        run_of(**shared(engines=[{"name": "main", "vllm": VLLM}])),
        memory(LEARNING),
        seen(engines=engine(), plans={0: plan_of()}),
    )
    assert "concurrency" not in alone.jobs[0].step.params


@pytest.mark.parametrize("users", [1, 2, 4])
def test_a_step_counts_and_keeps_the_part_of_the_gpus_that_the_run_is_charged_for(users: int) -> None:
    known = memory(replace(LEARNING, profile_seconds=15.0), engines_since={"main": NOW - 50})
    (job,) = decided(seen(engines=engine(users), plans={0: plan_of()}), known).jobs
    assert job.step.params["gpus"] == 4 / users
    assert job.step.params["kept"]["gpuSeconds"] == 30.0 * 4 / users
    limits = shared_limits(Limits(gpu_seconds=1000.0), Spend(), 4, 0)
    guard = BudgetGuard(limits, lambda: 100.0, gpus=gpus_by(spec_of(**shared()), job.step) / 4)
    assert guard._spent().gpu_seconds == 100.0 / users


def test_steps_of_an_earlier_operator_count_all_gpus() -> None:
    assert gpus_by(spec_of(**shared()), Step("s", "map", 0, 1)) == 4
    with pytest.raises(BugError, match="gpus"):
        gpus_by(spec_of(**shared()), Step("s", "map", 0, 1, params={"gpus": "many"}))


def test_its_condition_says_for_how_many_runs_it_is_ready() -> None:
    run = run_of(**shared())
    for users, words in ((1, "servers ready: main 2/2"), (3, "servers ready: main 2/2 for 3 runs")):
        facts = seen(engines=engine(users), plans={0: plan_of()})
        plan = decide_cluster(run, memory(LEARNING), facts)
        found = conditions(run.spec, plan.memory, plan, facts, standing(plan.memory, plan, facts))
        (ready,) = (one for one in found if one.type is ConditionType.ENGINES_READY)
        assert ready.message == words


def test_without_its_service_it_is_not_ready_and_no_step_starts() -> None:
    facts = seen(engines={"main": EngineSeen("main", 2, 0, reachable=False)}, plans={0: plan_of()})
    assert not decided(facts).jobs and decided(facts).engines["main"].replicas == 2


def test_a_run_that_needs_it_no_more_leaves_it() -> None:
    holding = memory(LEARNING, engines_since={"main": NOW - 50})
    down = decided(seen(engines=engine(2), suspend=True), holding)
    assert down.engines["main"] == EngineWish(0) and not down.memory.engines_since
    over = decided(
        seen(engines=engine(2)), replace(holding, ended=NOW, run=replace(LEARNING, phase="Complete"))
    )
    assert over.engines["main"] == EngineWish(0, remove=True)
    idle = {**shared()["engines"][0], "idleTimeoutSeconds": 30}
    stuck = replace(placed("map"), ready=0)
    waits = decided(
        seen(stuck, engines=engine(2), plans={0: plan_of()}),
        replace(holding, idle_since=NOW - 31),
        engines=[idle],
    )
    assert waits.engines["main"] == EngineWish(0)


UP = {"main": EngineWish(2)}


def test_gpus_are_paid_for_by_all_that_use_them_and_a_budget_lasts_longer() -> None:
    spec = spec_of(**shared(budget={"gpuSeconds": 4000}))
    held = account(spec, memory(), UP, seen(engines=engine()))
    assert gpu_seconds(spec, held, NOW + 10) == 40.0
    both = account(spec, held, UP, seen(now=NOW + 10, engines=engine(2)))
    assert both.engine_users == {"main": 2} and gpu_seconds(spec, both, NOW + 30) == 40.0 + 40.0
    assert Memory.from_status(both.to_status()) == both
    left = deadline(spec, replace(both, active_since=0.0), NOW + 10).seconds_left
    assert left == pytest.approx((4000 - 40) / 2), "two of four GPUs are its part"
    gone = account(spec, both, {}, seen(now=NOW + 30))
    assert gone.gpu_seconds == 80.0 and not gone.engine_users and not gone.engines_since


@given(
    events=st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.floats(0.5, 90)), min_size=1, max_size=20)
)
def test_together_runs_pay_for_the_engine_once(events: list[tuple[int, bool, float]]) -> None:
    """Every run looks whenever one comes or leaves, as the Deployment's events make them do."""
    spec, now, using, whole = spec_of(**shared()), NOW, set[int](), 0.0
    memories = [memory() for _ in range(3)]
    for number, comes, seconds in events:
        using = using | {number} if comes else using - {number}
        for index, known in enumerate(memories):
            facts = seen(now=now, engines=engine(max(1, len(using))))
            memories[index] = account(spec, known, UP if index in using else {}, facts)
        now += seconds
        whole += 4 * seconds if using else 0.0
    paid = sum(gpu_seconds(spec, known, now) for known in memories)
    assert paid == pytest.approx(whole)


def test_the_advice_names_what_to_write_next() -> None:
    def advice(**changes: Any) -> str:
        shape = parallelism_of(spec_of(**changes, workers={"concurrency": 512}), LEARNING)
        assert shape is not None and shape.name != "Candidate"
        return shape.advice

    own = advice(engines=[{"name": "main", "vllm": VLLM}], models=BOTH)
    assert own.startswith("write shared: true under engines[main] and start runs of similar tasks")
    assert advice(**shared()).startswith("start runs of similar tasks with the same entry")
    assert advice().startswith("run similar tasks beside it at the same address")
