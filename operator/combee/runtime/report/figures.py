"""The report's figures as inline SVG. matplotlib is imported when the first figure is drawn, never before.

Drawn without pyplot, with a fixed hash salt and no date, so that equal results give equal bytes. Axes carry
units; amounts start at zero; scores do not, which their captions say; every point has its interval or its
number beside it. Each figure has its table in ``tables``.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from combee.runtime.report import svg, views
from combee.runtime.report.result import Paired, Result
from combee.runtime.report.text import amount, duration, percent, score, signed, visible, wilson

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 4.2
"""Inches; 72 units an inch in the SVG, so labels of size 9 to 10 stay readable on a phone."""
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
    """``svg`` for the page, ``alt`` for who cannot see it, ``caption`` under it."""

    key: str
    title: str
    svg: str
    alt: str
    caption: str


def figures(result: Result) -> dict[str, Figure]:
    """Every figure that the result has numbers for, by key. About 1 s, most of it matplotlib's import."""
    makers: tuple[Callable[[Result], Figure | None], ...] = (
        _gain,
        _held_out_by_iteration,
        _held_out_by_tokens,
        _batch_size,
        _delay,
        _levels,
        _rarity,
    )
    with _quiet():
        made = [maker(result) for maker in makers]
    return {figure.key: figure for figure in made if figure is not None}


@contextmanager
def _quiet() -> Iterator[None]:
    """matplotlib's own notes (a font cache built, a folder not writable) do not belong on a user's screen."""
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _draw(key: str, alt: str, height: float, paint: Callable[[Axes], None]) -> str:
    """Run ``paint`` on fresh themed axes and return the inline SVG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    with mpl.rc_context(_SETTINGS):
        canvas = Canvas(figsize=(WIDTH, height), layout="constrained", facecolor="none")
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
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return svg.inline(sink.getvalue(), key=key, alt=visible(alt))


def _grid(axes: Axes, axis: str) -> None:
    axes.grid(axis="y" if axis == "y" else "x", color=svg.GRID, linewidth=0.8)


def _gain(result: Result) -> Figure | None:
    """Gain with its interval against zero, gate first, test below."""
    gate = result.held_out.gate if result.held_out else None
    looks = [(n, p) for n, p in (("gate half", gate), ("test", result.test)) if p is not None]
    if not looks:
        return None
    smallest = result.held_out.smallest_detectable_gain if result.held_out else None

    def paint(axes: Axes) -> None:
        axes.axvline(0, color=svg.MUTED, linewidth=1)
        for row, (name, pair) in enumerate(looks):
            _interval(axes, -row, name, pair)
        ends = [0.0, *(v for _, p in looks for v in (p.low, p.high))] + ([smallest] if smallest else [])
        pad = 0.12 * (max(ends) - min(ends) or 0.1)
        axes.set_xlim(min(ends) - pad, max(ends) + pad)
        axes.set_ylim(-len(looks) + 0.35, 0.75)
        if smallest:
            axes.axvline(smallest, color=svg.SECOND, linewidth=1, linestyle=(0, (3, 2)))
        axes.set_yticks([])
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:+.2f}".replace("-", "−") if abs(x) > 1e-9 else "0")
        axes.set_xlabel("gain in held-out score, with 95 % interval")

    alt = "Gain with 95 % interval: " + "; ".join(
        f"{name} {signed(p.gain)}, from {signed(p.low)} to {signed(p.high)}" for name, p in looks
    )
    caption = "Left of zero: worse than the start."
    if smallest:
        caption += f" Dashed: the smallest gain the gate half can show ({score(smallest)})."
    drawn = _draw("gain", alt, 0.75 + 0.5 * len(looks), paint)
    return Figure("gain", "Gain over the start", drawn, alt, caption)


def _interval(axes: Axes, y: float, name: str, pair: Paired) -> None:
    axes.plot([pair.low, pair.high], [y, y], color=svg.FIRST, linewidth=2, solid_capstyle="butt")
    axes.plot([pair.gain], [y], "o", color=svg.FIRST, markersize=7)
    text = f"{name}: {signed(pair.gain)}"
    axes.annotate(
        text, (pair.gain, y), (0, 9), textcoords="offset points", ha="center", color=svg.INK, fontsize=10
    )


def _held_out_by_iteration(result: Result) -> Figure | None:
    points = views.score_points(result)
    xs = [float(point.iteration) for point in points]
    return _scores(result, "score-iterations", "Held-out score by iteration", xs, "iteration (0: the start)")


def _held_out_by_tokens(result: Result) -> Figure | None:
    points = views.score_points(result)
    top = max((point.tokens for point in points), default=0)
    if top == 0:
        return None
    scale, unit = (1e6, "million tokens") if top >= 1e6 else (1e3, "thousand tokens")
    xs = [point.tokens / scale for point in points]
    return _scores(
        result, "score-tokens", "Held-out score by tokens", xs, f"{unit} spent by iterations so far"
    )


def _scores(result: Result, key: str, title: str, xs: Sequence[float], xlabel: str) -> Figure | None:
    points = views.score_points(result)
    if not points:
        return None
    size = views.select_size(result)
    bars = [wilson(p.score, size) if size else (p.score, p.score) for p in points]

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        _grid(axes, "y")
        values = [point.score for point in points]
        below = [max(0.0, v - low) for v, (low, _) in zip(values, bars, strict=True)]
        above = [max(0.0, high - v) for v, (_, high) in zip(values, bars, strict=True)]
        if points[0].iteration == 0:
            axes.axhline(values[0], color=svg.MUTED, linewidth=1, linestyle=(0, (3, 2)))
        axes.errorbar(xs, values, yerr=[below, above], fmt="none", ecolor=svg.FIRST, elinewidth=1, alpha=0.55)
        axes.plot(xs, values, "-o", color=svg.FIRST, linewidth=2, markersize=5)
        _label_scores(axes, xs, points)
        if key == "score-iterations":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:.2f}")
        axes.margins(x=0.09)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("score on the select half")

    told = ", ".join(f"{_at(p.iteration)} {score(p.score)}" for p in points[:40])
    alt = f"{title}: {told}"
    interval = f"Bars: 95 % Wilson interval of each score, n = {size:,}. " if size else ""
    start = "Dashed: the untouched start. " if points[0].iteration == 0 else ""
    caption = f"{interval}{start}The score axis does not begin at zero."
    return Figure(key, title, _draw(key, alt, 3.0, paint), alt, caption)


def _at(iteration: int) -> str:
    return f"iteration {iteration}" if iteration else "start"


def _label_scores(axes: Axes, xs: Sequence[float], points: Sequence[views.ScorePoint]) -> None:
    """The start's line, the best and the last point carry their numbers; the best one a ring."""
    last = len(points) - 1
    start, end = points[0].score, points[last].score
    if points[0].iteration == 0 and last > 0:
        place: dict[str, Any] = {
            "xycoords": ("axes fraction", "data"),
            "textcoords": "offset points",
            "ha": "right",
        }
        axes.annotate(
            f"start {score(start)}", (1, start), (0, -12 if end >= start else 5), color=svg.INK, **place
        )
    for index, (x, point) in enumerate(zip(xs, points, strict=True)):
        if not (point.best or index == last):
            continue
        if point.best:
            axes.plot(
                [x], [point.score], "o", markersize=11, markeredgecolor=svg.SECOND, markerfacecolor="none"
            )
        near_start = abs(point.score - start) < 0.05
        above = point.best or (near_start and end >= start)
        at_the_end = index == last and last > 0
        axes.annotate(
            f"{'best ' if point.best else ''}{score(point.score)}",
            (x, point.score),
            (-9 if at_the_end else 9, 8 if above else -13),
            textcoords="offset points",
            ha="right" if at_the_end else "left",
            color=svg.INK,
        )


def _batch_size(result: Result) -> Figure | None:
    its = result.iterations
    if not its:
        return None

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        _grid(axes, "y")
        xs, sizes = [it.iteration for it in its], [it.batch_size for it in its]
        if len(its) <= 2 * MANY:
            axes.bar(xs, sizes, color=svg.FIRST, width=0.62)
        else:
            axes.step(xs, sizes, where="mid", color=svg.FIRST, linewidth=2)
        for index, (x, size) in enumerate(zip(xs, sizes, strict=True)):
            if len(its) <= MANY or index == len(its) - 1:
                axes.annotate(
                    f"{size:,}", (x, size), (0, 3), textcoords="offset points", ha="center", color=svg.INK
                )
        axes.set_ylim(0, 1.15 * max(*sizes, 1))
        axes.set_xlim(min(xs) - 0.7, max(xs) + 0.7)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.set_xlabel("iteration")
        axes.set_ylabel("examples in the batch")

    alt = "Batch size by iteration: " + ", ".join(f"{it.iteration}: {it.batch_size:,}" for it in its[:40])
    caption = f"Last choice: {its[-1].batch_reason}"
    return Figure("batch-size", "Batch size by iteration", _draw("batch-size", alt, 2.6, paint), alt, caption)


def _delay(result: Result) -> Figure | None:
    delay = views.delay(result)
    if not delay.observations:
        return None
    fit = delay.fit
    sizes = [size for size, _ in delay.observations]
    reach = 1.12 * max(sizes)

    def paint(axes: Axes) -> None:
        _grid(axes, "y")
        top = max(seconds for _, seconds in delay.observations)
        if fit is not None:
            end = fit.c0 + fit.c1 * reach
            top = max(top, end)
            axes.plot([0, reach], [fit.c0, end], color=svg.SECOND, linewidth=2)
            if fit.b_half is not None and 0 < fit.b_half <= reach:
                axes.plot(
                    [fit.b_half] * 2, [0, 2 * fit.c0], color=svg.MUTED, linewidth=1, linestyle=(0, (3, 2))
                )
                axes.annotate(
                    f"b½ = {fit.b_half:.0f}",
                    (fit.b_half, 0),
                    (4, 4),
                    textcoords="offset points",
                    color=svg.INK,
                )
        axes.plot(*zip(*delay.observations, strict=True), "o", color=svg.FIRST, markersize=6)
        axes.set_xlim(0, reach)
        axes.set_ylim(0, 1.12 * top or 1)
        axes.set_xlabel("batch size b (examples)")
        axes.set_ylabel("time of an iteration (s)")

    seen = ", ".join(f"b = {b:g} took {duration(s)}" for b, s in delay.observations[:40])
    if fit is None:
        caption = "Points: observed iterations. No curve: a fit takes two different batch sizes."
    else:
        caption = f"Points: observed. Line: fitted T(b) = {fit.c0:.3g} s + {fit.c1:.3g} s × b."
        if fit.b_half is not None:
            caption += " b½: where fixed and growing cost are equal."
    alt = f"Time of an iteration by batch size: {seen}. {caption}"
    return Figure("delay", "Time by batch size", _draw("delay", alt, 2.6, paint), alt, caption)


def _levels(result: Result) -> Figure | None:
    title = "Retention by level"
    return _shares("levels", title, views.levels(result), "carried, of the distinct lessons that went in (%)")


def _rarity(result: Result) -> Figure | None:
    bands = views.rarity(result)
    named = [views.Kept(f"brought by {b.label}", 0, 0, b.lessons, b.carried) for b in bands]
    return _shares(
        "rarity", "Retention by rarity", named, "carried, by number of trajectories that brought it (%)"
    )


def _shares(key: str, title: str, rows: Sequence[views.Kept], xlabel: str) -> Figure | None:
    rows = [row for row in rows if row.lessons > 0]
    if not rows:
        return None

    def paint(axes: Axes) -> None:
        shares = [100 * row.carried / row.lessons for row in rows]
        places = [-float(index) for index in range(len(rows))]
        axes.barh(places, [100.0] * len(rows), height=0.34, color=svg.GRID)
        axes.barh(places, shares, height=0.34, color=svg.FIRST)
        for place, row in zip(places, rows, strict=True):
            axes.text(0, place + 0.27, visible(row.label)[:40], color=svg.INK, va="bottom")
            said = f"{amount(row.carried)} of {amount(row.lessons)} · {percent(row.carried, row.lessons)}"
            axes.text(100, place + 0.27, said, color=svg.INK, va="bottom", ha="right")
        axes.set_xlim(0, 100)
        axes.set_ylim(-len(rows) + 0.6, 0.75)
        axes.set_yticks([])
        axes.set_xlabel(xlabel)

    alt = f"{title}: " + ", ".join(
        f"{row.label} {row.carried} of {row.lessons} ({percent(row.carried, row.lessons)})" for row in rows
    )
    drawn = _draw(key, alt, 0.6 + 0.5 * len(rows), paint)
    return Figure(key, title, drawn, alt, "All iterations together; a lesson counts only with its anchors.")
