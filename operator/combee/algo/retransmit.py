"""Decides whether reflections are sent in copies, or sent again when their lesson was not carried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from combee.errors import BugError

DUPLICATE_BELOW = 64
"""Below this many reflections a round's latency costs more than copies do (DESIGN section 5)."""


@dataclass(frozen=True, slots=True)
class Redundancy:
    """How an iteration's reflections are sent: ``copies`` each, in at most ``rounds`` rounds."""

    mode: Literal["Duplicate", "Retransmit"]
    copies: int
    rounds: int


def choose_redundancy(
    mode: Literal["Auto", "Duplicate", "Retransmit"], n: int, copies: int = 2, max_rounds: int = 4
) -> Redundancy:
    """Return how many copies and rounds n reflections are sent in.

    ``Auto`` is ``Duplicate`` with ``copies`` for n < 64, else ``Retransmit``. Duplicate is one round;
    Retransmit sends one copy first and then, in at most ``max_rounds`` rounds in all, what is missing. Raises
    ``BugError`` for another mode or counts below 1. Source: DESIGN section 5. Cost: O(1).

    >>> choose_redundancy("Auto", 20), choose_redundancy("Auto", 1000).rounds
    (Redundancy(mode='Duplicate', copies=2, rounds=1), 4)
    """
    if mode not in ("Auto", "Duplicate", "Retransmit") or copies < 1 or max_rounds < 1:
        raise BugError(
            f"mode {mode!r}, copies {copies}, max_rounds {max_rounds} are no redundancy",
            where="choose_redundancy",
        )
    if mode == "Duplicate" or (mode == "Auto" and n < DUPLICATE_BELOW):
        return Redundancy("Duplicate", copies, 1)
    return Redundancy("Retransmit", 1, max_rounds)
