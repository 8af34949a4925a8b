"""The figures of the batch size and of what it rests on: the delay law, its rivals, its residuals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combee.report import svg, views
from combee.report.draw import MANY, Figure, draw, grid
from combee.report.result import DelayFit, Result
from combee.report.text import duration, signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def batch_size(result: Result) -> Figure | None:
    its = result.iterations
    if not its:
        return None

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        grid(axes, "y")
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
    return draw("batch-size", "Batch size by iteration", 2.6, paint, alt, caption)


def delay(result: Result) -> Figure | None:
    seen = views.delay(result)
    if not seen.observations:
        return None
    fit = seen.fit
    sizes = [size for size, _ in seen.observations]
    reach = 1.12 * max(sizes)
    without = views.uncached(result)

    def paint(axes: Axes) -> None:
        grid(axes, "y")
        top = max(seconds for _, seconds in (*seen.observations, *without))
        if without:
            axes.plot(*zip(*without, strict=True), "o", color=svg.MUTED, markersize=6, fillstyle="none")
        if fit is not None:
            steps = [reach * k / 60 for k in range(1, 61)]
            drawn = [seen.predict(size) or 0.0 for size in steps]
            top = max(top, *drawn)
            axes.plot(steps, drawn, color=svg.SECOND, linewidth=2)
            if _line(fit) and fit.b_half is not None and 0 < fit.b_half <= reach:
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
        axes.plot(*zip(*seen.observations, strict=True), "o", color=svg.FIRST, markersize=6)
        axes.set_xlim(0, reach)
        axes.set_ylim(0, 1.12 * top or 1)
        axes.set_xlabel("batch size b (examples)")
        axes.set_ylabel("time of an iteration (s)")

    points = ", ".join(f"b = {b:g} took {duration(s)}" for b, s in seen.observations[:40])
    if fit is None:
        caption = "Points: observed iterations. No curve: a fit takes two different batch sizes."
    else:
        law = f"T(b) = {fit.c0:.3g} s + {fit.c1:.3g} s × b" if fit.model is None else views.formula(fit.model)
        caption = f"Points: observed. Line: fitted {law}."
        if _line(fit) and fit.b_half is not None:
            caption += " b½: where fixed and growing cost are equal."
        caption += f" {rivals}" if (rivals := views.rivals(fit)) else ""
    if without:
        caption += " Hollow: what they would have taken with no prompt token cached, by the latency law."
    alt = f"Time of an iteration by batch size: {points}. {caption}"
    return draw("delay", "Time by batch size", 2.6, paint, alt, caption)


def _line(fit: DelayFit) -> bool:
    return fit.model is None or fit.model.name == "T_iter"


def residuals(result: Result) -> Figure | None:
    """Draw observed against fitted time, in percent, by batch size: what the law leaves unexplained."""
    seen = views.delay(result)
    errors = seen.errors
    if seen.fit is None or len(errors) < 3:
        return None
    sizes = [size for size, _ in seen.observations]

    def paint(axes: Axes) -> None:
        grid(axes, "y")
        axes.axhline(0, color=svg.MUTED, linewidth=1)
        shares = [100 * error for error in errors]
        axes.vlines(sizes, 0, shares, color=svg.GRID, linewidth=2)
        axes.plot(sizes, shares, "o", color=svg.FIRST, markersize=5)
        bound = 1.15 * max(10.0, *map(abs, shares))
        axes.set_xlim(0, 1.12 * max(sizes))
        axes.set_ylim(-bound, bound)
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:+.0f}".replace("-", "−") if abs(y) > 1e-9 else "0")
        axes.set_xlabel("batch size b (examples)")
        axes.set_ylabel("observed against fitted (%)")

    points = ", ".join(f"b = {b:g} {signed(e)}" for b, e in list(zip(sizes, errors, strict=True))[:40])
    alt = f"Residuals of the delay law by batch size, as shares: {points}"
    caption = "Above zero: slower than fitted. Points without a pattern: the law has the right shape."
    return draw("residuals", "What the fit leaves over", 2.2, paint, alt, caption)
