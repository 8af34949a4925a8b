"""Several texts in flight in one iteration: which one answers an example, and what belongs to which.

Examples are dealt by their position in the batch, so a plan and the artifact tell it all. Where there is one
text nothing is named, and everything is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from combee.methods.protocol import Rendered, Update
from combee.records import Reflection, Trajectory


class Named(Protocol):
    """What says which text it belongs to."""

    @property
    def variant(self) -> str: ...


N = TypeVar("N", bound=Named)


def dealt_to(shown: Sequence[Rendered], position: int) -> Rendered:
    """The text for the example at a position of the batch."""
    return shown[position % len(shown)]


def name_of(shown: Sequence[Rendered], one: Rendered) -> str:
    """How a text is named in what comes of it; empty where there is no other."""
    return one.variant if len(shown) > 1 else ""


def of_text(rows: Iterable[N], shown: Sequence[Rendered], one: Rendered) -> list[N]:
    """Those of ``rows`` that came of the text ``one``."""
    return [row for row in rows if row.variant == name_of(shown, one)]


def signed(
    name: str, trajectory: Trajectory, reflection: Reflection | None
) -> tuple[Trajectory, Reflection | None]:
    """Both with the name of the text that they came of."""
    if not name:
        return trajectory, reflection
    return replace(trajectory, variant=name), replace(reflection, variant=name) if reflection else None


def changes_of(name: str, updates: Sequence[Update]) -> list[Update]:
    """The updates with the name of the text that they change."""
    return [replace(update, variant=name) for update in updates] if name else list(updates)
