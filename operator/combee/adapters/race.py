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


@dataclass(slots=True)
class Race:
    """``attempt`` makes one request; its result is a Completion or a reason to ask again."""

    attempt: Callable[[], Awaitable[Any]]
    limits: RunLimits
    hedger: Hedger
    hedged: bool = False
    """whether a second request was sent."""

    async def run(self, wait_seconds: float | None) -> Any:
        """The first answer; without one, what the first attempt ended with.

        A second request goes out after ``wait_seconds`` (None: never), and only when the hedge
        budget and a slot that nobody waits for allow it. Cancelling this cancels both.
        """
        if wait_seconds is None:
            return await self.attempt()
        first = asyncio.ensure_future(self.attempt())
        second: asyncio.Future[Any] | None = None
        try:
            if await self._done_before_a_hedge(first, wait_seconds):
                return first.result()
            self.hedger.hedged()
            self.hedged = True
            second = asyncio.ensure_future(self.attempt())
            return await _first_answer(first, second)
        finally:
            await _end([first, second] if second else [first])
            if self.hedged:
                self.limits.give_back()

    async def _done_before_a_hedge(self, first: asyncio.Future[Any], wait_seconds: float) -> bool:
        done, _ = await asyncio.wait({first}, timeout=wait_seconds)
        while not done:
            if self.hedger.may_hedge and self.limits.take_free():
                return False
            done, _ = await asyncio.wait({first}, timeout=max(wait_seconds / 4, LOOK_AGAIN_SECONDS))
        return True


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
