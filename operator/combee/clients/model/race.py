"""One attempt, and further ones beside it when it takes too long: the first answer wins."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from combee.clients.model.limits import RunLimits
from combee.clients.model.wire import Completion

LOOK_AGAIN_SECONDS = 0.05
LOOK_AGAIN_SHARE = 0.25
MOST_BESIDE = 2
"""How many further requests may run beside the first: the second may be a straggler, too."""


@dataclass(slots=True)
class Race:
    """``attempt`` makes one request and returns a Completion, or a reason to ask again.

    ``rest`` returns how many seconds to wait after such a reason before the next request may go out.
    """

    attempt: Callable[[], Awaitable[Any]]
    limits: RunLimits
    hedger: Hedger
    rest: Callable[[Any], float] = lambda _: 0.0
    hedges: int = 0
    """How many further requests were sent."""
    missed: list[Any] = field(default_factory=list)
    """The outcomes of attempts without an answer, except the outcome that ``run`` returns."""
    _slot: asyncio.Future[None] | None = None
    """The slot that the race has queued for, or holds and has not used yet."""

    async def run(self, kind: str) -> Any:
        """Return the first answer; without one, the outcome of the first attempt.

        Another request goes out once the newest one takes longer than calls of its kind usually do, or
        once it failed while an older one has not answered yet. It needs room in the hedge budget and a
        free slot. Cancelling this cancels all attempts.
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
        """Return the first answer, or None when every attempt ended without one."""
        clock = asyncio.get_running_loop().time
        started_at = sent_at = clock()
        rested_until = 0.0
        while running:
            now = clock()
            seconds_to_next = self._next_send_at(kind, sent_at, rested_until) - now
            if seconds_to_next <= 0 and self._has_slot(len(running)):
                newest, sent_at = self._send(running), now
                continue
            look = max(LOOK_AGAIN_SECONDS, (now - started_at) * LOOK_AGAIN_SHARE)
            timeout = seconds_to_next if 0 < seconds_to_next < float("inf") else look
            queued = self._slot is not None and not self._slot.done()
            waited = {*running, self._slot} if self._slot is not None and queued else running
            ended, _ = await asyncio.wait(waited, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            for future in ended & running:
                running.discard(future)
                outcome = None if future.exception() else future.result()
                if isinstance(outcome, Completion):
                    return outcome
                if (
                    running and future is newest
                ):  # older attempts are late already: wait no longer than ``rest``
                    sent_at, rested_until = float("-inf"), clock() + self.rest(outcome)
                    self._drop_slot()
                if running:
                    self.missed.append(outcome)
        return None

    def _next_send_at(self, kind: str, sent_at: float, rested_until: float) -> float:
        """Return when another request may go out; infinity while nothing is known about such calls.

        The race then looks again after every quarter of the elapsed time: often similar calls were sent
        at the same moment."""
        wait = self.hedger.wait_seconds(kind)
        return float("inf") if wait is None else max(sent_at + wait, rested_until)

    def _has_slot(self, running: int) -> bool:
        """Return whether another request has a slot; queue for one where the hedge budget allows it."""
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
    """Cancel the futures that still run, and retrieve every exception."""
    for future in futures:
        if not future.done():
            future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)


MIN_SAMPLES = 8
KEPT_SAMPLES = 256
SLOW_QUANTILE = 0.9
BEYOND_QUANTILE = 1.25
BEYOND_MEDIAN = 1.4
MIN_WAIT_SECONDS = 0.05
"""With a shorter wait a second request would only race the network's noise."""


@dataclass(slots=True)
class Hedger:
    """Decides when calls are hedged; the clients of a run share one. Latencies are compared within a *kind*
    of call."""

    budget: float
    calls: int = 0
    hedges: int = 0
    _latencies: dict[str, deque[float]] = field(default_factory=dict)
    _waits: dict[str, tuple[int, float]] = field(default_factory=dict)

    def observe(self, kind: str, seconds: float) -> None:
        """Record how many seconds a call of this kind took."""
        self.calls += 1
        self._latencies.setdefault(kind, deque(maxlen=KEPT_SAMPLES)).append(seconds)

    def wait_seconds(self, kind: str) -> float | None:
        """Return how many seconds a call may take before it is hedged; None with fewer than 8 samples.

        This is the larger of 1.4 times the median and 1.25 times the 90 % quantile of the last 256 calls.
        """
        latencies = self._latencies.get(kind)
        if self.budget <= 0 or latencies is None or len(latencies) < MIN_SAMPLES:
            return None
        measured_at, wait = self._waits.get(kind, (-MIN_SAMPLES, 0.0))
        if self.calls - measured_at >= MIN_SAMPLES:
            ordered = sorted(latencies)
            median = ordered[len(ordered) // 2]
            slow = ordered[min(len(ordered) - 1, int(SLOW_QUANTILE * len(ordered)))]
            wait = max(MIN_WAIT_SECONDS, BEYOND_MEDIAN * median, BEYOND_QUANTILE * slow)
            self._waits[kind] = (self.calls, wait)
        return wait

    @property
    def may_hedge(self) -> bool:
        """Whether the budget has room for one more hedge."""
        return self.budget > 0 and self.hedges < max(1.0, self.budget * self.calls)

    def hedged(self) -> None:
        """Count one hedge that was sent."""
        self.hedges += 1
