"""The bullets of a version, and what changed between two, as the page shows them. Pure.

A version may hold 900 KiB of anybody's text, and this process has requests to pass on, so the page shows a
limited part and says how much it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from combee.methods.diff import Changed, DiffLine
from combee.methods.registry import diff_texts, lines_of

MOST_ENTRIES = 400
"""most bullets or lines on one page."""
MOST_CHARACTERS = 1500
"""most characters shown of one entry; a bullet has at most 1,200."""


@dataclass(frozen=True, slots=True)
class Section:
    """Bullets under one heading."""

    title: str
    bullets: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True)
class Content:
    """A version's text, in its order."""

    sections: tuple[Section, ...]
    bullets: int
    hidden: int
    """number of entries left out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text, and whether only this side has it."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True)
class Reworded:
    """A bullet whose text changed, in both versions."""

    id: str
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class DiffSection:
    """What changed under one heading."""

    title: str
    removed: tuple[DiffLine, ...]
    changed: tuple[Reworded, ...]
    added: tuple[DiffLine, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two versions."""

    sections: tuple[DiffSection, ...]
    added: int
    removed: int
    changed: int
    same: int
    hidden: int


def content_of(text: str, method: str = "") -> Content:
    """Return the bullets of a version by section, and its other lines of text, as its ``method`` has them."""
    lines = [line for line in lines_of(text, method) if line.text]
    sections: dict[str, list[DiffLine]] = {}
    for line in lines[:MOST_ENTRIES]:
        sections.setdefault(line.section, []).append(_cut_entry(line))
    return Content(
        tuple(Section(title, tuple(bullets)) for title, bullets in sections.items()),
        sum(bool(line.id) for line in lines),
        max(0, len(lines) - MOST_ENTRIES),
    )


def difference_of(before: str, after: str, methods: tuple[str, str] = ("", "")) -> Difference:
    """Return what changed from ``before`` to ``after``, by section, in the order of the newer text."""
    diff = diff_texts(before, after, methods)
    removed = diff.removed[:MOST_ENTRIES]
    changed = diff.changed[: MOST_ENTRIES - len(removed)]
    added = diff.added[: MOST_ENTRIES - len(removed) - len(changed)]
    shown: list[DiffLine | Changed] = [*removed, *changed, *added]
    lines = [*lines_of(after, methods[1]), *lines_of(before, methods[0]), *shown]
    changed_in = {entry.section for entry in shown}
    return Difference(
        tuple(
            _section(title, removed, changed, added)
            for title in dict.fromkeys(line.section for line in lines)
            if title in changed_in
        ),
        added=len(diff.added),
        removed=len(diff.removed),
        changed=len(diff.changed),
        same=diff.same,
        hidden=len(diff.added) + len(diff.removed) + len(diff.changed) - len(shown),
    )


def _section(
    title: str, removed: Iterable[DiffLine], changed: Iterable[Changed], added: Iterable[DiffLine]
) -> DiffSection:
    return DiffSection(
        title,
        tuple(_cut_entry(entry) for entry in removed if entry.section == title),
        tuple(reworded(change) for change in changed if change.section == title),
        tuple(_cut_entry(entry) for entry in added if entry.section == title),
    )


def reworded(change: Changed) -> Reworded:
    """Return both texts split into pieces: all words between the common beginning and end differ.

    >>> both = reworded(Changed("general", "x-1", "Round to two digits.", "Round late to two digits."))
    >>> [(piece.text, piece.differs) for piece in both.after]
    [('Round', False), ('late', True), ('to two digits.', False)]
    """
    old, new = _cut(change.before).split(), _cut(change.after).split()
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return Reworded(change.id, _pieces(old, head, tail), _pieces(new, head, tail))


def _pieces(words: list[str], head: int, tail: int) -> tuple[Piece, ...]:
    end = len(words) - tail
    parts = ((words[:head], False), (words[head:end], True), (words[end:], False))
    return tuple(Piece(" ".join(part), differs) for part, differs in parts if part)


def _cut_entry(entry: DiffLine) -> DiffLine:
    return replace(entry, text=_cut(entry.text))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"
