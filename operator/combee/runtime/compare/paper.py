"""Points that the Combee paper published (arXiv 2604.04247, read from its figures), beside ours in the plot.

Their seconds are wall-clock on their servers with a real model; ours are modelled. What can be compared
is the shape: how much time a larger batch saves, and how much accuracy it costs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperPoint:
    """One published run: accuracy in [0, 1] after so many seconds."""

    series: str
    name: str
    seconds: float
    accuracy: float


def _row(series: str, *points: tuple[str, float, float]) -> tuple[PaperPoint, ...]:
    return tuple(PaperPoint(series, name, seconds, accuracy) for name, seconds, accuracy in points)


_GEPA = "paper, GEPA with DeepSeek-V3.1"
_OSS = "paper, GPT-OSS 120B"
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
        *_row(_OSS, ("b = 50", 1000, 0.645), ("b = 100", 810, 0.57), ("Combee", 830, 0.65)),
    ),
}
"""Task type -> points."""
