"""Blocks of time: their limits against simulation, their state, and what a verdict makes of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.algo.blocks import ALPHA, LEAST_BLOCKS, MOST_BLOCKS, WANDER, Blocks, Grid
from combee.algo.canary import Rules, tally_verdict
from combee.algo.sequence import GRID
from combee.algo.tally import Pair, Tally
from combee.errors import BugError

CANARIES = 500
HOUR, DAY = 3600.0, 86_400.0
LATER = 1e9
"""seconds after which every block is closed."""
RULES = Rules(0.05, 200, DAY, 5 * DAY, by_time=True)


def blocks_of(sums: np.ndarray, pairs: int) -> Blocks:
    """Blocks of so many pairs each; ``sums`` in units of the score."""
    return Blocks({at: (pairs, round(GRID * total)) for at, total in enumerate(sums.tolist())})


def tally_of(means: list[float], pairs: int = 100) -> Tally:
    """A tally of differences with a standard deviation of 0.3, as even as can be within each block."""
    sums, counts = {}, dict.fromkeys((-GRID, 0, GRID), 0)
    for at, mean in enumerate(means):
        won, lost = (round(pairs * (0.09 + sign * mean) / 2) for sign in (1, -1))
        sums[at] = (pairs, GRID * (won - lost))
        for value, count in zip(counts, (lost, pairs - won - lost, won), strict=True):
            counts[value] += count
    return Tally({value: count for value, count in counts.items() if count}, blocks=Blocks(sums))


# -- the limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [24, 72])
def test_one_look_in_three_at_pairs_of_one_mean_is_unsteady(blocks: int) -> None:
    rng = np.random.default_rng([41, blocks])
    looks = [
        blocks_of(rng.normal(0, 0.3 * 10, blocks), 100).look(HOUR, LATER, 0.09) for _ in range(4 * CANARIES)
    ]
    assert np.mean([not look.steady for look in looks]) == pytest.approx(0.35, abs=0.035)


@pytest.mark.parametrize("blocks", [24, 72])
def test_a_slope_is_seen_downhill_before_it_wanders_far_and_uphill_it_is_none(blocks: int) -> None:
    pairs, sd = 50, 0.3
    line = np.linspace(1, -1, blocks)
    for slopes, steady in ((0.7, True), (1.2, False), (-1.2, True), (-2.0, False)):
        drop = slopes * sd * math.sqrt(12 / (blocks * pairs))
        look = blocks_of(pairs * drop / 2 * line, pairs).look(HOUR, LATER, sd**2)
        assert look.steady is steady, slopes


def test_the_lower_end_of_steady_blocks_holds_at_all_looks_at_once() -> None:
    rng = np.random.default_rng(43)
    missed = 0
    for _ in range(CANARIES):
        sums = rng.normal(0, 0.3 * 10, MOST_BLOCKS)
        looks = [blocks_of(sums[:n], 100).look(HOUR, LATER, 0.09) for n in range(LEAST_BLOCKS, MOST_BLOCKS)]
        missed += any(look.steady and look.low > 0 for look in looks)
    assert 0 < missed <= ALPHA * CANARIES


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_the_lower_end_of_unsteady_blocks_holds_at_one_look_whatever_ties_hours(share: float) -> None:
    """``share``: what an hour's mean takes over from the hour before."""
    rng = np.random.default_rng([47, int(10 * share)])
    low = []
    for _ in range(4 * CANARIES):
        means = [0.0]
        for step in rng.normal(0, 0.1, 72 + 50):
            means.append(share * means[-1] + step)
        # Next to no variance within a block: nearly every one is unsteady.
        look = blocks_of(100 * np.array(means[-72:]), 100).look(HOUR, LATER, 1e-6)
        assert not look.steady
        low.append(look.low)
    assert np.mean(np.array(low) > 0) <= 0.025


def test_a_trend_a_change_of_level_and_a_day_are_seen() -> None:
    hours = np.arange(24)
    moving = {
        "trend": 0.05 * (1 - hours / 12),
        "change": np.where(hours < 18, 0.0, -0.08),
        "day": 0.1 * np.sin(2 * np.pi * hours / 24),
    }
    for name, means in moving.items():
        assert not blocks_of(100 * means, 100).look(HOUR, LATER, 0.09).steady, name
    assert blocks_of(np.zeros(24), 100).look(HOUR, LATER, 0.09).steady


# -- the state -----------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 40_000)), max_size=40),
    st.randoms(use_true_random=False),
)
def test_blocks_are_the_same_in_any_order_and_over_any_restart(
    made: list[tuple[int, int]], random: object
) -> None:
    grid = Grid(1000.0, 10.0, 41_000.0)
    pairs = [Pair("s", number, math.sin(number), time=1000.0 + after) for number, after in dict(made).items()]
    once = Tally().with_pairs("t", pairs, grid)
    shuffled = pairs * 2
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    piecewise = Tally()
    for pair in shuffled:
        read = Tally.from_json(json.loads(json.dumps(piecewise.to_json())))
        piecewise = read.with_pairs("t", [pair], grid)
    assert once == piecewise
    placed = [pair for pair in pairs if grid.block(pair.time) is not None]
    assert sum(count for count, _ in once.blocks.sums.values()) == len(placed)
    if len(placed) == len(pairs):
        total = sum(value * count for value, count in once.counts.items())
        assert sum(total_of for _, total_of in once.blocks.sums.values()) == total
    assert all(number < MOST_BLOCKS for number in once.blocks.sums)


def test_joined_blocks_say_what_longer_ones_would_have() -> None:
    late = 4 * MOST_BLOCKS - 1
    each = [(number, number % 7) for number in range(late + 1)]
    joined = Blocks().plus(each)
    longer = Blocks().plus([(number // 4, value) for number, value in each])
    assert (joined.doublings, joined.sums) == (2, longer.sums)
    assert joined.seconds(10.0) == 40.0


def test_a_pair_of_no_time_or_of_another_time_counts_and_is_in_no_block() -> None:
    grid = Grid(1000.0, 10.0, 2000.0)
    pairs = [Pair("s", at, 0.5, time=time) for at, time in enumerate((None, 999.0, 2000.0, 1e300, 1005.0))]
    tally = Tally().with_pairs("t", pairs, grid)
    assert tally.pairs == 5 and tally.blocks.sums == {0: (1, 50)}
    assert Tally().with_pairs("t", pairs).blocks == Blocks()


def test_a_tally_of_an_earlier_operator_is_read_and_goes_on() -> None:
    raw = {"counts": {"0": 400}, "spans": {"s": [[0, 399]]}, "timed": 0, "logRatio": 0}
    tally = Tally.from_json(raw)
    assert tally.blocks == Blocks() and tally.to_json() == raw
    grid = RULES.grid(0.0)
    assert tally_verdict(tally, RULES, 1.1 * DAY).reason == "TooEarly"
    more = [Pair("s", 400 + at, 0.0, time=at * HOUR / 10) for at in range(240)]
    assert tally_verdict(tally.with_pairs("t", more, grid), RULES, 1.1 * DAY).outcome == "Passed"


def test_the_state_of_three_days_stays_small() -> None:
    pairs = [Pair("s", n, math.sin(n), time=n * 30.0) for n in range(8640)]
    tally = Tally().with_pairs("t", pairs, RULES.grid(0.0))
    assert len(tally.blocks.sums) == 72
    assert len(json.dumps(tally.blocks.to_json())) < 1600


@pytest.mark.parametrize(
    "raw",
    [
        {"sums": {}},
        {"sums": {"0": [0, 0]}, "doublings": 0},
        {"sums": {"0": [1, 101]}, "doublings": 0},
        {"sums": {"96": [1, 0]}, "doublings": 0},
        {"sums": {}, "doublings": 64},
        {"sums": {}, "doublings": -1},
        {"sums": {"x": [1, 0]}, "doublings": 0},
        7,
    ],
)
def test_blocks_that_cannot_be_are_refused(raw: object) -> None:
    with pytest.raises(BugError):
        Tally.from_json({"counts": {}, "spans": {}, "timed": 0, "logRatio": 0, "blocks": raw})


# -- the verdict ---------------------------------------------------------------------------------------


def test_a_duration_of_a_day_or_more_takes_whole_days() -> None:
    for days, deadline, shortest in ((0.5, 3, 0.5), (1, 3, 1), (1.2, 3, 2), (2.5, 2.8, 2.8), (7, 21, 7)):
        assert Rules(0.05, 1, days * DAY, deadline * DAY).shortest_seconds == shortest * DAY


@pytest.mark.parametrize(
    ("duration", "block"), [(0, 0.0), (60, 2.5), (DAY / 2, 1800.0), (DAY, HOUR), (7 * DAY, HOUR)]
)
def test_blocks_are_a_part_of_the_duration(duration: float, block: float) -> None:
    rules = Rules(0.05, 1, duration, 30 * DAY, by_time=True)
    assert rules.block_seconds == block
    assert (rules.grid(0.0) is None) is (block == 0)
    assert replace(rules, by_time=False).grid(0.0) is None


STEADY = tally_of([0.0] * 72)
DRIFTING = tally_of([0.05 - 0.2 * hour / 72 for hour in range(24)])
SWINGING = tally_of([0.05 + (0.1 if hour % 24 < 12 else -0.1) for hour in range(72)])
VERDICTS = [
    ("steady", STEADY, 1.0, "Passed", "CanaryPassed"),
    ("not a whole day", STEADY, 0.9, "Inconclusive", "TooEarly"),
    ("drifting", DRIFTING, 1.0, "Inconclusive", "Unstable"),
    ("swinging", SWINGING, 2.9, "Inconclusive", "Unstable"),
    ("swinging, and better all the same", SWINGING, 3.0, "Passed", "CanaryPassed"),
    ("drifting, and then nothing more", DRIFTING, 4.0, "Inconclusive", "Unstable"),
    ("nothing more soon after the beginning", tally_of([0.0] * 10), 4.0, "Inconclusive", "TooEarly"),
    ("a burst", tally_of([0.0] * 7, 300), 1.0, "Inconclusive", "TooEarly"),
    ("no blocks", replace(STEADY, blocks=Blocks()), 2.0, "Inconclusive", "TooEarly"),
]


@pytest.mark.parametrize(
    ("tally", "days", "outcome", "reason"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_verdicts_by_blocks(tally: Tally, days: float, outcome: str, reason: str) -> None:
    said = tally_verdict(tally, RULES, days * DAY)
    assert (said.outcome, said.reason, said.final) == (outcome, reason, outcome == "Passed")
    alone = tally_verdict(tally, replace(RULES, by_time=False), max(1.0, days) * DAY)
    assert alone.outcome == "Passed", "pairs alone would pass it"


def test_what_is_unstable_says_how_it_moves_and_waits_until_the_deadline() -> None:
    said = tally_verdict(DRIFTING, RULES, DAY)
    assert said.message.endswith(
        "the mean moves with time, from -0.008 to 0.043 between quarters of it; blocks tell from 3 d on"
    )
    late = tally_verdict(DRIFTING, RULES, 5 * DAY)
    assert (late.outcome, late.reason, late.final) == ("Inconclusive", "DeadlineExceeded", True)
    assert "the mean moves with time" in late.message
    long = tally_verdict(tally_of([0.05 - 0.1 * hour / 72 for hour in range(72)]), RULES, 3.1 * DAY)
    assert (long.reason, long.final) == ("Unstable", False)
    assert "by blocks of 1 h the lower end must be above -0.050, it is -" in long.message


def test_pairs_of_a_block_that_is_open_tell_nothing_of_time() -> None:
    """The last hours lack their defeats, which are judged later."""
    tally = tally_of([0.0] * 24)
    rosy = replace(tally, blocks=replace(tally.blocks, sums={**tally.blocks.sums, 23: (100, 90 * GRID)}))
    open_, closed = (rosy.blocks.look(HOUR, hours * HOUR, 0.09) for hours in (24.9, 25.0))
    assert (open_.count, open_.steady) == (23, True)
    assert (closed.count, closed.steady) == (24, False)


def test_hours_that_differ_more_than_their_pairs_widen_the_interval() -> None:
    """Every other hour is better, with no trend: what the blocks differ is more than their pairs explain."""
    wide, narrow = (
        tally_of([-swing * (-1) ** hour for hour in range(48)]).blocks.look(HOUR, LATER, 0.09)
        for swing in (0.1, 0.0)
    )
    assert wide.steady and narrow.steady
    assert wide.low < 2 * narrow.low < 0


def test_a_canary_of_seconds_can_pass_and_says_that_it_saw_no_whole_day() -> None:
    rules = Rules(0.05, 20, 60, 600, by_time=True)
    pairs = [Pair("s", n, 0.0, time=n * 0.3) for n in range(200)]
    tally = Tally().with_pairs("t", pairs, rules.grid(0.0))
    said = tally_verdict(tally, rules, 60.0)
    assert said.outcome == "Passed" and said.message.endswith("; no whole day was seen")
    assert not tally_verdict(STEADY, RULES, DAY).message.endswith("seen")


def test_a_limit_of_the_wander_is_a_quantile() -> None:
    """Of the mean square of a Brownian bridge, drawn by its series (Anderson and Darling 1952)."""
    rng = np.random.default_rng(53)
    weights = 1 / (np.pi * np.arange(1, 200)) ** 2
    squares = (rng.standard_normal((20_000, 199)) ** 2) @ weights
    assert np.mean(squares > WANDER) == pytest.approx(0.25, abs=0.012)
