"""A queue of due keys: a key has one worker at a time, and a key that is woken twice is ticked once.

A key that fails is ticked again after a pause that doubles; one that succeeds is ticked again when its
tick asked for it, and at the latest after the resync.
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
    """Calls ``tick`` for keys as they fall due. ``tick`` returns after how many seconds to call it again
    (no later than the resync), None for the resync, or a negative number for never (until woken)."""

    tick: Callable[[Key], Awaitable[float | None]]
    resync_seconds: float = 60.0
    width: int = 4
    """How many ticks run at once. More would not finish sooner: they share the API server and the
    processor."""
    clock: Callable[[], float] = time.monotonic
    reacted: Callable[[float], None] = lambda seconds: None
    """Called with the seconds that a woken key waited for its tick."""
    _due: dict[Key, float] = field(default_factory=dict)
    """When each known key is due; the heap may also hold outdated moments."""
    _woken: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)
    _busy: set[Key] = field(default_factory=set)
    _due_after_tick: dict[Key, float] = field(default_factory=dict)
    """When keys are due that were woken during their tick."""
    _failures: dict[Key, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __len__(self) -> int:
        """The number of keys that wait for a tick or are in one, so that a tick which never ends is
        counted."""
        return len(self._due) + len(self._busy)

    def wake(self, key: Key, after_seconds: float = 0.0) -> None:
        """Have ``key`` ticked after so many seconds, or earlier if it is due earlier."""
        at = self.clock() + after_seconds
        if after_seconds == 0.0:
            self._woken.setdefault(key, at)
        if key in self._busy:
            self._due_after_tick[key] = min(at, self._due_after_tick.get(key, at))
            return
        if at < self._due.get(key, float("inf")):
            self._push(key, at)

    def forget(self, key: Key) -> None:
        """Do not tick ``key`` again until it is woken."""
        for times in (self._due, self._failures, self._woken, self._due_after_tick):
            times.pop(key, None)

    async def run(self) -> None:
        """Run ticks until cancelled."""
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
        moments = [self._due_after_tick.pop(key)] if key in self._due_after_tick else []
        if after is None or after >= 0:
            spread = random.uniform(0.9, 1.1)  # noqa: S311 - resyncs of many keys must not come together
            resync = self.resync_seconds * spread
            moments.append(self.clock() + (resync if after is None else min(after, resync)))
        if moments:
            self._push(key, min(moments))

    def _pause(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10)))
