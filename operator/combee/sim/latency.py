"""How long a call takes: the latency law of one engine, its prefix cache, and a clock that follows it.

seconds = out * (16.3 ms + .094 ms * concurrent) + 31 us * (uncached prompt tokens in flight), fitted to vLLM
on one H200 (8B, bf16). Prefill is shared and comes first: no call decodes while prompts are being read.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
from collections import OrderedDict, deque

DECODE_SECONDS = 0.0163
DECODE_SECONDS_PER_CONCURRENT = 0.000094
PREFILL_SECONDS_PER_TOKEN = 31e-6
BLOCK_TOKENS = 16
_CHUNK_BLOCKS = 4
_MIN_SLEEP = 0.001


def seconds(out_tokens: float, concurrent: int, uncached_in_flight: float) -> float:
    """Return the seconds of one call among ``concurrent`` equal ones.

    >>> round(seconds(256, 64, 64 * 1024), 2)
    7.74
    """
    return out_tokens * step(concurrent) + PREFILL_SECONDS_PER_TOKEN * uncached_in_flight


def step(concurrent: int) -> float:
    """Return the seconds in which each running call decodes one token."""
    return DECODE_SECONDS + DECODE_SECONDS_PER_CONCURRENT * concurrent


class PrefixCache:
    """An LRU cache of prefixes, in chunks of 64 tokens (four of vLLM's blocks)."""

    def __init__(self, capacity_tokens: int) -> None:
        self._chunks: OrderedDict[bytes, None] = OrderedDict()
        self._bytes = BLOCK_TOKENS * _CHUNK_BLOCKS * 4
        self._limit = max(0, capacity_tokens // (BLOCK_TOKENS * _CHUNK_BLOCKS))

    def cached(self, text: str, prompt_tokens: int) -> int:
        """Return how many tokens of the prompt the cache holds, and add the prompt to it."""
        data, size = text.encode("utf-8", "surrogatepass"), self._bytes
        chain = hashlib.blake2b(digest_size=12)
        hits, missing = 0, False
        for start in range(0, len(data) - size + 1, size):
            chain.update(data[start : start + size])
            key = chain.copy().digest()
            if key in self._chunks:
                self._chunks.move_to_end(key)
                hits += not missing
            else:
                missing = True
                self._chunks[key] = None
        while len(self._chunks) > self._limit:
            self._chunks.popitem(last=False)
        return min(hits * size // 4, max(0, prompt_tokens - 1))


class Engine:
    """Calls in flight share one decoder: a clock of decoded tokens that slows down as they become more.

    ``scale`` is real seconds per modelled second; 0 never waits. Metrics record modelled time.
    """

    def __init__(self, scale: float, max_running: int) -> None:
        self._scale, self._max = scale, max_running
        self.running = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._token_clock = 0.0
        self._prefill = 0.0
        self._last = 0.0
        self._waits: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a place."""
        return sum(not place.done() for place in self._queue)

    async def admit(self, uncached_tokens: int) -> float:
        """Take a place, waiting for one if need be, and return the token clock at the start."""
        if self.running >= self._max:
            place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            try:
                await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self.leave()
                raise
            self._advance()
        else:
            self._advance()
            self.running += 1
        self._prefill += PREFILL_SECONDS_PER_TOKEN * uncached_tokens
        return self._token_clock

    def leave(self) -> None:
        """Give the place to the first call in the queue, or free it."""
        self._advance()
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                self._arm()
                return
        self.running -= 1
        self._arm()

    async def decoded(self, start: float, count: float) -> None:
        """Return once ``count`` tokens have been decoded since ``start``."""
        if self._scale <= 0:
            return
        self._advance()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._waits, (start + count, self._count, done))
        self._arm()
        await done

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        modelled_seconds = (now - self._last) / self._scale if self._scale > 0 else 0.0
        self._last = now
        if self.running and modelled_seconds > 0:
            prefill = min(modelled_seconds, self._prefill)
            self._prefill -= prefill
            self._token_clock += (modelled_seconds - prefill) / step(self.running)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waits and (self._waits[0][2].done() or self._waits[0][0] <= self._token_clock + 1e-9):
            done = heapq.heappop(self._waits)[2]
            if not done.done():
                done.set_result(None)
        if self._waits:
            ahead = self._prefill + (self._waits[0][0] - self._token_clock) * step(max(1, self.running))
            self._timer = asyncio.get_running_loop().call_later(
                max(_MIN_SLEEP, ahead * self._scale), self._wake
            )

    def _wake(self) -> None:
        self._timer = None
        self._advance()
        self._arm()
