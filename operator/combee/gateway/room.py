"""Memory for bodies: how much of it requests and samples have taken, and the most that they may take together.

Half of what the container has. The other half is the program's own: connections, its libraries, what the allocator
keeps. Requests come first: samples of traffic find room only while half of it is free, and give theirs up for a
request that finds none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

COPIES = 2
"""of a body: as it came or with the playbook in it, and what of it is on its way to the upstream."""
EACH = 64 * 1024
"""bytes of what else a request takes: its connections, its headers, what of its answer is on the way."""
_VALUE = 512
"""bytes of one value of JSON, parsed twice, and of its name: none takes more."""


@dataclass(slots=True)
class Room:
    """``most`` bytes, of which ``taken`` are taken."""

    most: int
    taken: int = 0
    give_way: Callable[[int], None] = lambda size: None
    """gives so many bytes of samples back, or as many as there are."""

    @classmethod
    def of(cls, memory: int) -> Room:
        """The room for bodies in a container of so many bytes."""
        return cls(memory // 2)

    def hold(self, *, sample: bool = False) -> Hold:
        """Nothing yet, of a request or of a sample."""
        return Hold(self, sample)

    def take(self, size: int, *, sample: bool) -> bool:
        """Whether there is room for ``size`` bytes more; then they are taken."""
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
    """What one request, or one sample, has taken. Used as a context manager, or closed."""

    room: Room
    sample: bool = False
    taken: int = 0

    def take(self, size: int) -> bool:
        """Take ``size`` bytes more; False: there is no room for them, and nothing changes."""
        if not self.room.take(size, sample=self.sample):
            return False
        self.taken += size
        return True

    def give(self, size: int) -> None:
        """Give ``size`` of them back."""
        self.taken -= size
        self.room.taken -= size

    def close(self) -> None:
        """Give all of it back."""
        self.give(self.taken)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def working(body: bytes) -> int:
    """Bytes that it takes for a moment to put a playbook into ``body``, at most: its text several times over, and its
    values, of which there is one more than commas and brackets tell.

    >>> working(b'{"a": 1}')
    544
    """
    text = len(body) if body.isascii() else 4 * len(body)
    return 4 * text + _VALUE * sum(body.count(one) for one in (b",", b"{", b"["))
