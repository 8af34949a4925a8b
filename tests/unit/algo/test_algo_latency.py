"""Replaying recorded calls through the latency law."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from combee.algo.latency import LatencyLaw, retime
from combee.algo.schedule import list_schedule
from combee.errors import BugError

LAW = LatencyLaw()
CALLS = st.tuples(st.integers(0, 9000), st.integers(0, 1200))
CHAINS = st.lists(CALLS, max_size=4)
STAGES = st.lists(st.lists(CHAINS, max_size=30), max_size=4)
SLOTS = st.integers(1, 80)


@given(STAGES)
@settings(deadline=None)
def test_one_slot_takes_the_sum(stages: list) -> None:
    calls = [call for stage in stages for chain in stage for call in chain]
    assert retime(stages, 1, LAW).seconds == pytest.approx(sum(LAW.seconds(out, 1, u) for u, out in calls))


def lower_bound(stages: list, slots: int) -> float:
    """No order of the calls beats it: per stage the longest chain alone on the server, or all tokens at the
    pace of full slots, and every prompt read once. Seconds."""
    total = 0.0
    for stage in stages:
        outs = [sum(out for _, out in chain) for chain in stage]
        longest = max(outs, default=0) * LAW.step(1)
        reading = LAW.prefill_seconds_per_token * sum(uncached for chain in stage for uncached, _ in chain)
        total += reading + max(longest, sum(outs) * LAW.step(slots) / slots)
    return total


@given(STAGES, SLOTS)
@settings(deadline=None)
def test_nothing_beats_the_bounds_and_the_parts_make_the_whole(stages: list, slots: int) -> None:
    done = retime(stages, slots, LAW)
    assert done.seconds >= lower_bound(stages, slots) - 1e-9
    assert done.seconds == pytest.approx(math.fsum(done.per_stage))
    assert done == retime(stages, slots, LAW)
    crowded = [[[(u, out * LAW.step(slots) / LAW.step(1)) for u, out in c] for c in s] for s in stages]
    assert done.seconds <= retime(crowded, 1, LAW).seconds + 1e-9


@given(st.lists(st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=9)), st.integers(1, 4))
@example([[[2, 2, 1], [2, 2], [2, 3]]], 2)
@settings(deadline=None)
def test_a_decoder_that_nothing_slows_down_is_a_list_schedule(stages: list, slots: int) -> None:
    """Calls that end at once are followed in the order of their chains by both."""
    alone = LatencyLaw(decode_seconds=1.0, decode_per_concurrent=0.0, prefill_seconds_per_token=0.0)
    calls = [[[(0, out) for out in chain] for chain in stage] for stage in stages]
    assert retime(calls, slots, alone) == list_schedule(stages, slots)


@given(STAGES, SLOTS, st.integers(1, 40))
@settings(deadline=None)
def test_more_slots_are_not_slower_but_for_the_shared_decoder(stages: list, slots: int, more: int) -> None:
    """Graham's anomalies apart: a list schedule on more slots may lose at most what the pace of a
    fuller decoder and one badly placed last call cost."""
    few, many = retime(stages, slots, LAW), retime(stages, slots + more, LAW)
    slack = LAW.step(slots + more) / LAW.step(slots)
    longest = sum(max((sum(o for _, o in c) for c in s), default=0) for s in stages) * LAW.step(slots + more)
    assert many.seconds <= few.seconds * slack + longest + 1e-9


def test_equal_calls_on_enough_slots_take_what_the_law_says() -> None:
    assert retime([[[(1024, 256)]] * 64], 64, LAW).seconds == pytest.approx(LAW.seconds(256, 64, 64 * 1024))


@pytest.mark.parametrize(
    ("concurrent", "measured"), [(1, 4.47), (16, 5.21), (64, 7.76), (128, 10.1), (256, 18.8), (512, 36.6)]
)
def test_it_is_near_what_one_h200_took(concurrent: int, measured: float) -> None:
    modelled = retime([[[(1024, 256)]] * concurrent], concurrent, LAW).seconds
    assert modelled == pytest.approx(measured, rel=0.16)


def test_calls_of_a_chain_follow_each_other_and_stages_are_barriers() -> None:
    law = LatencyLaw(0.01, 0.0, 0.0)
    assert retime([[[(0, 100), (0, 50)], [(0, 20)]], [[(0, 10)]]], 8, law).per_stage == (
        pytest.approx(1.5),
        pytest.approx(0.1),
    )


def test_a_chain_of_a_stage_beside_another_begins_when_what_it_names_has_ended() -> None:
    law = LatencyLaw(0.01, 0.001, 0.0)
    stages = [[[(0, 300)], [(0, 100)]], [[(0, 100)]], [[(0, 100)]]]
    # Two run for 100 tokens; then one, beside the call that waited for the shorter; then 100 alone, and 100.
    assert retime(stages, 8, law, {1: [[1]]}).per_stage == (
        pytest.approx(2 * 100 * 0.012 + 100 * 0.011),
        0.0,
        pytest.approx(100 * 0.011),
    )


@pytest.mark.parametrize("call", [(-1, 1), (1, -1), (math.nan, 1), (1, math.inf)])
def test_nonsense_is_refused(call: tuple[float, float]) -> None:
    with pytest.raises(BugError):
        retime([[[call]]], 2, LAW)


def test_no_slots_and_no_law_are_refused() -> None:
    with pytest.raises(BugError):
        retime([], 0, LAW)
    with pytest.raises(BugError):
        LatencyLaw(decode_seconds=0.0)


def test_nothing_takes_no_time() -> None:
    assert retime([[], [[]]], 4, LAW).seconds == 0.0
