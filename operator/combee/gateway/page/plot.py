"""A canary's curve as coordinates: the interval that holds at every look at once, against -epsilon. Pure.

The curve is drawn without the report's plotting library, which takes a second and a hundred megabytes to
load: this process has requests to pass on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.curve import Look
from combee.algo.verdict import number
from combee.plan.playbook.curve import Curve
from combee.report.text import count, duration

WIDTH, HEIGHT = 340.0, 214.0
LEFT, RIGHT, TOP, BOTTOM = 42.0, 12.0, 10.0, 40.0
_STEPS = (1, 2, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class Tick:
    """A label on an axis, at a coordinate."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A look: where it is drawn, and its tooltip."""

    x: float
    low: float
    y: float
    high: float
    says: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything that the SVG of one curve is made of; coordinates in its view box."""

    band: str
    """points of the polygon between the interval's ends."""
    line: str
    """points of the mean."""
    zero: float
    floor: float
    """the coordinate of -epsilon."""
    floor_label: str
    xs: tuple[Tick, ...]
    ys: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    alt: str
    caption: str
    rows: tuple[tuple[str, ...], ...]
    """pairs, time, mean, low and high of each look."""
    unit: str
    """what is counted: pairs, or windows of a Prometheus query."""


def plot_of(curve: Curve, unit: str = "pair") -> Plot | None:
    """Return what to draw; None before the first pair."""
    if not curve.looks:
        return None
    looks, last = curve.looks, curve.looks[-1]
    reach, most = _reach(curve), _axis(max(10, last.pairs))
    digits = 3 if curve.epsilon >= 0.01 else 4

    def x(pairs: float) -> float:
        return _tenth(LEFT + (WIDTH - LEFT - RIGHT) * pairs / most)

    def y(value: float) -> float:
        inside = max(-reach, min(reach, value))
        return _tenth(TOP + (HEIGHT - TOP - BOTTOM) * (reach - inside) / (2 * reach))

    dots = tuple(
        Dot(x(look.pairs), y(look.low), y(look.mean), y(look.high), _says(look, digits, unit))
        for look in looks
    )
    over = [(dot.x, dot.high) for dot in dots]
    under = [(dot.x, dot.low) for dot in reversed(dots)]
    cut = any(max(abs(look.low), abs(look.high)) > reach for look in looks)
    return Plot(
        band=_points([*over, *under]),
        line=_points([(dot.x, dot.y) for dot in dots]),
        zero=y(0.0),
        floor=y(-curve.epsilon),
        floor_label=f"−ε = {_floor(curve)}",
        xs=tuple(Tick(x(value), label) for value, label in _ticks(0, most)),
        ys=tuple(Tick(y(value), label) for value, label in _ticks(-reach, reach)),
        dots=dots,
        alt=f"The mean difference and its interval over {unit}s. "
        f"{_says(last, digits, unit)}; {_against(curve)}.",
        caption=_caption(cut),
        rows=tuple(_row(look, digits) for look in looks),
        unit=f"{unit}s",
    )


def _reach(curve: Curve) -> float:
    """Return half of the vertical axis: room for -epsilon and for the looks after the first quarter. Early
    intervals, which are wide, are cut."""
    late = [look for look in curve.looks if 4 * look.pairs >= curve.looks[-1].pairs]
    widest = max(max(abs(look.low), abs(look.high)) for look in (late[0], late[-1]))
    return min(1.0, _axis(max(2 * curve.epsilon, 1.1 * widest, 0.002)))


def _axis(value: float) -> float:
    """Return the smallest of 1, 1.5, 2, 3, 4, 5, 6, 8, 10 times a power of ten that is at least ``value``."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * (1 - 1e-9))


def _ticks(first: float, last: float) -> Sequence[tuple[float, str]]:
    """Return three to seven round numbers from ``first`` to ``last`` with labels, including zero if it is
    inside."""
    width = last - first
    power = 10.0 ** math.floor(math.log10(width))
    step = next(part * power / 10 for part in _STEPS if width / (part * power / 10) <= 6.0001)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    begin, end = math.ceil(first / step - 1e-9), math.floor(last / step + 1e-9)
    values = [at * step for at in range(begin, end + 1)]
    return [(value, f"{value:,.{digits}f}".replace("-", "−") if value else "0") for value in values]


def _signed(value: float, digits: int) -> str:
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def _floor(curve: Curve) -> str:
    return number(-curve.epsilon).replace("-", "−")


def _tenth(value: float) -> float:
    return round(value, 1)


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in pairs)


def _says(look: Look, digits: int, unit: str) -> str:
    mean, low, high = (_signed(value, digits) for value in (look.mean, look.low, look.high))
    return f"After {count(look.pairs, unit)}, {duration(look.seconds)}: {mean} [{low}, {high}]"


def _against(curve: Curve) -> str:
    look = curve.looks[-1]
    if look.low >= -curve.epsilon:
        return f"the lower end has reached {_floor(curve)}: no worse"
    if look.high <= -curve.epsilon:
        return f"the upper end is under {_floor(curve)}: worse"
    return f"{_floor(curve)} is inside: not decided"


def _caption(cut: bool) -> str:
    cuts = " What is wider than the picture is cut at its edge." if cut else ""
    return (
        "Line: mean difference of the two versions' scores. Shaded: the interval that holds at every look "
        f"at once (95 %). Dashed: −ε; the lower end must reach it to pass, and an upper end under it "
        f"fails.{cuts}"
    )


def _row(look: Look, digits: int) -> tuple[str, ...]:
    values = (_signed(value, digits) for value in (look.mean, look.low, look.high))
    return (f"{look.pairs:,}", duration(look.seconds), *values)
