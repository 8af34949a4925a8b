"""The report's figures as inline SVG. matplotlib is imported when the first figure is drawn, never before.

Drawn without pyplot, with a fixed hash salt and no date, so that equal results give equal bytes. Axes carry
units; amounts start at zero; scores do not, which their captions say; every point has its interval or its
number beside it. Each figure has its table in ``tables``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from combee.algo.gates import score_interval
from combee.report import svg, views
from combee.report.diagnosis import diagnosis_figure
from combee.report.diverse import diversity_figure
from combee.report.draw import Figure, draw, grid
from combee.report.figures_delay import batch_size, delay, residuals
from combee.report.figures_happened import critical_path, latencies
from combee.report.prefix import prefix_figure
from combee.report.result import Paired, Result
from combee.report.text import amount, percent, score, signed, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def figures(result: Result) -> dict[str, Figure]:
    """Return each figure that the result has numbers for, by key, in about 1 s: matplotlib is imported."""
    makers: tuple[Callable[[Result], Figure | None], ...] = (
        _gain,
        _held_out_by_iteration,
        _held_out_by_tokens,
        diagnosis_figure,
        batch_size,
        delay,
        residuals,
        critical_path,
        latencies,
        prefix_figure,
        diversity_figure,
        _levels,
        _rarity,
    )
    with _quiet():
        made = [maker(result) for maker in makers]
    return {figure.key: figure for figure in made if figure is not None}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep matplotlib's own notes (a font cache built, a folder not writable) off a user's screen."""
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _gain(result: Result) -> Figure | None:
    """Draw the gain with its interval against zero, gate first, test below."""
    gate = result.gate
    looks = [(n, p) for n, p in (("gate half", gate), ("test", result.test)) if p is not None]
    if not looks:
        return None
    smallest = result.smallest_detectable_gain

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

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
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
        axes.xaxis.set_major_formatter(lambda x, _: signed(x) if abs(x) > 1e-9 else "0")
        axes.set_xlabel("gain in held-out score, with 95 % interval")

    alt = "Gain with 95 % interval: " + "; ".join(
        f"{name} {signed(p.gain)}, from {signed(p.low)} to {signed(p.high)}" for name, p in looks
    )
    caption = "Left of zero: worse than the start."
    if smallest:
        caption += f" Dashed: the smallest gain the gate half can show ({score(smallest)})."
    return draw("gain", "Gain over the start", 0.75 + 0.5 * len(looks), paint, alt, caption)


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
    bars = [score_interval(p.score, size, 0.95) if size else (p.score, p.score) for p in points]

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        grid(axes, "y")
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
        axes.yaxis.set_major_formatter(lambda y, _: score(y))
        axes.margins(x=0.09)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("score on the select half")

    alt = f"{title}: " + ", ".join(f"{_at(p.iteration)} {score(p.score)}" for p in points[:40])
    interval = f"Bars: 95 % Wilson interval of each score, n = {size:,}. " if size else ""
    start = "Dashed: the untouched start. " if points[0].iteration == 0 else ""
    caption = f"{interval}{start}The score axis does not begin at zero."
    return draw(key, title, 3.0, paint, alt, caption)


def _at(iteration: int) -> str:
    return f"iteration {iteration}" if iteration else "start"


def _label_scores(axes: Axes, xs: Sequence[float], points: Sequence[views.ScorePoint]) -> None:
    """Label the start's line, the best and the last point with their numbers, and ring the best one."""
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
            numbers = f"{amount(row.carried)} of {amount(row.lessons)} · {percent(row.carried, row.lessons)}"
            axes.text(100, place + 0.27, numbers, color=svg.INK, va="bottom", ha="right")
        axes.set_xlim(0, 100)
        axes.set_ylim(-len(rows) + 0.6, 0.75)
        axes.set_yticks([])
        axes.set_xlabel(xlabel)

    alt = f"{title}: " + ", ".join(
        f"{row.label} {row.carried} of {row.lessons} ({percent(row.carried, row.lessons)})" for row in rows
    )
    caption = "All iterations together; a lesson counts only with its anchors."
    return draw(key, title, 0.6 + 0.5 * len(rows), paint, alt, caption)
