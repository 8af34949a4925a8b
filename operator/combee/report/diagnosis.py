"""Serial learning as the report shows it: a plot of rollouts against held-out score, a table and a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from combee.report import svg
from combee.report.draw import Figure, draw, grid
from combee.report.parts import DiagnosisRecord
from combee.report.result import Result
from combee.report.text import Table, amount, duration, score

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def diagnosis_figure(result: Result) -> Figure | None:
    """Return the curve with its plateau; None without one."""
    record = result.diagnosis
    if record is None or len(record.points) < 2:
        return None
    xs, values = [point.at for point in record.points], [point.score for point in record.points]
    begins = next((point.at for point in record.points if _level(record, point.at)), None)

    def paint(axes: Axes) -> None:
        grid(axes, "y")
        below = [max(0.0, point.score - point.low) for point in record.points]
        above = [max(0.0, point.high - point.score) for point in record.points]
        axes.axhline(values[0], color=svg.MUTED, linewidth=1, linestyle=(0, (3, 2)))
        if begins is not None:
            axes.plot([begins, xs[-1]], [record.level] * 2, color=svg.SECOND, linewidth=4, alpha=0.6)
        axes.errorbar(xs, values, yerr=[below, above], fmt="none", ecolor=svg.FIRST, elinewidth=1, alpha=0.55)
        axes.plot(xs, values, "-o", color=svg.FIRST, linewidth=2, markersize=5)
        axes.yaxis.set_major_formatter(lambda y, _: score(y))
        axes.margins(x=0.09)
        axes.set_xlabel(f"{_unit(record)} of serial learning")
        axes.set_ylabel("held-out score")

    scores = ", ".join(f"{point.at:,}: {score(point.score)}" for point in record.points[:40])
    band = " Thick: the plateau." if begins is not None else ""
    caption = (
        f"Bars: 95 % Wilson interval of each score, n = {record.points[0].n:,}. Dashed: the start.{band} "
        "The score axis does not begin at zero."
    )
    alt = f"Held-out score by {_unit(record)} of serial learning: {scores}"
    return draw("diagnosis", "Serial learning", 3.0, paint, alt, caption)


def _unit(record: DiagnosisRecord) -> str:
    return "rollouts" if record.measured else "examples"


def _level(record: DiagnosisRecord, at: int) -> bool:
    return record.verdict == "Plateau" and record.plateau_at is not None and at >= record.plateau_at


def diagnosis_table(record: DiagnosisRecord) -> Table:
    """Return the curve by point, with the verdict beneath it."""
    timed = any(point.seconds is not None for point in record.points)
    time = ("#time",) if timed else ()
    columns = (f"#{_unit(record)}", *time, "#held-out score", "#95 % interval", "#rows", "")
    rows = tuple(
        (
            f"{point.at:,}",
            *(("" if point.seconds is None else duration(point.seconds),) if timed else ()),
            score(point.score),
            f"{score(point.low)} to {score(point.high)}",
            f"{point.n:,}",
            "start" if not point.at else "plateau" if _level(record, point.at) else "",
        )
        for point in record.points
    )
    note = " ".join(filter(None, sentences(record)))
    return Table("diagnosis", "Serial learning before any in parallel", columns, rows, "No score.", note)


def sentences(record: DiagnosisRecord) -> tuple[str, ...]:
    """Return the verdict, what it was drawn from, what it took, and what followed from it."""
    decided = "Go" if record.go else "No-go"
    headroom = record.headroom
    lessons = (
        ""
        if headroom is None or not headroom.tried
        else f"Headroom: of {headroom.rows} train rows {headroom.wrong} were answered wrong; of "
        f"{headroom.tried} of these {headroom.own} came right with their own lesson, {headroom.other} with "
        "another row's."
    )
    took = (
        f"It took {record.rollouts:,} rollouts and {amount(record.tokens)} tokens, charged to the run."
        if record.measured
        else "The manifest states the curve; nothing was run for it."
    )
    gave = [
        f"a soft target of {score(record.target_score)}" if record.target_score is not None else "",
        f"a limit of {record.rollout_limit:,} rollouts" if record.rollout_limit is not None else "",
    ]
    given = " and ".join(filter(None, gave))
    speed = (
        f"Serial learning takes {record.seconds_per_example:.2f} s of modelled time an example, this run "
        f"{record.run_seconds_per_example:.2f} s: {record.speed_up:.1f} times as fast."
        if record.speed_up is not None and record.run_seconds_per_example is not None
        else ""
    )
    return (
        f"{decided}: {record.words}.",
        lessons,
        took,
        f"It gave the run {given}." if given else "",
        speed,
    )
