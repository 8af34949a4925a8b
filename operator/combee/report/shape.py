"""The shape of a run's parallelism in words: for a preview, a status, and the strategist's report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from combee.api.status import Parallelism


def sentence(shape: Parallelism) -> str:
    """Return the shape, why it fits and what to do."""
    return "; ".join(filter(None, (f"{shape.name}: {shape.reason}", shape.advice)))


def bounds(shape: Parallelism) -> str:
    """Return what parallelism brings and can bring."""
    return (
        f"{shape.speed_up:.1f} times as fast as its calls one after the other on {shape.slots} slots, at "
        f"most {shape.ceiling:.1f} times on any number; runs like it side by side on these slots at most "
        f"{shape.beside:.1f} times as fast as in turn"
    )


def lines(shape: Parallelism) -> Iterator[tuple[str, str]]:
    """Yield (what, words): the shape with its reason, what was rejected, the ceiling and when it fails."""
    yield "shape", sentence(shape)
    for name, why in shape.rejected.items():
        yield f"rejected: {name}", why
    yield "ceiling", bounds(shape)
    yield "what would invalidate it", "; ".join(shape.invalidated_by)
