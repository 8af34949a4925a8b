"""Points that the Combee paper published (arXiv 2604.04247, read from its figures), for the plot.

Their seconds are wall-clock on their servers with a real model; ours are modelled. Only the shape can
be compared: how much time a larger batch saves, and how much accuracy it costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.compare.strategies import Strategy
from combee.report.text import duration, score


@dataclass(frozen=True, slots=True)
class PaperPoint:
    """One published run: accuracy in [0, 1] after so many seconds; None where the paper does not state
    them."""

    series: str
    name: str
    seconds: float | None
    accuracy: float


def _row(series: str, *points: tuple[str, float | None, float]) -> tuple[PaperPoint, ...]:
    return tuple(PaperPoint(series, name, seconds, accuracy) for name, seconds, accuracy in points)


_GEPA = "paper, GEPA with DeepSeek-V3.1"
_OSS = "paper, GPT-OSS 120B"
_COMPRESSED = "paper, GEPA at the large batch, time not stated"
PAPER: dict[str, tuple[PaperPoint, ...]] = {
    "Formula": (
        *_row(
            _GEPA,
            ("b = 5", 2978, 0.855),
            ("b = 10", 1891, 0.860),
            ("b = 25", 841, 0.855),
            ("b = 50", 506, 0.810),
            ("b = 100", 356, 0.723),
            ("Combee", 335, 0.857),
        ),
        *_row(
            _COMPRESSED,
            ("Summarize", None, 0.66),
            ("TopK", None, 0.72),
        ),
        *_row(_OSS, ("b = 10", 2300, 0.88), ("b = 100", 530, 0.825), ("Combee", 550, 0.875)),
    ),
    "FiNER": (
        *_row(
            _GEPA,
            ("b = 5", 2893, 0.731),
            ("b = 10", 1568, 0.751),
            ("b = 25", 731, 0.751),
            ("b = 50", 507, 0.723),
            ("b = 100", 450, 0.680),
            ("Combee", 431, 0.748),
        ),
        *_row(
            _COMPRESSED,
            ("Summarize", None, 0.675),
            ("TopK", None, 0.685),
        ),
        *_row(_OSS, ("b = 50", 1000, 0.645), ("b = 100", 810, 0.57), ("Combee", 830, 0.65)),
    ),
}
"""Task type -> points."""
_SMALLEST = "b = 5"


def published(task_type: str, strategy: Strategy) -> PaperPoint | None:
    """Return the paper's GEPA run that matches a strategy; None where there is none. Its smallest batch
    matches ``Sequential``, which begins nothing ahead; its single call for a whole batch matches ``Naive`` of
    that size."""
    if strategy.ahead:
        return None
    wanted_name = {
        "Sequential": _SMALLEST,
        "Naive": f"b = {strategy.size}",
        "TopK": "TopK",
        "Summarize": "Summarize",
        "ParallelScan": "Combee",
    }[strategy.name]
    points = (point for point in PAPER.get(task_type, ()) if point.series in (_GEPA, _COMPRESSED))
    return next((point for point in points if point.name == wanted_name), None)


def paper_text(task_type: str) -> list[str]:
    """Return a sentence for each series of the paper's points for a task type; empty where it has none."""
    by_series: dict[str, list[str]] = {}
    for point in PAPER.get(task_type, ()):
        at = f" in {duration(point.seconds)}" if point.seconds is not None else ""
        by_series.setdefault(point.series, []).append(f"{point.name} {score(point.accuracy)}{at}")
    return [f"The {series}: {'; '.join(points)}." for series, points in by_series.items()]
