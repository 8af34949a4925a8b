"""Where does serial learning become level? Curves with a planted plateau, read after every evaluation as a
diagnosis reads them, until a plateau is found. The figure is how often the evaluation at which it is said to
begin is the true one or one beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import Row
from combee.algo.convergence import Point, paired_error, read_curve
from combee.algo.stats import wilson

SEEDS = 1000
PATIENCE = 3
LEAST_NEAR = 0.95
DIFFERENT = 1.0
SAME = 0.3
"""The share of a row's luck that each playbook draws anew, where all evaluations are of the same rows, as in
the simulated model."""
AT_MOST_AFTER = 15
"""Evaluations after the truth in which a plateau has to be found."""


@dataclass(frozen=True)
class Kind:
    """What the scores of a curve are of."""

    rows: int
    fresh: float

    def __str__(self) -> str:
        return f"{self.rows} {'different' if self.fresh == DIFFERENT else 'of the same'} rows"


HEADLINE = Kind(200, DIFFERENT)
KINDS = (HEADLINE, Kind(150, SAME), Kind(60, SAME), Kind(60, DIFFERENT), Kind(40, SAME))


def plateaus(folder: Path) -> Row:
    """How often a planted plateau is found within one evaluation of the truth."""
    shares = {str(kind): near(kind, range(SEEDS)) for kind in KINDS}
    detail: dict[str, Any] = {name: in_words(share) for name, share in shares.items()}
    lines = sum(finds_on_a_line(HEADLINE, seed) for seed in range(SEEDS)) / SEEDS
    return Row(
        name="a planted plateau is found within one evaluation",
        figure=round(shares[str(HEADLINE)], 3),
        target=f">= {LEAST_NEAR:g}",
        unit="",
        met=shares[str(HEADLINE)] >= LEAST_NEAR,
        how=f"{SEEDS:,} seeded curves each, that rise by 20 to 30 points over 3 to 6 evaluations",
        detail=detail | {f"of lines that never level ({HEADLINE}), called level": round(lines, 3)},
    )


def in_words(share: float) -> str:
    """A share of the seeds with its 95 % Wilson interval."""
    low, high = wilson(share, SEEDS, 1.96)
    return f"{share:.3f} ({low:.3f} to {high:.3f})"


def near(kind: Kind, seeds: Iterable[int]) -> float:
    """The share of the curves whose plateau is found within one evaluation of the truth."""
    pairs = [found_at(kind, seed) for seed in seeds]
    return sum(found is not None and abs(found - knee) <= 1 for knee, found in pairs) / len(pairs)


def found_at(kind: Kind, seed: int) -> tuple[int, int | None]:
    """(the planted evaluation from which on the curve is level, the one that was found)."""
    draw = np.random.default_rng([seed, kind.rows])
    knee, start, rise = int(draw.integers(3, 7)), 0.5 + 0.15 * draw.random(), 0.2 + 0.1 * draw.random()
    gains = [rise * min(place, knee) / knee for place in range(knee + AT_MOST_AFTER)]
    return knee, _found(kind, draw, start, gains)


def finds_on_a_line(kind: Kind, seed: int) -> bool:
    """Whether a plateau is found in twelve evaluations of a curve that rises all the way."""
    draw = np.random.default_rng([seed, kind.rows, 7])
    start, rise = 0.5 + 0.15 * draw.random(), 0.2 + 0.1 * draw.random()
    return _found(kind, draw, start, [rise * place / 11 for place in range(12)]) is not None


def _found(kind: Kind, draw: np.random.Generator, start: float, gains: Iterable[float]) -> int | None:
    kept, points, first = draw.random(kind.rows), list[Point](), np.zeros(kind.rows)
    for place, gain in enumerate(gains):
        luck = np.where(draw.random(kind.rows) < kind.fresh, draw.random(kind.rows), kept)
        right = (luck < start + gain).astype(float)
        first = first if points else right
        # A diagnosis knows of the same rows which of them changed.
        same = points and kind.fresh < DIFFERENT
        error = paired_error((right - first).tolist()) if same else None
        points.append(Point(50 * place, float(np.mean(right)), kind.rows, error))
        reading = read_curve(points, PATIENCE)
        if reading.verdict == "Plateau":
            return reading.at // 50
    return None
