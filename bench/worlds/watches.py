"""The watch after a promotion, on traffic that is not i.i.d.: what does it roll back, and how soon?

A watch goes by pairs alone: it rolls back as soon as they show that the version is worse than the one before
by more than epsilon. Should an hour that differs from the others be in its way, as it is in a canary's? Three
rules, each looked at every hour for a week:

- *pairs*: the watch's own;
- *no hour alone*: the pairs without those of the worst hour show it, too;
- *blocks*: those of an hour agree, as a canary asks before it passes, turned around.

An equal version that is rolled back is a needless rollback; one that loses 10 points, or half of all
requests, must be gone soon. A watch lasts a day unless its manifest says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bench.harness import Row
from bench.worlds.canaries import (
    DAY,
    HOUR,
    Counts,
    Draw,
    Floats,
    Swings,
    counts_of,
    day_and_night,
    drift,
    even,
    outcomes,
    regimes,
    tally_of,
)
from combee.algo.blocks import LEAST_BLOCKS, Blocks
from combee.algo.canary import SETTLED
from combee.algo.sequence import below
from combee.algo.tally import Tally
from combee.plan.playbook.watch import WATCH_ALPHA

WATCHES, WEEK, PAIRS_AN_HOUR = 200, 168, 100
EPSILON = 0.02
"""The largest of failureCost Medium."""
LOST = 0.10
Rule = Callable[[Counts], bool]


def pairs_alone(found: Counts) -> bool:
    """Whether the pairs show that it is worse by more than epsilon."""
    return below(counts_of(found), -EPSILON, WATCH_ALPHA)


def no_hour_alone(found: Counts) -> bool:
    """Whether they do without the worst hour, too."""
    worst = np.argmin(found[0] - found[2] + EPSILON * found.sum(axis=0))
    return pairs_alone(found) and pairs_alone(np.delete(found, worst, axis=1))


def by_blocks(found: Counts) -> bool:
    """Whether the blocks of an hour say so, too, by the rule of a canary of a day, turned around."""
    if not pairs_alone(found):
        return False
    tally, hours = turned(tally_of(found)), found.shape[1]
    look = tally.blocks.look(HOUR, hours * HOUR, tally.variance)
    return look.count >= LEAST_BLOCKS and look.low >= EPSILON and (look.steady or hours >= SETTLED * DAY)


def turned(tally: Tally) -> Tally:
    """The tally of the version before against the one after."""
    sums = {hour: (count, -total) for hour, (count, total) in tally.blocks.sums.items()}
    return Tally({-value: count for value, count in tally.counts.items()}, blocks=Blocks(sums))


def first_hour(draw: Draw, hours: int) -> Floats:
    """An incident in the first hour, such as caches that are still cold: half of the requests are lost."""
    return np.where(np.arange(hours) == 0, -0.5, 0.0)


RULES: Mapping[str, Rule] = {"pairs": pairs_alone, "no hour alone": no_hour_alone, "blocks": by_blocks}
NOW = "pairs"
WORLDS: Mapping[str, Swings] = {
    "i.i.d.": even,
    "regimes of 2 h": regimes(2),
    "regimes of 6 h": regimes(6),
    "regimes of 24 h": regimes(24),
    "day and night": day_and_night,
    "drift in a week": drift,
    "a bad first hour": first_hour,
}
CASES: Mapping[str, tuple[Swings, float]] = {
    **{f"equal, {name}": (swings, 0.0) for name, swings in WORLDS.items()},
    **{f"loses 10 points, {name}": (swings, LOST) for name, swings in WORLDS.items()},
    "loses half of all requests, i.i.d.": (even, 0.5),
}


def watches(folder: Path) -> Row:
    """The share of versions that lose 10 points and that a week's watch keeps, in the worst world."""
    found = {name: {rule: shown(case, rule) for rule in RULES} for name, case in CASES.items()}
    left = {
        rule: max(100 - case[rule]["in a week"] for name, case in found.items() if name.startswith("loses"))
        for rule in RULES
    }
    return Row(
        name="versions that lose 10 points and are not rolled back in a week, in the worst world",
        figure=round(left[NOW], 1),
        target="no more than by blocks",
        unit="%",
        met=left[NOW] <= left["blocks"],
        how=f"{WATCHES} drawn watches a world and rule, {PAIRS_AN_HOUR} pairs an hour, epsilon {EPSILON:g}; "
        f"by blocks {left['blocks']:.1f} %",
        detail=found,
    )


def shown(case: tuple[Swings, float], rule: str) -> dict[str, float]:
    """How many are rolled back in a day and in a week, in percent, and the median of the hours until then."""
    draw = np.random.default_rng([17, PAIRS_AN_HOUR])
    hours = np.array([hours_until(case, RULES[rule], draw) for _ in range(WATCHES)])
    return {
        "in a day": round(100 * float(np.mean(hours <= DAY)), 1),
        "in a week": round(100 * float(np.mean(hours <= WEEK)), 1),
        "median hours": float(np.quantile(hours, 0.5, method="higher")),
    }


def hours_until(case: tuple[Swings, float], rule: Rule, draw: Draw) -> float:
    """After how many hours a watch rolls back; infinity for never."""
    swings, loss = case
    found = outcomes(swings(draw, WEEK) - loss, PAIRS_AN_HOUR, draw)
    return next((float(hour) for hour in range(1, WEEK + 1) if rule(found[:, :hour])), np.inf)
