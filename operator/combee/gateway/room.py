"""The memory budget for bodies, shared by requests and samples.

The budget is half of the container's memory. The other half is for the program itself: connections, libraries
and what the allocator keeps. Requests come first: samples of traffic get memory only while half of the budget
is free, and give theirs up for a request that finds none.

A budget of requests has the same form, with a size of 1 for each. No holder of a key takes all of a budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

COPIES = 2
"""copies of a body in memory: the one that came or the one with the playbook, and the one being sent."""
EACH = 64 * 1024
"""bytes that a request takes besides its body: connections, headers, the part of the answer under way."""
SHARE = 8
"""A holder gets more while it has less than so many times what is free: one alone comes to 8/9 and leaves
the rest to the next, and what ends goes to who has less, until two have 8/17 each."""
LEAST_AT_ONCE = 32
"""Requests at once that a gateway serves however late it is."""
LATE_SECONDS = 0.2
"""A gateway whose requests wait longer than this for their turn takes fewer at once."""
_VALUE = 512
"""upper bound, in bytes, of one JSON value parsed twice, with its name."""


@dataclass(slots=True)
class Room:
    """A budget of ``most`` bytes, of which ``taken`` are in use."""

    most: int
    taken: int = 0
    give_way: Callable[[int], None] = lambda size: None
    """frees so many bytes of samples, or all that samples hold."""
    held: Counter[str] = field(default_factory=Counter)
    """holder -> what its requests have taken; samples are not counted."""
    soft: bool = False
    """whether a holder with less than an equal part gets it also where nothing is free."""

    @classmethod
    def of(cls, memory: int) -> Room:
        """Return the budget for a container with ``memory`` bytes."""
        return cls(memory // 2)

    def hold(self, holder: str = "", *, sample: bool = False) -> Hold:
        """Return an empty hold for one request of ``holder``, or for one sample."""
        return Hold(self, sample, holder)

    def take(self, size: int, holder: str = "", *, sample: bool = False) -> bool:
        """Take ``size`` more and return True; return False, taking nothing, when so much is not free, or the
        holder has its share already."""
        if sample:
            if self.taken + size > self.most // 2:
                return False
            self.taken += size
            return True
        needed = max(size, self.held[holder] // SHARE + 1)
        if (lacking := self.taken + needed - self.most) > 0:
            if size <= self.most:
                self.give_way(lacking)
            if self.taken + needed > self.most and not self._owed(size, holder):
                return False
        self.taken += size
        self.held[holder] += size
        return True

    def _owed(self, size: int, holder: str) -> bool:
        holders = len(self.held) + (holder not in self.held)
        return self.soft and self.held[holder] + size <= self.most // holders


@dataclass(slots=True)
class Hold:
    """What one request or one sample has of a budget. Use it as a context manager, or close it."""

    room: Room
    sample: bool = False
    holder: str = ""
    taken: int = 0

    def take(self, size: int) -> bool:
        """Take ``size`` more and return True; return False, changing nothing, when it is not to be had."""
        if not self.room.take(size, self.holder, sample=self.sample):
            return False
        self.taken += size
        return True

    def give(self, size: int) -> None:
        """Give ``size`` back."""
        self.taken -= size
        self.room.taken -= size
        if not self.sample:
            self.room.held[self.holder] -= size
            if not self.room.held[self.holder]:
                del self.room.held[self.holder]

    def close(self) -> None:
        """Give everything back."""
        self.give(self.taken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def paced(room: Room, late: float, most: int) -> int:
    """Return how many requests a gateway may take at once whose loop was ``late`` by so many seconds: while
    it is late, a fifth to a half fewer than there are, otherwise a tenth more than before, up to ``most``.
    One that is late with few requests is not late because of them: it takes as many as before."""
    if late > LATE_SECONDS:
        if room.taken <= LEAST_AT_ONCE:
            return room.most
        return max(LEAST_AT_ONCE, int(min(room.most, room.taken) * max(0.5, 1.0 - late)))
    return min(most, room.most + room.most // 10 + 1)


def working(body: bytes) -> int:
    """Return an upper bound of the bytes needed for a moment to put a playbook into ``body``: several copies
    of its text, and its values, of which there is at most one more than there are commas and brackets.

    >>> working(b'{"a": 1}')
    544
    """
    text = len(body) if body.isascii() else 4 * len(body)
    return 4 * text + _VALUE * sum(body.count(mark) for mark in (b",", b"{", b"["))
