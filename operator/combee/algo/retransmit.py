"""Decides whether reflections are sent in copies, or sent again when their lesson was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

from combee.errors import BugError

KEPT = 0.95
"""The share of distinct lessons from which on no round is made for the others (DESIGN section 10)."""
SOURCES = 2
"""Statements of a lesson that keep it: a second source tells a lesson from a slip."""


LEAST_LEAF = 2
"""Reflections of a leaf, if there are as many: one alone has nothing to be compared with."""
TURNS = 2
"""Leaves for each slot, one after the other: two of half the size take as long as one, and carry more."""


@dataclass(frozen=True, slots=True)
class Redundancy:
    """How an iteration's reflections are sent: ``copies`` each, in at most ``rounds`` rounds."""

    mode: Literal["Duplicate", "Retransmit"]
    copies: int
    rounds: int


def choose_redundancy(
    mode: Literal["Auto", "Duplicate", "Retransmit"], copies: int = 2, max_rounds: int = 4
) -> Redundancy:
    """Return how many copies and rounds reflections are sent in.

    Duplicate is one round; Retransmit, and so ``Auto``, sends one copy first and then, in at most
    ``max_rounds`` rounds in all, what was lost. Raises ``BugError`` for another mode or counts below 1.
    Cost: O(1).

    >>> choose_redundancy("Auto").rounds, choose_redundancy("Duplicate").copies
    (4, 2)
    """
    if mode not in ("Auto", "Duplicate", "Retransmit") or copies < 1 or max_rounds < 1:
        raise BugError(
            f"mode {mode!r}, copies {copies}, max_rounds {max_rounds} are no redundancy",
            where="choose_redundancy",
        )
    if mode == "Duplicate":
        return Redundancy("Duplicate", copies, 1)
    return Redundancy("Retransmit", 1, max_rounds)


def leaf_size(n: int, slots: int, *, most: int) -> int:
    """Return how many of n reflections a leaf takes: as few as let ``slots`` make all leaves in two turns.

    A leaf takes the time of the entries that it writes, and of few lessons a call carries a larger share than
    of many. So slots that would stand empty make leaves smaller, down to ``LEAST_LEAF``; at most ``most``.
    Raises ``BugError`` for n < 0, and slots or most below 1. Cost: O(1).

    >>> [leaf_size(250, slots, most=8) for slots in (8, 32, 64)]
    [8, 4, 2]
    """
    if n < 0 or min(slots, most) < 1:
        raise BugError(f"n={n}, slots={slots}, most={most} size no leaf", where="leaf_size")
    return min(most, max(LEAST_LEAF, -(-n // (TURNS * slots))))


def lost_lessons(clusters: Sequence[int], carried: Sequence[bool]) -> frozenset[int]:
    """Return the clusters that are worth another round: the distinct lessons that were lost.

    ``clusters[i]`` says which distinct lesson statement i states, and ``carried[i]`` whether an entry carries
    it. A lesson is kept when ``SOURCES`` of its statements are carried, or all where there are fewer. None is
    worth a round once a share of ``KEPT`` of them is kept. Raises ``BugError`` for unequal lengths.
    Cost: O(n).

    >>> sorted(lost_lessons([0, 0, 0, 1, 2], [True, True, False, False, True]))
    [1]
    """
    if len(clusters) != len(carried):
        raise BugError(f"{len(clusters)} statements, {len(carried)} said of", where="lost_lessons")
    stated, kept = Counter(clusters), Counter(compress(clusters, carried))
    lost = frozenset(lesson for lesson, times in stated.items() if kept[lesson] < min(SOURCES, times))
    return lost if len(stated) - len(lost) < KEPT * len(stated) else frozenset()
