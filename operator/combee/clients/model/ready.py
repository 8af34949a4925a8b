"""Before the first call: wait, within bounds, for a server that is still starting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from combee.errors import CombeeError, TransientError, UnreachableError

FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 5.0


class Gate:
    """``await gate()`` returns once the endpoint serves its model. Asked by many, it asks once.

    What it found is remembered: an endpoint that did not come up in time is not waited for again by
    every call behind it.
    """

    def __init__(
        self,
        check: Callable[[], Awaitable[object]],
        wait_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._check = check
        self._wait_seconds = wait_seconds
        self._clock = clock
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._open = False
        self._refusal: CombeeError | None = None
        self.answer: object = None
        """what the check returned; None while it has not."""

    async def __call__(self) -> None:
        """UnreachableError when nobody answered in time; EndpointError at once when the key or the
        model is refused."""
        if self._open:
            return
        async with self._lock:
            if self._refusal is not None:
                raise self._refusal
            if not self._open:
                try:
                    await self._wait()
                except CombeeError as error:
                    self._refusal = error
                    raise
                self._open = True

    async def _wait(self) -> None:
        until, pause = self._clock() + self._wait_seconds, FIRST_WAIT_SECONDS
        while True:
            try:
                self.answer = await self._check()
                return
            except (UnreachableError, TransientError) as error:
                left = until - self._clock()
                if left <= 0:
                    raise UnreachableError(
                        f"not ready within {self._wait_seconds:g} s: {error.what}",
                        where=error.where,
                        fix=error.fix,
                    ) from None
                await self._sleep(min(pause, left))
                pause = min(LONGEST_WAIT_SECONDS, pause * 2)
