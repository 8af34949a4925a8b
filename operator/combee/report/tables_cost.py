"""The report's tables of what was paid for what: accepted prompts, and the serial baseline beside them."""

from __future__ import annotations

from combee.report.result import AcceptedPrompt, DiagnosisRecord, Result
from combee.report.text import Table, amount, duration, price, score

NOT_SHOWN = "not shown"


def currency(result: Result) -> str:
    """Return the currency of the run's money; empty without prices."""
    return next((line.currency for line in result.budget if line.currency), "")


def energy(joules: float) -> str:
    """Return joules, and watt hours from a thousand on.

    >>> energy(812.4), energy(7_200_000.0)
    ('812 J', '7,200,000 J (2,000.0 Wh)')
    """
    hours = f" ({joules / 3600:,.1f} Wh)" if joules >= 1000 else ""
    return f"{joules:,.0f} J{hours}"


def accepted(result: Result) -> Table:
    """Return what the run had used when each prompt took the lead."""
    money, serial = currency(result), result.serial_baseline is not None
    read = result.energy is not None

    def row(one: AcceptedPrompt) -> tuple[str, ...]:
        point = one.cost_per_point
        used = (f"{one.rollouts:,}", amount(one.tokens), duration(one.wall_seconds))
        paid = (price(one.money) if one.money is not None else NOT_SHOWN,) if money else ()
        by_point = (amount(point.tokens), f"{point.rollouts:,.1f}") if point else (NOT_SHOWN, NOT_SHOWN)
        paid_by_point = (
            (price(point.money) if point and point.money is not None else NOT_SHOWN,) if money else ()
        )
        burnt = ((energy(one.joules) if one.joules is not None else NOT_SHOWN),) if read else ()
        slow = (duration(one.serial_seconds) if one.serial_seconds is not None else NOT_SHOWN,)
        compared = slow if serial else ()
        return (
            str(one.iteration),
            score(one.select),
            *used,
            *paid,
            *burnt,
            *by_point,
            *paid_by_point,
            *compared,
        )

    columns = (
        *("iteration", "#score on select", "#rollouts", "#tokens", "#time of its steps"),
        *((f"#{money}",) if money else ()),
        *(("#energy",) if read else ()),
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


def measured_where(result: Result) -> str:
    """Return whether the stated serial curve is of this run's hardware, in words."""
    baseline = result.serial_baseline
    if baseline is None or baseline.measured_here is None:
        return f"whether on the same hardware is {NOT_SHOWN}"
    if baseline.measured_here:
        return f"on the same hardware, {baseline.hardware}"
    return f"the curve is of {baseline.hardware}, this run of {result.setup.hardware}"


def elsewhere(result: Result) -> str:
    """Return that the stated curve is of other hardware, so that nothing is compared with its seconds; else
    an empty text."""
    serial = result.serial_baseline
    away = serial is not None and serial.measured_here is False
    return f"{NOT_SHOWN}: other hardware: {measured_where(result)}" if away else ""


def measured_serial(record: DiagnosisRecord, result: Result) -> str:
    """Return a point of select in measured serial learning beside one in this run, in what was measured."""
    last = result.accepted[-1] if result.accepted else None
    point = last.cost_per_point if last else None
    level, at, rise = record.level, record.plateau_rollouts, 0.0
    if record.points:
        if at is None:
            top = max(record.points, key=lambda one: (one.score, -one.at))
            level, at = top.score, top.at
        rise = (level - record.points[0].score) * 100
    if not at or rise <= 0 or last is None or point is None:
        return f"{NOT_SHOWN}: serial learning and this run did not both rise on select"
    to = "plateau" if record.plateau_rollouts is not None else "best score"
    reached = "serial learning did not get there"
    if last.serial_rollouts is not None:
        reached = f"{last.serial_rollouts:,} in serial learning"
    parts = [
        f"a point of select took {point.rollouts:,.1f} rollouts here, the diagnosis included",
        f"{at / rise:,.1f} in serial learning, measured to its {to} of {score(level)}",
        f"{amount(point.tokens)} tokens here and {amount(record.tokens / rise)} there, all of the diagnosis",
        f"select {score(last.select)} took {last.rollouts:,} rollouts here; {reached}",
    ]
    if record.money is not None and point.money is not None:
        paid = f"{price(point.money)} {currency(result)} here and {price(record.money / rise)} there"
        parts.insert(3, f"{paid}, here without time of GPUs")
    if record.seconds_per_example and record.run_seconds_per_example is not None:
        parts.append(
            f"an example takes {record.seconds_per_example:.2f} modelled seconds in serial learning, "
            f"{record.run_seconds_per_example:.2f} here"
        )
    return "; ".join(parts)


def serial(result: Result) -> Table:
    """Return the curve of the serial baseline."""
    baseline = result.serial_baseline
    curve = baseline.curve if baseline is not None else ()
    rows = tuple((f"{one.examples:,}", duration(one.seconds), score(one.score)) for one in curve)
    note = ""
    if baseline is not None:
        note = f"The curve is stated by the manifest, method {baseline.method}"
        note += f", and measured by {baseline.source}" if baseline.source else ""
        note += f"; {measured_where(result)}."
    return Table(
        "serial",
        "The serial baseline",
        ("#examples", "#time", "#held-out score"),
        rows,
        "None was stated or measured, so no speed-up is shown.",
        note,
    )
