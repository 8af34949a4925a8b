"""List scheduling between its bounds; budgets that never let a plan through which does not fit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.budget import Exceeded, Limits, Spend, fits, largest_affordable
from combee.algo.schedule import Beside, list_schedule
from combee.errors import BugError

seconds = st.integers(0, 40).map(lambda k: k / 4)
all_stages = st.lists(st.lists(st.lists(seconds, max_size=4), max_size=8), max_size=4)


def lower_bound(stages: list[list[list[float]]], slots: int) -> float:
    """No schedule beats it: per stage the longest chain, or the work by slot (Graham 1966). Seconds."""
    chains = [[sum(chain) for chain in stage] for stage in stages]
    return sum(max(max(each, default=0.0), sum(each) / slots) for each in chains)


def critical_path(stages: list[list[list[float]]]) -> float:
    """Seconds with a slot for every call: the longest chain of each stage, summed."""
    return sum(max((sum(chain) for chain in stage), default=0.0) for stage in stages)


@given(all_stages, st.integers(1, 9))
def test_schedule_is_between_its_bounds(stages: list[list[list[float]]], slots: int) -> None:
    result = list_schedule(stages, slots)
    bound = lower_bound(stages, slots)
    assert result.seconds == sum(result.per_stage)
    assert len(result.per_stage) == len(stages)
    assert critical_path(stages) <= bound <= result.seconds + 1e-9
    work = sum(call for stage in stages for chain in stage for call in chain)
    assert result.seconds <= work + 1e-9
    for stage, took in zip(stages, result.per_stage, strict=True):
        longest = max(map(sum, stage), default=0.0)
        assert took <= sum(map(sum, stage)) / slots + longest * (slots - 1) / slots + 1e-9


@given(all_stages)
def test_a_slot_for_every_call_is_the_critical_path(stages: list[list[list[float]]]) -> None:
    assert list_schedule(stages, 100).seconds == critical_path(stages)


@given(all_stages)
def test_one_slot_is_the_sum(stages: list[list[list[float]]]) -> None:
    assert list_schedule(stages, 1).seconds == sum(
        call for stage in stages for chain in stage for call in chain
    )


@pytest.mark.parametrize(
    ("stages", "slots", "per_stage"),
    [
        pytest.param([], 2, (), id="nothing"),
        pytest.param([[], [[]]], 2, (0.0, 0.0), id="empty-stages"),
        pytest.param([[[1], [1], [1]]], 2, (2.0,), id="two-waves"),
        pytest.param([[[3], [3], [2], [2], [2]]], 2, (7.0,), id="graham-order-matters"),
        pytest.param([[[1, 1], [1, 1]]], 1, (4.0,), id="calls-interleave"),
        pytest.param([[[1, 5], [1], [1], [1]]], 2, (7.0,), id="second-call-queues-behind-the-waiting"),
        pytest.param([[[2, 2], [1]], [[1], [1]]], 2, (4.0, 1.0), id="barrier"),
        pytest.param([[[0, 0, 0]]], 1, (0.0,), id="no-time"),
    ],
)
def test_known_schedules(stages, slots, per_stage) -> None:  # type: ignore[no-untyped-def]
    assert list_schedule(stages, slots).per_stage == per_stage


@st.composite
def overlapped(draw: st.DrawFn) -> tuple[list[list[list[float]]], list[list[int]]]:
    """Two stages of chains, and for each chain of the second what it waits for of the first."""
    first, second = (draw(st.lists(st.lists(seconds, max_size=3), max_size=6)) for _ in range(2))
    names = st.lists(st.integers(0, len(first) - 1), max_size=3) if first else st.just([])
    return [first, second, [[1.0]]], [draw(names) for _ in second]


@given(overlapped(), st.integers(1, 9))
def test_a_stage_beside_another_waits_for_what_it_names_and_the_next_for_all(
    case: tuple[list[list[list[float]]], list[list[int]]], slots: int
) -> None:
    stages, waits = case
    result = list_schedule(stages, slots, {1: waits})
    first, second = ([sum(chain) for chain in stage] for stage in stages[:2])
    path = [max((first[name] for name in names), default=0.0) for names in waits]
    ends = [before + own for before, own in zip(path, second, strict=True) if own]
    work = sum(first) + sum(second)
    assert result.per_stage[2] == 1.0, "the next stage is a barrier"
    assert result.seconds - 1 >= max(*first, *ends, work / slots, 0.0, 0.0) - 1e-9
    assert result.seconds - 1 <= work + 1e-9
    if slots >= len(first) + len(second):
        assert result.seconds - 1 == max(*first, *ends, 0.0, 0.0)
    assert list_schedule(stages, 100, {1: waits}).seconds <= list_schedule(stages, 100).seconds


@pytest.mark.parametrize("beside", [{0: [[]]}, {1: []}, {1: [[1]]}, {2: [[0]]}])
def test_a_stage_is_beside_one_that_exists(beside: Beside) -> None:
    with pytest.raises(BugError):
        list_schedule([[[1.0]], [[1.0]]], 1, beside)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_impossible_durations_are_our_bug(bad: float) -> None:
    with pytest.raises(BugError):
        list_schedule([[[bad]]], 1)
    for slots in (0, -1):
        with pytest.raises(BugError):
            list_schedule([], slots)


counts = st.integers(0, 1000)
times = st.integers(0, 4000).map(lambda k: k / 4)
spends = st.builds(Spend, counts, counts, times, times)
limits = st.builds(
    Limits,
    st.none() | counts,
    st.none() | counts,
    st.none() | times,
    st.none() | times,
    st.sampled_from(["rollouts", "tokens", "gpuSeconds", "wallClockSeconds"]),
)


@given(spends, spends, spends)
def test_spends_add_and_subtract(a: Spend, b: Spend, c: Spend) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert (a + b) - b == a
    assert a + a == a.times(2)


@given(spends, spends, spends, limits)
def test_largest_affordable_is_the_largest(each: Spend, fixed: Spend, spent: Spend, limit: Limits) -> None:
    most = largest_affordable(each, fixed, spent, limit)
    if most is None:
        assert fits(spent, fixed + each.times(10**9), limit) is None
    elif fits(spent, fixed, limit) is not None:
        assert most == 0
    else:
        assert fits(spent, fixed + each.times(most), limit) is None
        assert fits(spent, fixed + each.times(most + 1), limit) is not None


@pytest.mark.parametrize(
    ("spent", "planned", "limit", "expected"),
    [
        pytest.param(Spend(rollouts=10**9), Spend(), Limits(), None, id="no-limits"),
        pytest.param(Spend(rollouts=9), Spend(rollouts=1), Limits(rollouts=10), None, id="exactly"),
        pytest.param(
            Spend(rollouts=9), Spend(rollouts=2), Limits(rollouts=10), ("rollouts", 10, 9, 2), id="over"
        ),
        pytest.param(
            Spend(9, 9),
            Spend(9, 9),
            Limits(rollouts=10, tokens=10, primary="tokens"),
            ("tokens", 10, 9, 9),
            id="primary-first",
        ),
        pytest.param(Spend(), Spend(), Limits(rollouts=0), None, id="zero-of-zero"),
        pytest.param(
            Spend(),
            Spend(wall_clock_seconds=5.5),
            Limits(wall_clock_seconds=5),
            ("wallClockSeconds", 5, 0.0, 5.5),
            id="wall-clock",
        ),
    ],
)
def test_fits(spent, planned, limit, expected) -> None:  # type: ignore[no-untyped-def]
    assert fits(spent, planned, limit) == (None if expected is None else Exceeded(*expected))


def test_nan_never_fits() -> None:
    assert fits(Spend(gpu_seconds=math.nan), Spend(), Limits(gpu_seconds=10)) is not None
    assert largest_affordable(Spend(gpu_seconds=math.nan), Spend(), Spend(), Limits(gpu_seconds=10)) == 0
    assert largest_affordable(Spend(gpu_seconds=math.inf), Spend(), Spend(), Limits(gpu_seconds=10)) == 0
    assert largest_affordable(Spend(gpu_seconds=1.0), Spend(), Spend(), Limits(gpu_seconds=math.inf)) is None


def test_exceeded_reads_as_a_sentence() -> None:
    assert str(Exceeded("tokens", 5e7, 49_000_000, 2_000_000)) == (
        "budget.tokens is 50,000,000: 49,000,000 spent and 2,000,000 more are planned"
    )
