"""Canaries as weak as a manifest may make them: how often do they promote what is worse?

A candidate passed heldOut and loses so many points on traffic, in independent pairs. Each canary looks after
every STEP pairs, and its time is over: what is left of it is epsilon and minSamples. The first rule is the
weakest manifest that was taken before failureCost bounded it; the others are the weakest taken now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from bench.harness import Row
from combee.algo.canary import ALPHA, Rules
from combee.algo.sequence import GRID, above, below
from combee.api.stakes import WEAKEST

CANARIES, PAIRS, STEP = 500, 1_500, 20
LOSSES = (0.02, 0.05, 0.10, 0.20)
TOLD = 0.20
"""The loss of the figure."""
DISAGREE = 0.10
"""The share of pairs that a candidate wins; it loses as many, and what it is worse by."""
BEFORE = Rules(epsilon=0.3, min_samples=1, duration_seconds=0, deadline_seconds=1)
NOW = {
    cost: Rules(least.epsilon, least.min_samples, least.duration_seconds, least.duration_seconds + 1)
    for cost, least in WEAKEST.items()
}


def weak(folder: Path) -> Row:
    """The share of canaries that promote a candidate which loses 20 points, by the weakest rule taken now."""
    rules = {"epsilon 0.3, one sample, 0 s (taken before)": BEFORE}
    rules |= {f"the weakest with failureCost {cost}": rule for cost, rule in NOW.items()}
    found = {name: {loss: promoted(loss, rule) for loss in LOSSES} for name, rule in rules.items()}
    worst = max(promoted(TOLD, rule) for rule in NOW.values())
    return Row(
        name="weakest canaries that promote a loss of 20 points",
        figure=round(100 * worst, 2),
        target=f"<= {50 * ALPHA:g}",
        unit="%",
        met=worst <= ALPHA / 2,
        how=f"{CANARIES} canaries of a kind, {PAIRS:,} independent pairs each, looked at after every {STEP}; "
        "worst failureCost",
        detail={
            name: {f"loses {100 * loss:.0f} points": round(100 * share, 1) for loss, share in shares.items()}
            for name, shares in found.items()
        },
    )


def promoted(loss: float, rules: Rules) -> float:
    """The share of canaries that pass under ``rules``, of candidates that lose ``loss`` in the mean."""
    draw = np.random.default_rng([round(1000 * loss), round(1000 * rules.epsilon)])
    odds = [DISAGREE + loss, 1 - 2 * DISAGREE - loss, DISAGREE]
    return float(
        np.mean([_passes(draw.choice([-1, 0, 1], p=odds, size=PAIRS), rules) for _ in range(CANARIES)])
    )


def _passes(differences: np.ndarray, rules: Rules) -> bool:
    """Whether one canary passes: it ends with the first look that refutes either claim."""
    counts: Counter[int] = Counter()
    for first in range(0, PAIRS, STEP):
        counts.update((GRID * differences[first : first + STEP]).tolist())
        if below(counts, -rules.epsilon, rules.alpha):
            return False
        if first + STEP >= rules.min_samples and above(counts, -rules.epsilon, rules.alpha):
            return True
    return False
