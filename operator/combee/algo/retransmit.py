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
TURNS = 4
"""Leaves for each slot, one after the other: four of a quarter of the size take as long as one, and carry
more."""


@dataclass(frozen=True, slots=True)
class Redundancy:
    """How an iteration's reflections are sent: ``copies`` each, in at most ``rounds`` rounds, to leaves of
    ``leaf_size``."""

    mode: Literal["Duplicate", "Retransmit"]
    copies: int
    rounds: int
    leaf_size: int


def choose_redundancy(
    mode: Literal["Auto", "Duplicate", "Retransmit"],
    n: int,
    slots: int,
    *,
    copies: int = 2,
    max_rounds: int = 4,
    most: int = 8,
) -> Redundancy:
    """Return how n reflections are sent to leaves of at most ``most``, of which ``slots`` run at once.

    Duplicate is one round of full leaves. Retransmit, and so ``Auto``, sends one copy first and then, in at
    most ``max_rounds`` rounds in all, what was lost. A leaf takes the time of the entries that it writes, and
    of few lessons a call carries a larger share than of many. So leaves are as small as lets the slots make
    all of them in ``TURNS``, down to one reflection each. Raises ``BugError`` for another mode, n < 0, and
    the others below 1. Cost: O(1).

    >>> [choose_redundancy("Auto", 250, slots).leaf_size for slots in (4, 16, 64)]
    [8, 4, 1]
    """
    if mode not in ("Auto", "Duplicate", "Retransmit") or n < 0 or min(slots, copies, max_rounds, most) < 1:
        raise BugError(
            f"{mode!r}, n={n}, slots={slots}, copies={copies}, max_rounds={max_rounds}, most={most} are no "
            "redundancy",
            where="choose_redundancy",
        )
    if mode == "Duplicate":
        return Redundancy("Duplicate", copies, 1, most)
    return Redundancy("Retransmit", 1, max_rounds, min(most, max(1, -(-n // (TURNS * slots)))))


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
