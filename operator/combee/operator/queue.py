"""A queue of keys that are due: one worker a key at a time, a key that is woken twice is done once.

A key that fails comes again after a pause that doubles; one that succeeds comes again when it asked
to, and at the latest after the resync.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(slots=True)
class DueQueue(Generic[Key]):
    """``tick`` is called for keys as they fall due; it returns after how many seconds it wants to be
    called again (no later than the resync), or None for the resync, or a negative number for never
    (until woken)."""

    tick: Callable[[Key], Awaitable[float | None]]
    resync_seconds: float = 60.0
    width: int = 4
    """ticks at once. More do not end sooner: they wait for the same API server and the same processor, and each
    takes the longer."""
    clock: Callable[[], float] = time.monotonic
    reacted: Callable[[float], None] = lambda seconds: None
    """told how long a woken key waited for its tick."""
    _due: dict[Key, float] = field(default_factory=dict)
    """when each known key is due; the heap may hold older moments, too."""
    _woken: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)
    _busy: set[Key] = field(default_factory=set)
    _again: dict[Key, float] = field(default_factory=dict)
    """woken while at work: when it is due afterwards."""
    _failures: dict[Key, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        """Keys that wait for a tick or are in one: one whose tick never ends is not forgotten."""
        return len(self._due) + len(self._busy)

    def wake(self, key: Key, after_seconds: float = 0.0) -> None:
        """Have ``key`` ticked after so long, or earlier if it is due earlier."""
        at = self.clock() + after_seconds
        if after_seconds == 0.0:
            self._woken.setdefault(key, at)
        if key in self._busy:
            self._again[key] = min(at, self._again.get(key, at))
            return
        if at < self._due.get(key, float("inf")):
            self._push(key, at)

    def forget(self, key: Key) -> None:
        """Never tick ``key`` again, until it is woken."""
        for known in (self._due, self._failures, self._woken, self._again):
            known.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled; ticks under way are then left to end by themselves."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.width):
                group.create_task(self._worker())

    def _push(self, key: Key, at: float) -> None:
        self._due[key] = at
        heapq.heappush(self._heap, (at, next(self._numbers), key))
        self._changed.set()

    async def _worker(self) -> None:
        while True:
            await self._do(await self._next())

    async def _next(self) -> Key:
        while True:
            now = self.clock()
            while self._heap:
                at, _, key = self._heap[0]
                if self._due.get(key) != at:
                    heapq.heappop(self._heap)
                elif at <= now:
                    heapq.heappop(self._heap)
                    del self._due[key]
                    return key
                else:
                    break
            pause = self._heap[0][0] - now if self._heap else None
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for may swallow a cancellation
                    await self._changed.wait()

    async def _do(self, key: Key) -> None:
        self._busy.add(key)
        if (since := self._woken.pop(key, None)) is not None:
            self.reacted(self.clock() - since)
        try:
            after = await self.tick(key)
            self._failures.pop(key, None)
        except Exception as error:
            after = self._pause(key)
            log.warning(
                "a tick failed", extra={"run": str(key), "error": str(error), "again": round(after, 1)}
            )
        finally:
            self._busy.discard(key)
        due = [self._again.pop(key)] if key in self._again else []
        if after is None or after >= 0:
            spread = random.uniform(0.9, 1.1)  # noqa: S311 - resyncs of many keys must not come together
            resync = self.resync_seconds * spread
            due.append(self.clock() + (resync if after is None else min(after, resync)))
        if due:
            self._push(key, min(due))

    def _pause(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)))
