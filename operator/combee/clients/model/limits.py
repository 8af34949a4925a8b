"""How many calls a run may make at a time and in a minute. All roles share one object.

Slots and rates are served in order of arrival. A cancelled wait loses no slot and no reservation.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

from combee.errors import ManifestError

WINDOW_SECONDS = 60.0
_POLL_SECONDS = 1.0
"""A waiting call checks again at least this often, since an early settlement can free tokens."""

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


class Reservation:
    """Tokens reserved for one request; ``settle`` replaces the estimate by the actual number."""

    __slots__ = ("_limits", "at", "in_window", "tokens")

    def __init__(self, limits: RunLimits, at: float, tokens: int) -> None:
        self._limits = limits
        self.at = at
        self.tokens = tokens
        self.in_window = True

    def settle(self, tokens: int) -> None:
        """Record that the request used ``tokens``; without effect once the reservation left the window."""
        if self.in_window:
            self._limits._window_tokens += tokens - self.tokens
            self.tokens = tokens


class RunLimits:
    """At most ``concurrency`` calls in flight, and so many requests and tokens in *any* 60 seconds.

    The window slides and bursts are allowed inside it: a small batch under a low rate is not
    spread over a minute for nothing. A single request above ``tokens_per_minute`` is let through
    alone, in an empty window, since it could never run otherwise. None means no limit.
    """

    def __init__(
        self,
        concurrency: int,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        *,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        for name, value in (
            ("concurrency", concurrency),
            ("requestsPerMinute", requests_per_minute),
            ("tokensPerMinute", tokens_per_minute),
        ):
            if value is not None and value < 1:
                raise ManifestError(f"{name} is {value}", where="workers", fix="It must be 1 or more.")
        self.concurrency = concurrency
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._free = concurrency
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._turn = asyncio.Lock()
        self._window: deque[Reservation] = deque()
        self._window_tokens = 0

    async def __aenter__(self) -> None:
        """Wait for a slot, in order of arrival."""
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if ticket.done() and not ticket.cancelled():
                self._release()  # the slot was already ours: hand it on
            else:
                with suppress(ValueError):
                    self._waiting.remove(ticket)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._release()

    def take_free(self) -> bool:
        """Take a free slot that nobody waits for and return whether there was one; never waits.

        Free it with ``give_back``.
        """
        if self._free > 0 and not self._waiting:
            self._free -= 1
            return True
        return False

    def claim(self) -> asyncio.Future[None]:
        """Return a place at the head of the queue; the future is done once it holds a slot.

        Free the slot with ``give_back``, or end the claim with ``drop``.
        """
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.take_free():
            ticket.set_result(None)
        else:
            self._waiting.appendleft(ticket)
        return ticket

    def drop(self, ticket: asyncio.Future[None]) -> None:
        """End a claim, whether it holds a slot or still waits for one."""
        if ticket.done():
            self._release()
        else:
            self._waiting.remove(ticket)
            ticket.cancel()

    def give_back(self) -> None:
        """Free a slot that came from ``take_free`` or ``claim``."""
        self._release()

    @property
    def in_flight(self) -> int:
        """The number of slots that are taken now."""
        return self.concurrency - self._free

    async def reserve(self, tokens: int) -> Reservation | None:
        """Wait until one more request of ``tokens`` fits the rates, and reserve it; None without rates."""
        if self._requests is None and self._tokens is None:
            return None
        async with self._turn:  # asyncio's lock serves its waiters in order
            while (wait := self._wait_seconds(tokens)) > 0:
                await self._sleep(min(wait, _POLL_SECONDS))
            reservation = Reservation(self, self._clock(), tokens)
            self._window.append(reservation)
            self._window_tokens += tokens
            return reservation

    def _release(self) -> None:
        while self._waiting:
            ticket = self._waiting.popleft()
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1

    def _wait_seconds(self, tokens: int) -> float:
        now = self._clock()
        window = self._window
        while window and window[0].at + WINDOW_SECONDS <= now:
            expired = window.popleft()
            expired.in_window = False
            self._window_tokens -= expired.tokens
        if not window:
            return 0.0
        wait = 0.0
        if self._requests is not None and len(window) >= self._requests:
            wait = window[len(window) - self._requests].at + WINDOW_SECONDS - now
        if self._tokens is not None:
            window_tokens = self._window_tokens
            for entry in window:
                if window_tokens + tokens <= self._tokens:
                    break
                window_tokens -= entry.tokens
                wait = max(wait, entry.at + WINDOW_SECONDS - now)
        return wait
