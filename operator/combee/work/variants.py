"""Several texts in flight in one iteration: which one answers an example, and what belongs to which.

Examples are dealt by their position in the batch, so a plan and the artifact tell it all. A text that is the
only one has no name, and everything belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from combee.methods.protocol import Rendered, Update
from combee.records import Reflection, Trajectory


class Named(Protocol):
    """Something that says which text it belongs to."""

    @property
    def variant(self) -> str: ...


N = TypeVar("N", bound=Named)


def dealt_to(shown: Sequence[Rendered], position: int) -> Rendered:
    """Return the text for the example at a position of the batch."""
    return shown[position % len(shown)]


def name_of(shown: Sequence[Rendered], one: Rendered) -> str:
    """Return the name of a text in what comes of it; empty where it is the only text."""
    return one.variant if len(shown) > 1 else ""


def of_text(rows: Iterable[N], shown: Sequence[Rendered], one: Rendered) -> list[N]:
    """Return those of ``rows`` that came of the text ``one``."""
    return [row for row in rows if row.variant == name_of(shown, one)]


def signed(
    name: str, trajectory: Trajectory, reflection: Reflection | None
) -> tuple[Trajectory, Reflection | None]:
    """Return both with the name of the text that they came of."""
    if not name:
        return trajectory, reflection
    return replace(trajectory, variant=name), replace(reflection, variant=name) if reflection else None


def changes_of(name: str, updates: Sequence[Update]) -> list[Update]:
    """Return the updates with the name of the text that they change."""
    return [replace(update, variant=name) for update in updates] if name else list(updates)
