"""docs/sensitivity.svg: paired differences along each axis. Equal results give equal bytes."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import Any

from bench.sensitivity_cells import AXES, CONTRASTS, Axis, Contrast, cell_name, cells, shown
from bench.sensitivity_table import LOSES, Difference

COLOURS = ("#1f6fd0", "#c2571a", "#6b4fa3")
MARKERS = ("o", "s", "^")
PANELS = (CONTRASTS[:3], CONTRASTS[3:6])
"""The contrasts of a panel. The last contrast, one call for the whole batch, is far above the others, so that
it would leave no room to see them: it is in the tables."""
COLUMNS = 4
INK, LOSS = "#33373d", "#fbe9e7"
MARGIN = 7.0
"""points above and below all means."""
_SETTINGS: Any = {
    "svg.hashsalt": "combee",
    "svg.fonttype": "path",
    "font.size": 8.5,
    "text.parse_math": False,
}


def plot(found: Sequence[Difference]) -> str:
    """The SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        blocks = [AXES[start : start + COLUMNS] for start in range(0, len(AXES), COLUMNS)]
        figure = Figure(figsize=(14.5, 5.6 * len(blocks)), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        grid = figure.subplots(len(PANELS) * len(blocks), COLUMNS, sharey="row", squeeze=False)
        for number, block in enumerate(blocks):
            for panel, contrasts in enumerate(PANELS):
                line = grid[number * len(PANELS) + panel]
                for cell, axis in zip(line, block, strict=True):
                    _paint(cell, axis, contrasts, found)
                names = {_cell_at(axis, value) for axis in block for value in axis.values}
                _limit(line, [one for one in found if one.contrast in contrasts and one.cell.name in names])
                line[0].set_ylabel("points of held-out accuracy")
                line[-1].legend(fontsize=7.5, frameon=False, loc="best")
        figure.suptitle(
            "Paired differences, Formula, batch 100 of 250, 95 % intervals over seeds; simulated model. "
            "Below 0 (shaded) the first named loses; filled marks lose for sure.",
            fontsize=9.5,
        )
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return svg.getvalue()


def _paint(axes: Any, axis: Axis, contrasts: Sequence[Contrast], found: Sequence[Difference]) -> None:
    values = sorted(axis.values)
    names = {value: _cell_at(axis, value) for value in values}
    for contrast in contrasts:
        number = contrasts.index(contrast)
        shift = 0.12 * (number - (len(contrasts) - 1) / 2)
        mine = {one.cell.name: one for one in found if one.contrast == contrast}
        placed = [(at + shift, mine[names[v]]) for at, v in enumerate(values) if names[v] in mine]
        colour = COLOURS[number]
        xs, ys = [x for x, _ in placed], [100 * one.over_seeds.mean for _, one in placed]
        axes.plot(xs, ys, color=colour, linewidth=1.0)
        for x, one in placed:
            seeds = one.over_seeds
            if not math.isinf(seeds.low):
                axes.plot([x, x], [100 * seeds.low, 100 * seeds.high], color=colour, linewidth=1.4)
            fill = colour if one.verdict == LOSES else "white"
            axes.plot(
                [x], [100 * seeds.mean], MARKERS[number], color=colour, markerfacecolor=fill, markersize=5.5
            )
        axes.plot([], [], MARKERS[number] + "-", color=colour, markerfacecolor="white", label=contrast.title)
    axes.axhline(0, color=INK, linewidth=0.9)
    axes.axhspan(-200, 0, color=LOSS, zorder=0)
    axes.set_xticks(range(len(values)), [f"{shown(value)}" for value in values])
    axes.set_xlim(-0.5, len(values) - 0.5)
    axes.set_xlabel(axis.title)
    axes.grid(axis="y", color="#e6e7ea", linewidth=0.7)
    axes.set_axisbelow(True)


def _limit(line: Sequence[Any], found: Sequence[Difference]) -> None:
    """All means and what is usual of the intervals: a few are wider than the picture."""
    means = [100 * one.over_seeds.mean for one in found] or [0.0]
    low, high = min([*means, 0.0]), max([*means, 0.0])
    line[0].set_ylim(low - MARGIN, high + MARGIN)


def _cell_at(axis: Axis, value: float) -> str:
    default = cells()[0]
    return default.name if default.at(axis) == value else cell_name(axis, value)
