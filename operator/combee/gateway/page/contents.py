"""The bullets of a version, and what changed between two, as the page shows them. Pure.

A version may hold 900 KiB of anybody's text, and this process has requests to pass on, so the page shows a
limited part and says how much it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from combee.methods.ace.diff import diff_playbooks
from combee.methods.ace.parse import Line, parse_playbook
from combee.methods.diff import Changed, Diff, Told

T = TypeVar("T")
MOST_ENTRIES = 400
"""most bullets or lines on one page."""
MOST_CHARACTERS = 1500
"""most characters shown of one entry; a bullet has at most 1,200."""


@dataclass(frozen=True, slots=True)
class Bullet:
    """One bullet. A line that is not a bullet has no id."""

    id: str
    text: str
    votes: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Bullets under one heading."""

    title: str
    bullets: tuple[Bullet, ...]


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
    removed: tuple[Bullet, ...]
    changed: tuple[Reworded, ...]
    added: tuple[Bullet, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two versions."""

    sections: tuple[DiffSection, ...]
    added: int
    removed: int
    changed: int
    same: int
    hidden: int


def content_of(text: str) -> Content:
    """Return the bullets of a version by section, and its other lines of text."""
    document = parse_playbook(text)
    lines = [line for line in document.lines if line.kind == "bullet" or _prose(line)]
    sections: dict[str, list[Bullet]] = {}
    for line in lines[:MOST_ENTRIES]:
        sections.setdefault(line.section, []).append(_bullet(line))
    return Content(
        tuple(Section(title, tuple(bullets)) for title, bullets in sections.items()),
        len(document.bullets),
        max(0, len(lines) - MOST_ENTRIES),
    )


def difference_of(before: str, after: str) -> Difference:
    """Return what changed from ``before`` to ``after``, by section, in the order of the newer text."""
    diff = diff_playbooks(before, after)
    removed, room = _first(diff.removed, MOST_ENTRIES)
    changed, room = _first(diff.changed, room)
    added, _ = _first(diff.added, room)
    changed_in = {bullet.section for bullet in (*removed, *added)} | {change.section for change in changed}
    order = dict.fromkeys(line.section for text in (after, before) for line in parse_playbook(text).lines)
    return Difference(
        tuple(_section(title, removed, changed, added) for title in order if title in changed_in),
        added=len(diff.added),
        removed=len(diff.removed),
        changed=len(diff.changed),
        same=diff.same,
        hidden=_size(diff) - len(removed) - len(changed) - len(added),
    )


def _first(entries: tuple[T, ...], room: int) -> tuple[tuple[T, ...], int]:
    return entries[:room], max(0, room - len(entries))


def _size(diff: Diff) -> int:
    return len(diff.removed) + len(diff.changed) + len(diff.added)


def _section(
    title: str, removed: Iterable[Told], changed: Iterable[Changed], added: Iterable[Told]
) -> DiffSection:
    return DiffSection(
        title,
        tuple(Bullet(change.id, _cut(change.text)) for change in removed if change.section == title),
        tuple(reworded(change) for change in changed if change.section == title),
        tuple(Bullet(change.id, _cut(change.text)) for change in added if change.section == title),
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


def _prose(line: Line) -> bool:
    return line.kind == "prose" and bool(line.raw.strip())


def _bullet(line: Line) -> Bullet:
    if line.kind != "bullet":
        return Bullet("", _cut(line.raw))
    contested = ", contested" if line.contested else ""
    return Bullet(
        line.id, _cut(line.entry_text), f"helpful {line.helpful}, harmful {line.harmful}{contested}"
    )


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"
