"""What was learned of a component: ranked, told once, and as a block of its text that no model writes.

A last call carries so many lessons and no more. The block is rendered from all of them, word for word, so
what the call dropped is still there for the agents that read it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from combee.algo.components import similarity_components
from combee.algo.grouping import grouped as by_key
from combee.algo.text import kept_in
from combee.algo.tokens import BYTES_PER_TOKEN
from combee.methods.protocol import Update
from combee.records import example_of

HEADING = "Lessons from earlier work, each one a rule to follow where it applies:"
MARK = "- "
SIMILAR = 0.6
"""Shared share of the words of two lessons with equal numbers and identifiers that say the same."""


def backers(lesson: Update) -> int:
    """Return the distinct examples that a lesson comes from."""
    return len({example_of(source) for source in lesson.sources})


def ranked(lessons: Iterable[Update]) -> list[Update]:
    """Return the lessons, those that more examples back first, then by text."""
    return sorted(lessons, key=lambda one: (-backers(one), one.text))


def grouped(lessons: Sequence[Update], *, cap: int) -> list[Update]:
    """Return one lesson for each group of those that say the same, backed by all of it; ranked. No call.

    A group's wording is the one that most examples back, of these the shortest. The result does not depend
    on the order of ``lessons``.
    """
    ordered = sorted(lessons, key=lambda one: (one.section, one.text, sorted(one.sources)))
    united: list[Update] = []
    for inside in by_key(ordered, lambda one: one.section).values():
        for places in similarity_components([one.text for one in inside], threshold=SIMILAR, cap=max(1, cap)):
            united.append(_united([inside[place] for place in places]))
    return ranked(united)


def _united(group: Sequence[Update]) -> Update:
    wording: dict[str, set[str]] = defaultdict(set)
    for one in group:
        wording[one.text] |= {example_of(source) for source in one.sources}
    text = min(wording, key=lambda words: (-len(wording[words]), len(words), words))
    return next(one for one in group if one.text == text).backed_by(group)


def split(text: str) -> tuple[str, list[str]]:
    """Return a component's text without its block, and the lessons of the block.

    >>> split(with_block("Be brief.", ["Round late."], room_tokens=100))
    ('Be brief.', ['Round late.'])
    """
    body, heading, block = text.partition(HEADING)
    if not heading:
        return text.strip(), []
    lines = (line.strip().removeprefix(MARK).strip() for line in block.splitlines())
    return body.strip(), [line for line in lines if line]


def with_block(body: str, lessons: Sequence[str], *, room_tokens: int) -> str:
    """Return ``body`` and, below it, the lessons that it does not hold already, in order, while they fit.

    ``room_tokens`` is what the whole text may take. The body is never cut.
    """
    body = body.strip()
    stated = [line for line in body.splitlines() if line.strip()]
    room = room_tokens * BYTES_PER_TOKEN - len(f"{body}\n\n{HEADING}".encode())
    lines: list[str] = []
    for lesson in dict.fromkeys(lessons):
        if not lesson or any(kept_in(lesson, line) for line in stated):
            continue
        cost = len(f"\n{MARK}{lesson}".encode())
        if cost <= room:
            lines.append(f"{MARK}{lesson}")
            room -= cost
    if not lines:
        return body
    return "\n".join([*([body, ""] if body else []), HEADING, *lines])
