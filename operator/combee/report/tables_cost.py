"""The report's tables of what was paid for what: accepted prompts, and the serial baseline beside them."""

from __future__ import annotations

from combee.report.result import AcceptedPrompt, Result
from combee.report.text import Table, amount, duration, price, score

NOT_SHOWN = "not shown"


def currency(result: Result) -> str:
    """Return the currency of the run's money; empty without prices."""
    return next((line.currency for line in result.budget if line.currency), "")


def accepted(result: Result) -> Table:
    """Return what the run had used when each prompt took the lead."""
    money, serial = currency(result), result.serial_baseline is not None

    def row(one: AcceptedPrompt) -> tuple[str, ...]:
        point = one.cost_per_point
        used = (f"{one.rollouts:,}", amount(one.tokens), duration(one.wall_seconds))
        paid = (price(one.money) if one.money is not None else NOT_SHOWN,) if money else ()
        by_point = (amount(point.tokens), f"{point.rollouts:,.1f}") if point else (NOT_SHOWN, NOT_SHOWN)
        paid_by_point = (
            (price(point.money) if point and point.money is not None else NOT_SHOWN,) if money else ()
        )
        slow = (duration(one.serial_seconds) if one.serial_seconds is not None else NOT_SHOWN,)
        compared = slow if serial else ()
        return (str(one.iteration), score(one.select), *used, *paid, *by_point, *paid_by_point, *compared)

    columns = (
        *("iteration", "#score on select", "#rollouts", "#tokens", "#time of its steps"),
        *((f"#{money}",) if money else ()),
        *("#tokens a point", "#rollouts a point"),
        *((f"#{money} a point",) if money else ()),
        *(("#serial, to the same score",) if serial else ()),
    )
    note = (
        "A point is 0.01 of select above the start. Each prompt was chosen on select, so these costs are "
        "optimistic: the cost of a point on gate is the honest one."
    )
    rows = tuple(row(one) for one in result.accepted)
    return Table(
        "accepted", "Accepted prompts and their cost", columns, rows, "No prompt took the lead.", note
    )


def serial(result: Result) -> Table:
    """Return the curve of the serial baseline."""
    baseline = result.serial_baseline
    curve = baseline.curve if baseline is not None else ()
    rows = tuple((f"{one.examples:,}", duration(one.seconds), score(one.score)) for one in curve)
    source = f"stated by the manifest, method {baseline.method}" if baseline is not None else ""
    return Table(
        "serial",
        "The serial baseline",
        ("#examples", "#time", "#held-out score"),
        rows,
        "None was stated or measured, so no speed-up is shown.",
        f"The curve is {source}; whether its hardware was the same is not shown." if source else "",
    )
