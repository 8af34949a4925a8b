"""Runs without a gain: how often is one called Learned?

Each row of gate differs between the start and what was learned with probability DISCORDANCE (measured between
two playbooks of the simulated model on Formula), in either direction alike. So what was learned is worth
exactly as much as the start, and each run that says otherwise is wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bench.harness import Row
from combee.algo.gates import CONFIDENCE, compare
from combee.plan.decide import gated
from combee.plan.types import Outcome

RUNS = 20_000
DISCORDANCE = 0.066
ROWS_ON_GATE = (30, 75, 150, 300, 1000)
GAIN = 0.10
"""The true gain of the runs that are worth something."""
ALLOWED = 0.025
"""One side of the 95 % interval."""


def outcomes(folder: Path) -> Row:
    """The share of runs without a gain that end as Learned, at the worst number of rows."""
    without = {rows: shares(rows, 0.0) for rows in ROWS_ON_GATE}
    worst = max(found["Learned"] for found in without.values())
    detail = {f"no gain, {rows:,} rows on gate": percent(found) for rows, found in without.items()}
    detail |= {
        f"gain {GAIN:.2f}, {rows:,} rows on gate": percent(shares(rows, GAIN)) for rows in ROWS_ON_GATE
    }
    return Row(
        name="runs without a gain that end as Learned",
        figure=round(100 * worst, 2),
        target=f"<= {100 * ALLOWED:g}",
        unit="%",
        met=worst <= ALLOWED,
        how=f"{RUNS:,} drawn runs a number of rows; a row differs with probability {DISCORDANCE:g}; worst "
        "number of rows; 'above zero' is the rule that it replaces",
        detail=detail,
    )


def shares(rows: int, gain: float) -> dict[str, float]:
    """Outcome -> share of runs whose true gain is ``gain``, and the share measured above zero."""
    draw = np.random.default_rng([rows, round(1000 * gain)])
    up = DISCORDANCE / 2 + gain
    counts = draw.multinomial(rows, [up, DISCORDANCE / 2, 1 - up - DISCORDANCE / 2], size=RUNS)[:, :2]
    found: dict[str, float] = {"above zero": float(np.mean(counts[:, 0] > counts[:, 1]))}
    for (wins, losses), times in zip(*np.unique(counts, axis=0, return_counts=True), strict=True):
        name = outcome(int(wins), int(losses), rows)
        found[name] = found.get(name, 0.0) + int(times) / RUNS
    return {name: found.get(name, 0.0) for name in ("above zero", "Learned", "Unsure", "NothingBetter")}


@cache
def outcome(wins: int, losses: int, rows: int) -> str:
    """How a run ends that won and lost so many rows of gate."""
    before = {str(row): float(wins <= row < wins + losses) for row in range(rows)}
    after = {str(row): float(row < wins) for row in range(rows)}
    found = compare(after, before, confidence=CONFIDENCE)
    scores = {
        "gateBest": found.score,
        "gateBaseline": found.other,
        "gateLow": found.low,
        "gateHigh": found.high,
    }
    return gated(scores, Outcome("Converged", "")).name


def percent(found: dict[str, float]) -> dict[str, float]:
    """In percent, as the table shows it."""
    return {name: round(100 * share, 2) for name, share in found.items()}
