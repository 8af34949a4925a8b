"""Before the first call: wait, for a limited time, for a server that is still starting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from combee.errors import CombeeError, TransientError, UnreachableError

FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 5.0


class Gate:
    """``await gate()`` returns once the endpoint serves its model. Concurrent callers share one check.

    The result is remembered: later calls do not wait again for an endpoint that did not start in time.
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
        """What the check returned; None before it has."""

    async def __call__(self) -> None:
        """Wait until the endpoint serves its model.

        Raises UnreachableError when it did not answer in time, and EndpointError at once when the key
        or the model is refused.
        """
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
                remaining = until - self._clock()
                if remaining <= 0:
                    raise UnreachableError(
                        f"not ready within {self._wait_seconds:g} s: {error.what}",
                        where=error.where,
                        fix=error.fix,
                    ) from None
                await self._sleep(min(pause, remaining))
                pause = min(LONGEST_WAIT_SECONDS, pause * 2)
