"""The plot of held-out accuracy against modelled time, with a panel for each task and the paper's points
beside ours."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from combee.compare.labels import Box, place
from combee.compare.paper import PAPER
from combee.compare.table import FEWEST_SEEDS, Row
from combee.report.text import duration, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS, PAPERS = (("#1f6fd0", "#c2571a", "#1b8a5a", "#7b4fb5"), "#8a8f98")
"""A color for each of our methods; the paper's points are grey."""
_MARKERS = ("s", "^", "D")
_SETTINGS: Any = {"svg.hashsalt": "combee", "font.size": 9.5, "text.parse_math": False}
_DPI = 130
_WIDTH, _HEIGHT = 8.2, 6.4
"""The size of a panel in inches, with room for a legend of this many rows and what each row more takes:"""
_ROWS, _ROW_HEIGHT = 12, 0.17
_POINT, _LINE = 7.0, 2.0
"""The widths of a point and of an interval, in points of 1/72 inch."""
_LETTER = 0.62
"""The width of a letter divided by its size."""


@dataclass(frozen=True, slots=True)
class _Label:
    """``text`` beside (x, y), whose interval goes from ``low`` to ``high``."""

    text: str
    x: float
    y: float
    color: str
    size: float
    low: float
    high: float


def plot(panels: Sequence[tuple[Sequence[Row], str]]) -> tuple[str, bytes]:
    """Return (SVG, PNG) with a panel for each (rows, task type), side by side. Equal rows give equal
    bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        most = max(len(rows) for rows, _ in panels)
        height = _HEIGHT + _ROW_HEIGHT * max(0, most - _ROWS)
        figure = Figure(figsize=(_WIDTH * len(panels), height), layout="constrained")
        FigureCanvasAgg(figure)
        many = figure.subfigures(1, len(panels), squeeze=False).flat if len(panels) > 1 else (figure,)
        labels: list[tuple[Axes, list[_Label]]] = []
        for part, (rows, task_type) in zip(many, panels, strict=True):
            axes = part.subplots()
            labels.append((axes, _paint(axes, rows, task_type)))
            part.legend(fontsize=8, frameon=False, loc="outside lower left")
        figure.draw_without_rendering()  # only this fixes the points' places
        for axes, axes_labels in labels:
            _write(axes, axes_labels)
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", dpi=_DPI, metadata={"Software": None})
    return svg.getvalue(), png.getvalue()


def drawn_interval(row: Row) -> tuple[float, float]:
    """Return the interval of a row to draw: within [0, 1], and empty with too few seeds."""
    if row.score.n < FEWEST_SEEDS:
        return row.score.mean, row.score.mean
    return max(0.0, row.score.low), min(1.0, row.score.high)


def _paint(axes: Axes, rows: Sequence[Row], task_type: str) -> list[_Label]:
    """Draw everything but the labels of points, and return these, ours first."""
    simulated = any(facts.result.simulated for row in rows for facts in row.cells)
    paper_labels: list[_Label] = []
    timed = [point for point in PAPER.get(task_type, ()) if point.seconds is not None]
    for number, series in enumerate(dict.fromkeys(point.series for point in timed)):
        points = [point for point in timed if point.series == series]
        xs, ys = [p.seconds or 0.0 for p in points], [p.accuracy for p in points]
        axes.plot(
            xs,
            ys,
            _MARKERS[number % 3],
            color=PAPERS,
            markerfacecolor="none",
            label=f"{series} (its wall-clock)",
        )
        paper_labels += [
            _Label(point.name, x, y, PAPERS, 7.5, y, y) for point, x, y in zip(points, xs, ys, strict=True)
        ]
    _paint_untimed(axes, task_type)
    own_labels = _paint_ours(axes, rows, simulated)
    axes.set_xscale("log", subs=(2, 5))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.xaxis.set_minor_formatter(lambda x, _: f"{x:,.0f}")
    axes.set_xlabel("seconds of the whole run, log scale")
    axes.set_ylabel("held-out accuracy (does not start at zero)")
    axes.set_title(f"{task_type}: accuracy against time{', simulated model' if simulated else ''}")
    axes.grid(color="#e6e7ea", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(0.14)
    return [*own_labels, *paper_labels]


def _paint_ours(axes: Axes, rows: Sequence[Row], simulated: bool) -> list[_Label]:
    labels = []
    series = f"ours, modelled time{' (simulated model)' if simulated else ''}"
    methods = list(dict.fromkeys(row.method for row in rows))
    for number, row in enumerate(sorted(rows, key=lambda row: row.seconds), start=1):
        color = _color(methods, row.method)
        low, high = drawn_interval(row)
        axes.plot([row.seconds] * 2, [low, high], color=color, linewidth=1.6)
        legend = f"{number}  {row.strategy}: {score(row.score.mean)} in {duration(row.seconds)}, {series}"
        axes.plot([row.seconds], [row.score.mean], "o", color=color, label=legend)
        labels.append(_Label(str(number), row.seconds, row.score.mean, color, 9.5, low, high))
    for number, method in enumerate(methods):
        starts = [row.start for row in rows if row.method == method]
        axes.axhline(
            sum(starts) / len(starts),
            color=_color(methods, method),
            linewidth=0.8,
            linestyle=(3 * number, (3, 3)),  # two methods often start alike: the dashes interleave
            label="our start, untouched" + (f" ({method})" if len(methods) > 1 else ""),
        )
    return labels


def _color(methods: Sequence[str], method: str) -> str:
    return OURS[methods.index(method) % len(OURS)]


def _paint_untimed(axes: Axes, task_type: str) -> None:
    """Draw published accuracies without seconds: a tick at the right edge, and the name outside of it."""
    untimed = sorted(
        (point for point in PAPER.get(task_type, ()) if point.seconds is None),
        key=lambda point: point.accuracy,
    )
    for number, point in enumerate(untimed):
        axes.axhline(point.accuracy, xmin=0.97, color=PAPERS, linewidth=1.2)
        axes.annotate(
            f"{point.name} ({score(point.accuracy)})",
            (1.01, point.accuracy),
            xycoords=("axes fraction", "data"),
            ha="left",
            va="top" if number < len(untimed) / 2 else "bottom",  # keeps two close names apart
            color=PAPERS,
            fontsize=7.5,
        )
    if untimed:
        axes.plot([], [], "_", color=PAPERS, label=untimed[0].series)


def _write(axes: Axes, labels: Sequence[_Label]) -> None:
    """Write each label where it covers no point, no interval and no other label, if there is such a place."""
    scale = axes.figure.dpi / 72
    edges = [text.get_window_extent() for text in axes.texts]
    occupied = [Box((b.x0 + b.x1) / 2, (b.y0 + b.y1) / 2, b.width, b.height) for b in edges]
    anchors = []
    for label in labels:
        x, y = axes.transData.transform((label.x, label.y))
        _, low = axes.transData.transform((label.x, label.low))
        _, high = axes.transData.transform((label.x, label.high))
        anchors.append(Box(x, y, _LETTER * label.size * len(label.text) * scale, label.size * scale))
        occupied.append(Box(x, y, _POINT * scale, _POINT * scale))
        occupied.append(Box(x, (low + high) / 2, _LINE * scale, high - low))
    for label, (right, up) in zip(labels, place(anchors, occupied), strict=True):
        axes.annotate(
            label.text, (label.x, label.y), (right / scale, up / scale), textcoords="offset points",
            ha="center", va="center", color=label.color, fontsize=label.size,
        )  # fmt: skip
