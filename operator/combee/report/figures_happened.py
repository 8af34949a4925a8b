"""Figures of where the time went: the critical path by part, and the latencies of calls by stage."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from combee.report import happened, svg
from combee.report.draw import MANY, Figure, draw, grid, legend
from combee.report.result import Result, StageTime
from combee.report.text import duration, visible
from combee.steps import kind_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADES = ((svg.FIRST, 1.0), (svg.SECOND, 1.0), (svg.FIRST, 0.45), (svg.SECOND, 0.45))
SHADES = {**dict(zip(happened.LEARNING, cycle(_SHADES), strict=False)), "other": (svg.GRID, 1.0)}
NAMES = {"select": "held-out score", "other": "not model time"}


def critical_path(result: Result) -> Figure | None:
    """Draw a stacked bar for each iteration, or one bar for all when there are more than ``MANY``."""
    timed = [(f"{it.iteration}", happened.parts(it)) for it in result.iterations if it.stages]
    if not timed:
        return None
    together = len(timed) > MANY
    if together:
        total = {name: sum(parts[name] for _, parts in timed) for name in SHADES}
        timed = [(f"{len(timed)} iterations", total)]

    def paint(axes: Axes) -> None:
        grid(axes, "x")
        left = [0.0] * len(timed)
        places = [-float(row) for row in range(len(timed))]
        for name, (colour, alpha) in SHADES.items():
            widths = [parts[name] for _, parts in timed]
            label = NAMES.get(name, name)
            axes.barh(places, widths, left=left, height=0.6, color=colour, alpha=alpha, label=label)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(places, [label for label, _ in timed])
        axes.set_xlim(0, 1.04 * max(*left, 0.001))
        axes.set_ylim(-len(timed) + 0.4, 0.6)
        axes.set_xlabel("time of all iterations (s)" if together else "time of an iteration (s)")
        axes.set_ylabel("iteration" if len(timed) > 1 or len(result.iterations) == 1 else "")
        legend(axes, 3)

    bars = "; ".join(
        f"iteration {label}: "
        + ", ".join(f"{NAMES.get(name, name)} {duration(s)}" for name, s in parts.items())
        for label, parts in timed
    )
    alt = f"Where the time went: {bars}"
    caption = "The critical path by part, and what the wall clock took beyond it."
    return draw("path", "Where the time went", 1.15 + 0.3 * len(timed), paint, alt, caption)


def latencies(result: Result) -> Figure | None:
    """Draw the latencies of each stage from the median to the slowest call."""
    stages = happened.stage_sums(result)
    if not stages:
        return None

    def paint(axes: Axes) -> None:
        top = max(one.max for one in stages) or 1.0
        for row, one in enumerate(stages):
            y = -float(row)
            axes.plot([one.p99, one.max], [y, y], color=svg.GRID, linewidth=2)
            axes.plot([one.p50, one.p99], [y, y], color=svg.FIRST, linewidth=2, alpha=0.45)
            axes.plot([one.p50, one.p90, one.p99], [y] * 3, "o", color=svg.FIRST, markersize=4)
            axes.plot([one.max], [y], "|", color=svg.SECOND, markersize=9, markeredgewidth=2)
            axes.text(0, y + 0.24, visible(_name(one))[:30], color=svg.INK, va="bottom")
            numbers = f"{duration(one.p50)} · {duration(one.p99)} · {duration(one.max)}"
            axes.text(top, y + 0.24, numbers, color=svg.INK, va="bottom", ha="right")
        axes.set_xlim(0, 1.03 * top)
        axes.set_ylim(-len(stages) + 0.6, 0.85)
        axes.set_yticks([])
        axes.set_xlabel("latency of a call (s): p50, p90, p99, and the slowest")

    quantiles = "; ".join(
        f"{_name(one)} p50 {duration(one.p50)}, p90 {duration(one.p90)}, p99 {duration(one.p99)}, "
        f"slowest {duration(one.max)}"
        for one in stages
    )
    alt = f"Latency of a call by stage: {quantiles}"
    caption = "Dots: p50, p90, p99. Bar: the slowest. Numbers: p50, p99 and the slowest."
    return draw("latency", "Latency of a call by stage", 0.7 + 0.42 * len(stages), paint, alt, caption)


def _name(one: StageTime) -> str:
    return f"{one.step}: {one.stage}" if kind_of(one.step).opens else one.stage
