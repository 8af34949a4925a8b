"""What changed between two artifacts, as people are shown it. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Changed:
    """One entry that differs between two texts."""

    section: str
    id: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One entry, or one line that is none (then ``id`` is empty)."""

    section: str
    id: str
    text: str
    votes: str = ""
    """what examples say of it, in words; a diff leaves it out."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What came and changed, in the order of the newer text, and what went, in that of the older one."""

    added: tuple[DiffLine, ...]
    removed: tuple[DiffLine, ...]
    changed: tuple[Changed, ...]
    same: int

    @property
    def empty(self) -> bool:
        """Whether both say the same."""
        return not (self.added or self.removed or self.changed)


def plain_lines(text: str) -> list[DiffLine]:
    """Return the lines of a text, blank ones aside."""
    return [DiffLine("", "", line) for line in text.splitlines() if line.strip()]


def diff_lines(before: str, after: str) -> Diff:
    """Compare two texts line by line, without blank lines; a line that only moved is the same.

    >>> diff_lines("one\\ntwo", "two\\nthree").added
    (DiffLine(section='', id='', text='three', votes=''),)
    """
    old, new = (
        Counter(line.strip() for line in text.splitlines() if line.strip()) for text in (before, after)
    )
    return Diff(
        tuple(DiffLine("", "", line) for line in (new - old).elements()),
        tuple(DiffLine("", "", line) for line in (old - new).elements()),
        (),
        (old & new).total(),
    )
