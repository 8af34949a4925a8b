"""Whether an evaluator's scores order answers as a second opinion's do: Spearman's rho and its interval.

The sample grows while its interval still holds THRESHOLD: it is looked at up to LOOKS times, each time with
twice as many pairs, and all looks together err with 1 - CONFIDENCE at most (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

THRESHOLD = 0.7
"""The rho that an evaluator has to reach."""
LEAST_PAIRS = 50
SHARE = 0.05
"""of all rows: so many pairs are compared at least, and never fewer than LEAST_PAIRS."""
CONFIDENCE = 0.95
LOOKS = 3
MOST_TIED = 0.9
"""Where one value makes up a larger share of either side, ranks tell next to nothing."""

Verdict = Literal["Calibrated", "NotCalibrated", "Inconclusive"]


EVALUATOR, PROXY = "calibration", "proxy"
"""What is compared: the evaluator with a second opinion, or its proxy with the evaluator."""
_GROW = "give more rows: labelled ones, or of train where a referee scores"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a comparison shows. ``low``..``high`` holds at the confidence of one look; it is -1..1, and rho 0,
    where ranks tell nothing."""

    rho: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> Verdict:
        """NotCalibrated where the whole interval lies below THRESHOLD, Calibrated where all of it reaches it;
        Inconclusive otherwise, and where there are under LEAST_PAIRS."""
        if self.pairs < LEAST_PAIRS:
            return "Inconclusive"
        if self.high < THRESHOLD:
            return "NotCalibrated"
        return "Calibrated" if self.low >= THRESHOLD else "Inconclusive"

    def figures(self, of: str = EVALUATOR) -> dict[str, float]:
        """Return the numbers by name, for a step's summary; ``read_figures`` reads them. ``of``: what was
        compared."""
        return dict(zip(_names(of), (self.rho, self.low, self.high, float(self.pairs)), strict=True))

    def __str__(self) -> str:
        return self.words()

    def words(self, grow: str = _GROW) -> str:
        """Return it in a sentence. ``grow``: what to do where it shows nothing."""
        interval = f"[{self.low:.2f}, {self.high:.2f}]"
        figures = f"Spearman's rho is {self.rho:.2f} {interval} on {self.pairs:,} answers"
        if self.pairs < LEAST_PAIRS:
            return f"{self.pairs} answers were compared, and {LEAST_PAIRS} are asked for: {grow}"
        if self.verdict == "NotCalibrated":
            return f"{figures}, and all of its interval lies below {THRESHOLD:g}"
        if self.verdict == "Calibrated":
            return f"{figures}, and all of its interval reaches {THRESHOLD:g}"
        if (self.low, self.high) == _ANYTHING:
            ties = "one side's scores are nearly all equal, so that ranks tell nothing"
            return f"On {self.pairs:,} answers {ties}: {grow}"
        return f"{figures}, and its interval holds {THRESHOLD:g}: {grow}"


def _names(of: str) -> tuple[str, ...]:
    return tuple(f"{of}{name}" for name in ("Rho", "Low", "High", "Pairs"))


_ANYTHING = (-1.0, 1.0)


def read_figures(scores: Mapping[str, float], of: str = EVALUATOR) -> Calibration | None:
    """Return the calibration in a summary's scores; None where there is none.

    >>> found = Calibration(0.8, 0.7, 0.9, 60)
    >>> read_figures(found.figures()) == found, read_figures(found.figures(), PROXY)
    (True, None)
    """
    names = _names(of)
    if not all(name in scores for name in names):
        return None
    rho, low, high, pairs = (scores[name] for name in names)
    return Calibration(rho, low, high, int(pairs))


def sample_sizes(rows: int, available: int) -> tuple[int, ...]:
    """Return after how many pairs to look, ascending, of ``available`` ones; ``rows`` are those of the data.

    >>> sample_sizes(400, 400), sample_sizes(3000, 200), sample_sizes(80, 30)
    ((50, 100, 200), (150, 200), (30,))
    """
    least = max(LEAST_PAIRS, math.ceil(SHARE * rows))
    sizes = (min(available, least * 2**look) for look in range(LOOKS))
    return tuple(dict.fromkeys(size for size in sizes if size > 0))


def calibration(scores: Sequence[float], others: Sequence[float]) -> Calibration:
    """Return what pairs of scores show, of which the n-th of each is about the same answer.

    Hardly anything but ties on one side tells nothing. Source: Spearman 1904, average ranks for ties;
    Fisher's z with the standard error of Bonett and Wright 2000, sqrt((1 + rho^2 / 2) / (n - 3)). Cost:
    O(n log n).

    >>> calibration([n / 60 for n in range(60)], [n * n for n in range(60)]).verdict
    'Calibrated'
    """
    n = len(scores)
    if n < LEAST_PAIRS or max(_commonest(side) for side in (scores, others)) > MOST_TIED:
        return Calibration(0.0, *_ANYTHING, n)
    rho = float(np.corrcoef(_ranks(scores), _ranks(others))[0, 1])
    return Calibration(rho, *_interval(rho, n), n)


def _commonest(values: Sequence[float]) -> float:
    """Return the share of the commonest value."""
    return float(np.unique(np.asarray(values), return_counts=True)[1].max()) / len(values)


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return ranks from 1 on; equal values share the mean of theirs."""
    _, group, counts = np.unique(
        np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[group.ravel()], dtype=np.float64)


def _interval(rho: float, n: int) -> tuple[float, float]:
    limit = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / LOOKS / 2)
    inner = max(-1 + 1e-12, min(1 - 1e-12, rho))
    half = limit * math.sqrt((1 + inner * inner / 2) / (n - 3))
    return math.tanh(math.atanh(inner) - half), math.tanh(math.atanh(inner) + half)
