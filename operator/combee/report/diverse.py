"""How likely each kind of edit was drawn, and at which temperature, by iteration: a table and a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combee.report import svg
from combee.report.draw import Figure, draw, grid
from combee.report.result import DiversityRecord, Result
from combee.report.text import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALIKE = "alike"
"""What stands for a weight where all kinds are as likely."""
NOTE = (
    "A weight is how likely a proposal is asked for that kind of edit; from iteration 5 on it follows what "
    "each kind's proposals lifted on select. Temperature is the least that the proposer writes at."
)


def diversity_table(result: Result) -> Table:
    """Return the decisions on diversity by iteration; empty where the manifest did not ask for any."""
    kinds = _kinds(result)
    rows = tuple(
        (
            str(it.iteration),
            f"{one.temperature:g}",
            "the start" if one.fresh else "the pool",
            *((f"{one.weights[kind]:.2f}" if kind in one.weights else ALIKE) for kind in kinds),
            *(() if kinds else (ALIKE,)),
        )
        for it in result.iterations
        if (one := it.diversity) is not None
    )
    columns = ("iteration", "#temperature", "built on", *(f"#{kind}" for kind in kinds or ("weights",)))
    return Table("diversity", "Kinds of edits", columns, rows, "No kinds of edits were asked for.", NOTE)


def diversity_figure(result: Result) -> Figure | None:
    """Draw the weights by iteration, the last one's heaviest kind named; None where all were alike."""
    kinds, weighed = _kinds(result), _weighed(result)
    if not kinds:
        return None
    leader = max(weighed[-1][1].weights.items(), key=lambda one: one[1])[0]

    def paint(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        grid(axes, "y")
        xs = [iteration for iteration, _ in weighed]
        for kind in (*(kind for kind in kinds if kind != leader), leader):
            ys = [one.weights.get(kind, 0.0) for _, one in weighed]
            color = svg.FIRST if kind == leader else svg.MUTED
            axes.plot(xs, ys, "o-", color=color, linewidth=2, markersize=4)
        axes.annotate(leader, (xs[-1], ys[-1]), (6, -3), textcoords="offset points", color=svg.INK)
        axes.set_ylim(0, 1.15 * max(max(one.weights.values()) for _, one in weighed))
        axes.set_xlim(min(xs) - 0.5, max(xs) + 1.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        axes.set_xlabel("iteration")
        axes.set_ylabel("weight")

    last = ", ".join(f"{kind} {weight:.2f}" for kind, weight in sorted(weighed[-1][1].weights.items()))
    warmest = max(one.temperature for it in result.iterations if (one := it.diversity) is not None)
    alt = f"Weights of the kinds of edits by iteration; at the end {last}"
    caption = f"At the end: {last}. The proposer wrote at {warmest:g} at most."
    return draw("diversity", "Weights of the kinds of edits", 2.6, paint, alt, caption)


def _weighed(result: Result) -> list[tuple[int, DiversityRecord]]:
    """Return (iteration, decisions) where the kinds had weights of their own."""
    return [
        (it.iteration, it.diversity)
        for it in result.iterations
        if it.diversity is not None and it.diversity.weights
    ]


def _kinds(result: Result) -> tuple[str, ...]:
    return tuple(sorted({kind for _, one in _weighed(result) for kind in one.weights}))
