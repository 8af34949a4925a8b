"""Playbooks whose candidates gain nothing: how many ever promote one, and what it costs not to?

All candidates of a lifetime are compared on the same rows of gate. Each differs from the active version on a
row with the same probability in either direction, so it is worth exactly as much; the active version is right
on ACCURACY of all questions, and on some other share of these rows. The rule that this one replaces judges
every candidate as the first."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.harness import Row
from combee.algo.gates import Compared, corrected_gain, held_out_verdict
from combee.algo.spending import look_confidence
from combee.algo.stats import gate_power

LIFETIMES = 200
MANY = 5_000
"""Lifetimes that the figure is made of: 200 leave three points of doubt."""
CANDIDATES = 1_000
CONFIDENCE = 0.95
ALLOWED = 1 - CONFIDENCE
ACCURACY = 0.6
DISCORDANCES = (0.066, 0.2)
"""Measured between two playbooks of the simulated model on Formula, and three times as much."""
ROWS_ON_GATE = (150, 300, 1000)
GAIN = 0.10
EVERY = 10
LIMIT = 0.9
"""Where some candidates are better, each of this number is, by GAIN, until the active one is that good."""
LOOKS = (1, 10, 100)
DRAWS = 20_000

Counts = NDArray[np.int64]


def lifetimes(folder: Path) -> Row:
    """The share of lifetimes that ever promote a candidate without gain, in the worst world."""
    detail: dict[str, dict[str, float]] = {}
    worst = few = 0.0
    for rows in ROWS_ON_GATE:
        for share in DISCORDANCES:
            wins, losses = without_gain(rows, share)
            now = promoted(wins, losses, rows, numbered(wins))
            # As if a run that measured no gain, and so makes no version, were no look.
            gains = np.cumsum(wins > losses, axis=1)
            uncounted = promoted(wins, losses, rows, np.maximum(gains, 1))
            worst, few = max(worst, now.mean()), max(few, now[:LIFETIMES].mean())
            detail[f"no gain, {rows:,} rows, {100 * share:g} % differ"] = percent(
                before_of_200=as_first(wins[:LIFETIMES], losses[:LIFETIMES], rows).mean(),
                now=now.mean(),
                of_200=now[:LIFETIMES].mean(),
                if_only_gains_were_looks=uncounted.mean(),
            )
    for before in (True, False):
        detail[f"some are better, 300 rows, {'before' if before else 'now'}"] = some_better(
            300, before=before
        )
    for rows in ROWS_ON_GATE[:2]:
        detail[f"a gain of {GAIN:.2f} passes, {rows} rows"] = {
            f"look {look}": round(100 * power(rows, look), 1) for look in LOOKS
        }
    for gain in (0.0, 0.05, GAIN):
        detail[f"what passed, true gain {gain:.2f}, 300 rows"] = winners(300, gain)
    return Row(
        name="lifetimes that promote a candidate without gain",
        figure=round(100 * worst, 2),
        target=f"<= {100 * ALLOWED:.3g}",
        unit="%",
        met=bool(worst <= ALLOWED),
        how=f"{MANY:,} lifetimes of {CANDIDATES:,} candidates a world, worst world (of the first {LIFETIMES} "
        f"{100 * few:.1f} %); 'before' judges each candidate at {100 * CONFIDENCE:g} %",
        detail=detail,
    )


def percent(**shares: float) -> dict[str, float]:
    """In percent, as the table shows it."""
    return {name.replace("_", " "): round(100 * float(share), 2) for name, share in shares.items()}


def without_gain(rows: int, share: float) -> tuple[Counts, Counts]:
    """Wins and losses of each candidate of each lifetime, against one active version on the same rows."""
    draw = np.random.default_rng([rows, round(1000 * share)])
    right = draw.binomial(rows, ACCURACY, size=(MANY, 1))
    to_right, to_wrong = flips(ACCURACY, share, 0.0)
    size = (MANY, CANDIDATES)
    return draw.binomial(rows - right, to_right, size=size), draw.binomial(right, to_wrong, size=size)


def flips(accuracy: float, share: float, gain: float) -> tuple[float, float]:
    """The probabilities with which a wrong row comes right and a right one goes wrong."""
    return (share / 2 + gain) / (1 - accuracy), share / 2 / accuracy


def numbered(wins: Counts) -> Counts:
    """The look that each candidate is, where all are counted."""
    return np.broadcast_to(np.arange(1, wins.shape[1] + 1), wins.shape)


def as_first(wins: Counts, losses: Counts, rows: int) -> NDArray[np.bool_]:
    """The same by the rule before: each candidate is judged as the first."""
    return promoted(wins, losses, rows, np.ones_like(wins))


def promoted(wins: Counts, losses: Counts, rows: int, looks: Counts) -> NDArray[np.bool_]:
    """Whether a lifetime ever promotes a candidate, judged as the looks of these numbers."""
    # The gate never passes what the sign test does not; so few are left to ask it of.
    from scipy.special import bdtr

    differ = wins + losses
    error = (1 - CONFIDENCE) / (looks * (looks + 1.0))
    likely = (wins > losses) & (bdtr(np.minimum(losses, differ), np.maximum(differ, 1), 0.5) <= error * 1.001)
    ever = np.zeros(len(wins), dtype=bool)
    for lifetime, candidate in zip(*np.nonzero(likely), strict=True):
        at = lifetime, candidate
        if not ever[lifetime] and passes(int(wins[at]), int(losses[at]), rows, int(looks[at])):
            ever[lifetime] = True
    return ever


@cache
def passes(wins: int, losses: int, rows: int, look: int) -> bool:
    """Whether the product's gate passes it."""
    found = compared(wins, losses, rows)
    said = held_out_verdict(found, min_score=None, min_gain=0.0, confidence=CONFIDENCE, look=look)
    return said.outcome == "Passed"


def some_better(rows: int, *, before: bool) -> dict[str, float]:
    """Where each EVERY-th candidate is better until accuracy is at LIMIT: the share of lifetimes that promote
    one without gain, and the accuracy of what is active in the end. The rows stay the same."""
    draw, wrong, reached = np.random.default_rng([rows, EVERY]), 0, 0.0
    for _ in range(LIFETIMES):
        accuracy, right, luck = ACCURACY, draw.random(rows) < ACCURACY, False
        for look in range(1, CANDIDATES + 1):
            gain = GAIN if look % EVERY == 0 and accuracy + GAIN <= LIMIT else 0.0
            to_right, to_wrong = flips(accuracy, DISCORDANCES[0], gain)
            new = right ^ (draw.random(rows) < np.where(right, to_wrong, to_right))
            wins, losses = int(np.sum(new & ~right)), int(np.sum(right & ~new))
            if wins > losses + 4 and passes(wins, losses, rows, 1 if before else look):
                right, accuracy, luck = new, accuracy + gain, luck or not gain
        wrong, reached = wrong + luck, reached + accuracy
    return percent(promote_one_without_gain=wrong / LIFETIMES, accuracy_in_the_end=reached / LIFETIMES)


def power(rows: int, look: int) -> float:
    """How often a candidate with a true gain of GAIN passes as that look."""
    error = 1 - look_confidence(CONFIDENCE, look)
    return gate_power(rows, GAIN, discordance=DISCORDANCES[0] + GAIN, alpha=error)


def winners(rows: int, gain: float) -> dict[str, float]:
    """Of candidates with that true gain that pass as first look: the mean measured and corrected gain."""
    draw = np.random.default_rng([rows, round(1000 * gain), 1])
    up, down = DISCORDANCES[0] / 2 + gain, DISCORDANCES[0] / 2
    counts = draw.multinomial(rows, [up, down, 1 - up - down], size=DRAWS)[:, :2]
    passed = [(won, lost) for won, lost in counts.tolist() if passes(won, lost, rows, 1)]
    return {
        "pass, %": round(100 * len(passed) / DRAWS, 1),
        "measured": round(float(np.mean([(won - lost) / rows for won, lost in passed])), 3),
        "corrected": round(float(np.mean([corrected(won, lost, rows) for won, lost in passed])), 3),
    }


@cache
def corrected(wins: int, losses: int, rows: int) -> float:
    """The gain of one that passed, as the product corrects it."""
    return corrected_gain(compared(wins, losses, rows), min_gain=0.0, confidence=CONFIDENCE)


def compared(wins: int, losses: int, rows: int) -> Compared:
    """A comparison with so many wins and losses."""
    return Compared(wins / rows, losses / rows, -1.0, 1.0, rows, confidence=0.5, discordant=wins + losses)
