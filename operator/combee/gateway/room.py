"""The memory budget for bodies, shared by requests and samples.

The budget is half of the container's memory. The other half is for the program itself: connections, libraries
and what the allocator keeps. Requests come first: samples of traffic get memory only while half of the budget
is free, and give theirs up for a request that finds none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

COPIES = 2
"""copies of a body in memory: the one that came or the one with the playbook, and the one being sent."""
EACH = 64 * 1024
"""bytes that a request takes besides its body: connections, headers, the part of the answer under way."""
_VALUE = 512
"""upper bound, in bytes, of one JSON value parsed twice, with its name."""


@dataclass(slots=True)
class Room:
    """A budget of ``most`` bytes, of which ``taken`` are in use."""

    most: int
    taken: int = 0
    give_way: Callable[[int], None] = lambda size: None
    """frees so many bytes of samples, or all that samples hold."""

    @classmethod
    def of(cls, memory: int) -> Room:
        """Return the budget for a container with ``memory`` bytes."""
        return cls(memory // 2)

    def hold(self, *, sample: bool = False) -> Hold:
        """Return an empty hold for one request, or for one sample."""
        return Hold(self, sample)

    def take(self, size: int, *, sample: bool) -> bool:
        """Take ``size`` bytes more and return True; return False, taking nothing, when they do not fit."""
        if sample:
            if self.taken + size > self.most // 2:
                return False
        elif (lacking := self.taken + size - self.most) > 0:
            if size <= self.most:
                self.give_way(lacking)
            if self.taken + size > self.most:
                return False
        self.taken += size
        return True


@dataclass(slots=True)
class Hold:
    """The memory of one request or one sample. Use it as a context manager, or close it."""

    room: Room
    sample: bool = False
    taken: int = 0

    def take(self, size: int) -> bool:
        """Take ``size`` bytes more and return True; return False, changing nothing, when they do not fit."""
        if not self.room.take(size, sample=self.sample):
            return False
        self.taken += size
        return True

    def give(self, size: int) -> None:
        """Give ``size`` bytes back."""
        self.taken -= size
        self.room.taken -= size

    def close(self) -> None:
        """Give all bytes back."""
        self.give(self.taken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def working(body: bytes) -> int:
    """Return an upper bound of the bytes needed for a moment to put a playbook into ``body``: several copies
    of its text, and its values, of which there is at most one more than there are commas and brackets.

    >>> working(b'{"a": 1}')
    544
    """
    text = len(body) if body.isascii() else 4 * len(body)
    return 4 * text + _VALUE * sum(body.count(mark) for mark in (b",", b"{", b"["))
