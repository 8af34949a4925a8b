"""Copies of a text: how alike two whole texts are, without a model.

A prompt of many lines that gains one stays nearly the same by its words, and so does one whose lines are put
in another order. Neither is a copy: words are compared by pairs of neighbours, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from combee.algo.text import anchors, jaccard

COPY = 0.92
"""Shared share of neighbouring words above which a text is a copy of another."""
_TOKEN = re.compile(r"\w+")


def alike(one: str, other: str) -> float:
    """Return how alike two texts are, in [0, 1]: the Jaccard similarity of their pairs of neighbouring words,
    each with the number of its line. It is 0 where they differ in the number of lines, or in any number or
    identifier. It is symmetric, and 1 for equal texts. Source: the strategist's anti-collapse rule; DESIGN
    section 6 (no model). Cost: linear.

    >>> alike("Round late and once.", "round late, and once"), alike("Round at 2.", "Round at 3.")
    (1.0, 0.0)
    >>> alike("Round late.\\nSay the unit.", "Say the unit.\\nRound late.")
    0.0
    """
    lines, others = _lines(one), _lines(other)
    if len(lines) != len(others):
        return 0.0
    first, second = anchors(one), anchors(other)
    if (first.numbers, first.identifiers) != (second.numbers, second.identifiers):
        return 0.0
    return jaccard(_pairs(lines), _pairs(others))


def copy_of(text: str, others: Iterable[str]) -> bool:
    """Return whether ``text`` is a copy of one of ``others``. Cost: linear in all of them.

    >>> copy_of("Round late!", ["Say the unit.", "round late"])
    True
    """
    return any(alike(text, other) > COPY for other in others)


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _pairs(lines: list[str]) -> frozenset[str]:
    """Return the pairs of neighbouring words, the edges of a line included: a lone word is in two."""
    return frozenset(
        f"{number} {one} {other}"
        for number, line in enumerate(lines)
        for one, other in pairwise(["", *_TOKEN.findall(line.casefold()), ""])
    )
