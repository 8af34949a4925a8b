"""The plot: held-out accuracy against modelled time, the paper's points beside ours and labelled as the paper's."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from combee.runtime.compare.paper import PAPER
from combee.runtime.compare.table import Row
from combee.runtime.report.text import duration, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, PAPERS = ("#1f6fd0", "#8a8f98")
_MARKERS = ("s", "^", "D")
_SETTINGS: Any = {"svg.hashsalt": "combee", "font.size": 9.5, "text.parse_math": False}
_DPI = 130


def plot(rows: Sequence[Row], task_type: str) -> tuple[str, bytes]:
    """(SVG, PNG) of one task. Equal rows give equal bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(8.2, 6.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        _paint(axes, rows, task_type)
        figure.legend(fontsize=8, frameon=False, loc="outside lower left")
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def _paint(axes: Axes, rows: Sequence[Row], task_type: str) -> None:
    simulated = any(one.result.simulated for row in rows for one in row.cells)
    for number, series in enumerate(dict.fromkeys(point.series for point in PAPER.get(task_type, ()))):
        points = [point for point in PAPER[task_type] if point.series == series]
        xs, ys = [p.seconds for p in points], [p.accuracy for p in points]
        axes.plot(
            xs,
            ys,
            _MARKERS[number % 3],
            color=PAPERS,
            markerfacecolor="none",
            label=f"{series} (its wall-clock)",
        )
        for point in points:
            _label(axes, point.name, point.seconds, point.accuracy, PAPERS, 7.5, 0, -11)
    ours = f"ours, modelled time{' (simulated model)' if simulated else ''}"
    for number, row in enumerate(sorted(rows, key=lambda row: row.seconds), start=1):
        low, high = (row.score.low, row.score.high) if row.score.n > 1 else (row.score.mean, row.score.mean)
        axes.plot([row.seconds] * 2, [low, high], color=OURS, linewidth=1.6)
        said = f"{number}  {row.strategy}: {score(row.score.mean)} in {duration(row.seconds)}, {ours}"
        axes.plot([row.seconds], [row.score.mean], "o", color=OURS, label=said)
        _label(axes, str(number), row.seconds, row.score.mean, OURS, 9.5, 7, 7)
    if rows:
        start = sum(row.start for row in rows) / len(rows)
        axes.axhline(start, color=OURS, linewidth=0.8, linestyle=(0, (3, 3)), label="our start, untouched")
    axes.set_xscale("log", subs=(2, 5))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:,.0f}")
    axes.set_xlabel("seconds of the whole run, log scale")
    axes.set_ylabel("held-out accuracy (does not start at zero)")
    axes.set_title(f"{task_type}: accuracy against time{', simulated model' if simulated else ''}")
    axes.grid(color="#e6e7ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(0.14)


def _label(
    axes: Axes, text: str, x: float, y: float, color: str, size: float, right: float, up: float
) -> None:
    axes.annotate(
        text, (x, y), (right, up), textcoords="offset points", ha="center", color=color, fontsize=size
    )
