"""How busy a server is while calls are made: its own metrics, by vLLM's names, looked at now and then.

A look follows an answer, so a step that asks nothing looks at nothing. It never fails a call: a server that
has no such page is not asked again, and one that is slow to give it is asked later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from combee.clients.model.failures import NoAnswerError, StatusError
from combee.clients.samples import samples

EVERY_SECONDS = 5.0
WITHIN_SECONDS = 2.0
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USE = "vllm:kv_cache_usage_perc"
PROMPT_TOKENS = "vllm:prefix_cache_queries_total"
CACHED_TOKENS = "vllm:prefix_cache_hits_total"
MOST = 1e15
"""More than any of these metrics can be."""
_NAMES = (RUNNING, WAITING, KV_USE, PROMPT_TOKENS, CACHED_TOKENS)


@dataclass(frozen=True, slots=True)
class Look:
    """All servers of an endpoint at one moment, with the tokens since the look before."""

    waiting: int
    """requests in their queues."""
    kv_use: float | None
    """the share of the KV cache in use on the fullest of them; None where none says."""
    prompt_tokens: int
    """prompt tokens that were looked for in their prefix caches, whoever sent them."""
    cached_tokens: int
    """those that were found there."""
    running: int | None = None
    """requests that they work on; None where one does not say."""

    @property
    def recorded(self) -> tuple[int, float | None, int, int]:
        """Return what a call graph keeps of it."""
        return self.waiting, self.kv_use, self.prompt_tokens, self.cached_tokens


Numbers = dict[str, list[float]]


def read(page: bytes) -> Numbers:
    """Return the values of the metrics above on a page in Prometheus' text format, by name.

    A server has one of each for every engine core. Raises ValueError for what is no such page.
    """
    numbers: Numbers = {name: [] for name in _NAMES}
    for sample in samples(page, _NAMES):
        if sample.name not in numbers:
            continue
        if not 0 <= sample.value <= MOST:
            raise ValueError(f"{sample.name} is {sample.value}")
        numbers[sample.name].append(sample.value)
    return numbers


class Looks:
    """Looks at the servers of one endpoint, at most every ``EVERY_SECONDS``. ``pages`` returns the metrics
    page of each of them."""

    def __init__(
        self,
        pages: Callable[[], Awaitable[Sequence[bytes]]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pages = pages
        self._clock = clock
        self._next = float("-inf")
        self._tokens: tuple[float, float] | None = None

    async def look(self) -> Look | None:
        """Return what there is to see now; None where it is not time yet or there is nothing to see."""
        if self._clock() < self._next:
            return None
        self._next = self._clock() + EVERY_SECONDS
        try:
            async with asyncio.timeout(WITHIN_SECONDS):
                servers = [read(page) for page in await self._pages()]
        except (NoAnswerError, TimeoutError):
            return None
        except (StatusError, ValueError):
            self._next = float("inf")
            return None
        if any(server[WAITING] for server in servers):
            return self._seen(servers)
        if servers:
            self._next = float("inf")
        return None

    def _seen(self, servers: Sequence[Numbers]) -> Look:
        used = [min(1.0, share) for server in servers for share in server[KV_USE]]
        prompt, cached = (
            sum(sum(server[name]) for server in servers) for name in (PROMPT_TOKENS, CACHED_TOKENS)
        )
        before, self._tokens = self._tokens or (prompt, cached), (prompt, cached)
        # A server that began anew counts from 0 again: what it did until now is not known.
        known = prompt >= before[0] and cached >= before[1]
        return Look(
            waiting=int(sum(sum(server[WAITING]) for server in servers)),
            kv_use=max(used, default=None),
            prompt_tokens=int(prompt - before[0]) if known else 0,
            cached_tokens=int(cached - before[1]) if known else 0,
            running=int(sum(sum(server[RUNNING]) for server in servers))
            if all(server[RUNNING] for server in servers)
            else None,
        )
