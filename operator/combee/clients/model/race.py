"""One attempt, and others beside it when it is late: the first answer is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from combee.clients.model.hedge import Hedger
from combee.clients.model.limits import RunLimits
from combee.clients.model.wire import Completion

LOOK_AGAIN_SECONDS = 0.05
LOOK_AGAIN_SHARE = 0.25
MOST_BESIDE = 2
"""Further requests that run beside the first at a time: the second may be a straggler, too."""


@dataclass(slots=True)
class Race:
    """``attempt`` makes one request; its result is a Completion or a reason to ask again.

    ``rest`` says how many seconds to wait after such a reason before the next request may go out.
    """

    attempt: Callable[[], Awaitable[Any]]
    limits: RunLimits
    hedger: Hedger
    rest: Callable[[Any], float] = lambda _: 0.0
    hedges: int = 0
    """further requests that were sent."""
    missed: list[Any] = field(default_factory=list)
    """what attempts ended with that brought no answer, without the one that ``run`` returns."""
    _slot: asyncio.Future[None] | None = None
    """the slot that is queued for, or held and not used yet."""

    async def run(self, kind: str) -> Any:
        """The first answer; without one, what the first attempt ended with.

        Another request goes out once the newest one takes longer than calls of its kind do, or once
        it failed while an older one still has not answered; when the hedge budget allows it, into
        the next slot that is free: a straggler that is left behind frees its own much sooner than it
        would have. Cancelling this cancels all.
        """
        if self.hedger.budget <= 0:
            return await self.attempt()
        first = asyncio.ensure_future(self.attempt())
        running: set[asyncio.Future[Any]] = {first}
        try:
            answer = await self._first_answer(kind, first, running)
            return first.result() if answer is None else answer
        finally:
            self._drop_slot()
            await _end([first, *running])
            for _ in range(self.hedges):
                self.limits.give_back()

    async def _first_answer(
        self, kind: str, newest: asyncio.Future[Any], running: set[asyncio.Future[Any]]
    ) -> Any:
        """None when all of them ended without one."""
        clock = asyncio.get_running_loop().time
        began = sent = clock()
        rested_until = 0.0
        while running:
            now = clock()
            due = self._due(kind, sent, rested_until) - now
            if due <= 0 and self._has_slot(len(running)):
                newest, sent = self._send(running), now
                continue
            look = max(LOOK_AGAIN_SECONDS, (now - began) * LOOK_AGAIN_SHARE)
            timeout = due if 0 < due < float("inf") else look
            queued = self._slot is not None and not self._slot.done()
            waited = {*running, self._slot} if self._slot is not None and queued else running
            done, _ = await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for one in done & running:
                running.discard(one)
                outcome = None if one.exception() else one.result()
                if isinstance(outcome, Completion):
                    return outcome
                if running and one is newest:  # who is left is late already: only the rest is waited for
                    sent, rested_until = float("-inf"), clock() + self.rest(outcome)
                    self._drop_slot()
                if running:
                    self.missed.append(outcome)
        return None

    def _due(self, kind: str, sent: float, rested_until: float) -> float:
        """When another request may go out. While it is not known what is slow, the race looks again
        after every quarter of the time so far: often the like of a call were sent at the same moment."""
        wait = self.hedger.wait_seconds(kind)
        return float("inf") if wait is None else max(sent + wait, rested_until)

    def _has_slot(self, running: int) -> bool:
        """Whether a slot is there for another request; where there could be one, it is queued for."""
        if running > MOST_BESIDE or not self.hedger.may_hedge:
            self._drop_slot()
            return False
        if self._slot is None:
            self._slot = self.limits.claim()
        return self._slot.done()

    def _drop_slot(self) -> None:
        if self._slot is not None:
            self.limits.drop(self._slot)
            self._slot = None

    def _send(self, running: set[asyncio.Future[Any]]) -> asyncio.Future[Any]:
        self._slot = None
        self.hedger.hedged()
        self.hedges += 1
        another = asyncio.ensure_future(self.attempt())
        running.add(another)
        return another


async def _end(futures: list[asyncio.Future[Any]]) -> None:
    """Cancel what still runs, and leave no exception unlooked at."""
    for one in futures:
        if not one.done():
            one.cancel()
    await asyncio.gather(*futures, return_exceptions=True)
