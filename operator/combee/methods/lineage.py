"""A member of a method's pool as reports show it: what it came out of, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VariantKind = Literal["start", "rewrite", "lessons", "merge"]


@dataclass(frozen=True, slots=True)
class VariantView:
    """One variant. ``parents`` are digests; ``iteration`` counts from 0, and is -1 for one that was given."""

    digest: str
    kind: VariantKind
    parents: tuple[str, ...]
    iteration: int
    changed: tuple[str, ...]
    """names of the components that differ from the first parent's."""
    gain: float | None
    """by how much its scores' sum beat its parents' on ``examples``, where it was judged."""
    examples: int
    score: float | None
    """mean over the ``scored`` rows of select that have a score."""
    scored: int
    leads: bool
    """whether it is the one that is rendered."""
