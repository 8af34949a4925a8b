"""The shape of a run's parallelism in words: for a preview, a status, and the strategist's report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol


class Shape(Protocol):
    """What a plan, a status and a result alike say of it."""

    @property
    def name(self) -> str:
        """The shape."""

    @property
    def reason(self) -> str:
        """Why it fits."""

    @property
    def advice(self) -> str:
        """What to do; empty where nothing is to be done."""

    @property
    def slots(self) -> int:
        """The calls that can be in flight at once."""

    @property
    def speed_up(self) -> float:
        """How many times as fast as its calls one after the other the run is."""

    @property
    def ceiling(self) -> float:
        """The same on any number of slots, at most."""

    @property
    def beside(self) -> float:
        """How many times as fast as in turn such runs are side by side, at most."""

    @property
    def rejected(self) -> Mapping[str, str]:
        """Why each other shape does not fit."""

    @property
    def invalidated_by(self) -> tuple[str, ...]:
        """When the figures do not hold."""


def sentence(shape: Shape) -> str:
    """Return the shape, why it fits and what to do."""
    return "; ".join(filter(None, (f"{shape.name}: {shape.reason}", shape.advice)))


def bounds(shape: Shape) -> str:
    """Return what parallelism brings and can bring."""
    return (
        f"{shape.speed_up:.1f} times as fast as its calls one after the other on {shape.slots} slots, at "
        f"most {shape.ceiling:.1f} times on any number; runs like it side by side on these slots at most "
        f"{shape.beside:.1f} times as fast as in turn"
    )


def lines(shape: Shape) -> Iterator[tuple[str, str]]:
    """Yield (what, words): the shape with its reason, what was rejected, the ceiling and when it fails."""
    yield "shape", sentence(shape)
    for name, why in shape.rejected.items():
        yield f"rejected: {name}", why
    yield "ceiling", bounds(shape)
    yield "what would invalidate it", "; ".join(shape.invalidated_by)
