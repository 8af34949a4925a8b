"""One attempt, and a second beside it when the first is late: the first answer is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from combee.adapters.hedge import Hedger
from combee.adapters.limits import RunLimits
from combee.adapters.wire import Completion

LOOK_AGAIN_SECONDS = 0.05
LOOK_AGAIN_SHARE = 0.25


@dataclass(slots=True)
class Race:
    """``attempt`` makes one request; its result is a Completion or a reason to ask again."""

    attempt: Callable[[], Awaitable[Any]]
    limits: RunLimits
    hedger: Hedger
    hedged: bool = False
    """whether a second request was sent."""

    async def run(self, kind: str) -> Any:
        """The first answer; without one, what the first attempt ended with.

        A second request goes out once this one takes longer than calls of its kind do, and only
        when the hedge budget and a slot that nobody waits for allow it. Cancelling this cancels both.
        """
        if self.hedger.budget <= 0:
            return await self.attempt()
        first = asyncio.ensure_future(self.attempt())
        second: asyncio.Future[Any] | None = None
        try:
            if await self._done_before_a_hedge(first, kind):
                return first.result()
            self.hedger.hedged()
            self.hedged = True
            second = asyncio.ensure_future(self.attempt())
            return await _first_answer(first, second)
        finally:
            await _end([first, second] if second else [first])
            if self.hedged:
                self.limits.give_back()

    async def _done_before_a_hedge(self, first: asyncio.Future[Any], kind: str) -> bool:
        """Once it is known what is slow, that long is waited for; until then, and while budget or slots
        are short, it looks again after every quarter of the time so far: often the like of a call are
        those that were sent at the same moment."""
        clock = asyncio.get_running_loop().time
        sent, took = clock(), 0.0
        while True:
            wait = self.hedger.wait_seconds(kind)
            look = max(LOOK_AGAIN_SECONDS, took * LOOK_AGAIN_SHARE)
            if wait is not None and took < wait:
                look = wait - took
            elif wait is not None and self.hedger.may_hedge and self.limits.take_free():
                return False
            done, _ = await asyncio.wait({first}, timeout=look)
            if done:
                return True
            took = clock() - sent


async def _first_answer(first: asyncio.Future[Any], second: asyncio.Future[Any]) -> Any:
    waiting = {first, second}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            if one.exception() is None and isinstance(one.result(), Completion):
                return one.result()
    return first.result()


async def _end(futures: list[asyncio.Future[Any]]) -> None:
    """Cancel what still runs, and leave no exception unlooked at."""
    for one in futures:
        if not one.done():
            one.cancel()
    await asyncio.gather(*futures, return_exceptions=True)
