"""How busy calls keep slots, against the schedules that it is computed from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.parallelism import LEAST_UTILISATION, Load, shape_for, share
from combee.algo.schedule import list_schedule

CHAIN = st.lists(st.floats(0.1, 9), min_size=1, max_size=4)
STAGES = st.lists(st.lists(CHAIN, min_size=1, max_size=9), min_size=1, max_size=4)


def load_of(stages: list[list[list[float]]], slots: int) -> Load:
    """What these stages take."""
    busy = sum(seconds for stage in stages for chain in stage for seconds in chain)
    calls = sum(len(chain) for stage in stages for chain in stage)
    alone, scheduled = (list_schedule(stages, n).seconds for n in (calls, slots))
    return Load(busy, alone, scheduled)


@given(stages=STAGES, slots=st.integers(1, 12))
def test_calls_fill_at_most_all_slots_and_never_beat_their_longest_chain(
    stages: list[list[list[float]]], slots: int
) -> None:
    load, near = load_of(stages, slots), 1 + 1e-9
    assert (
        load.path_seconds <= load.scheduled_seconds * near
        and load.scheduled_seconds <= load.busy_seconds * near
    )
    assert 1 / near <= load.in_flight <= min(slots, load.ceiling) * near
    assert 0 < load.utilisation(slots) <= 1
    # Graham: what a list schedule leaves idle is at most what the longest chain takes.
    assert load.scheduled_seconds <= (load.busy_seconds / slots + load.path_seconds) * near


@given(stages=STAGES, slots=st.integers(1, 12), times=st.integers(1, 5))
def test_the_same_iteration_several_times_has_the_same_figures(
    stages: list[list[list[float]]], slots: int, times: int
) -> None:
    one = load_of(stages, slots)
    several = sum((one for _ in range(times)), Load())
    assert several.in_flight == pytest.approx(one.in_flight) and several.ceiling == pytest.approx(one.ceiling)


def test_calls_one_after_the_other_gain_nothing_from_slots() -> None:
    load = load_of([[[1.0, 2.0, 3.0]]], 8)
    assert (load.in_flight, load.ceiling, load.utilisation(8)) == (1.0, 1.0, 1 / 8)


@pytest.mark.parametrize(
    ("utilisation", "widest", "shape"),
    [
        (0.5, 1, "Candidate"),
        (0.499, 1000, "Hybrid"),
        (0.499, 32, "Hybrid"),
        (0.499, 31, "Task"),
        (0.0, 1, "Task"),
        (1.0, 64, "Candidate"),
    ],
)
def test_hybrid_begins_under_half_and_a_task_that_cannot_reach_half_is_one_of_several(
    utilisation: float, widest: int, shape: str
) -> None:
    assert LEAST_UTILISATION == 0.5, "the default of the strategist's brief"
    assert shape_for(utilisation, widest, 64) == shape


def test_nothing_measured_is_no_figure() -> None:
    assert (Load().in_flight, Load().ceiling, Load().utilisation(8)) == (0.0, 0.0, 0.0)


@given(total=st.integers(1, 10_000), parts=st.integers(1, 200))
def test_shares_sum_to_the_whole_and_none_is_nothing(total: int, parts: int) -> None:
    shares = [share(total, parts, index) for index in range(parts)]
    assert min(shares) >= 1 and max(shares) - min(shares) <= 1
    assert sum(shares) == max(total, parts)
