"""How every figure of the report is drawn: inline SVG, themed axes, equal bytes for equal results."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from combee.report import svg
from combee.report.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 4.2
"""The width in inches of 72 units each, so that labels of size 9 to 10 stay readable on a phone."""
MANY = 12
"""Beyond this many iterations only the telling points carry labels."""
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "combee",
    "font.family": "DejaVu Sans",
    "font.size": 9.2,
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure: ``svg`` for the page, ``alt`` for those who cannot see it, ``caption`` below it."""

    key: str
    title: str
    svg: str
    alt: str
    caption: str


def draw(
    key: str, title: str, height: float, paint: Callable[[Axes], None], alt: str, caption: str
) -> Figure:
    """Return the figure that ``paint`` draws on fresh themed axes, ``height`` inches high."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(_SETTINGS):
        # Laid out here, since saving would draw it twice for that; at the resolution of an SVG.
        canvas = Canvas(figsize=(WIDTH, height), dpi=72, facecolor="none")
        FigureCanvasSVG(canvas)
        axes = canvas.subplots()
        axes.set_facecolor("none")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.spines["bottom"].set_color(svg.MUTED)
        axes.tick_params(colors=svg.MUTED, length=0, pad=5)
        axes.set_axisbelow(True)
        paint(axes)
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(svg.MUTED)
        ConstrainedLayoutEngine().execute(canvas)
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return Figure(key, title, svg.inline(sink.getvalue(), key=key, alt=visible(alt)), alt, caption)


def legend(axes: Axes, columns: int) -> None:
    """Write the labels of what was drawn above the axes."""
    drawn = axes.figure.legend(loc="outside upper left", ncols=columns, frameon=False, fontsize=8.6)
    for text in drawn.get_texts():
        text.set_color(svg.INK)


def grid(axes: Axes, axis: str) -> None:
    """Draw thin lines across ``axis``, behind the data."""
    axes.grid(axis="y" if axis == "y" else "x", color=svg.GRID, linewidth=0.8)
