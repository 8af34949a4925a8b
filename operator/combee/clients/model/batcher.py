"""The way to one server: how many calls, and how many tokens, a process has in flight there.

A server that batches continuously takes up what has room at each token, so the calls in flight are the batch
that it decodes. What is chosen here is how large that is. Calls go in order of arrival, and neither what one
asks nor what is made of its answer depends on it.

The roles that ask one server share one batcher, since they share what it can carry. Tokens in flight are
bounded by what filled the server's KV cache when its metrics last showed that half full or more: what calls
hold beyond it is computed twice, and what waits for it counts against their deadlines. So a stage of longer
calls begins with fewer of them. The bound doubles at each look at which calls wait for it beside a cache that
is less than half full. A call above the whole bound goes alone, and none overtakes one that waits for tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from combee.clients.model.adaptive import AdaptiveLimit, LimitChange
from combee.clients.model.looks import Look

KV_FULL = 1.25
"""Tokens in flight for each that the KV cache holds: calls that wait at the server hold none yet."""
KV_FROM = 0.5
"""Below this use of the KV cache nothing is known of how many tokens would fill it: what calls share weighs
most there."""


@dataclass(slots=True)
class Batcher:
    """The calls of one server, in flight and waiting for that."""

    limit: AdaptiveLimit
    most_tokens: float = math.inf
    in_flight: int = 0
    _tokens: int = 0
    """of the calls in flight, as expected."""
    _peak_tokens: int = 0
    """the most that were in flight so far."""
    _waiting: deque[tuple[int, asyncio.Future[int]]] = field(default_factory=deque)
    """(tokens, ticket)."""
    _changes: list[LimitChange] = field(default_factory=list)
    _answers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """by kind, (answers, their tokens)."""

    @asynccontextmanager
    async def place(self, kind: str, prompt_tokens: int) -> AsyncIterator[int]:
        """Wait for a place and hold it. Yields the calls in flight then, this one included. ``kind``: calls
        whose answers are of about one length."""
        answers, answer_tokens = self._answers.get(kind, (0, 0))
        tokens = max(1, prompt_tokens + (answer_tokens // answers if answers else 0))
        ticket: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, ticket))
        self._let_go()
        try:
            in_flight = await ticket
        except asyncio.CancelledError:
            if not ticket.cancelled():  # the place was already ours
                self._end(tokens)
            raise
        try:
            yield in_flight
        finally:
            self._end(tokens)

    def answered(self, kind: str, answer_tokens: int) -> None:
        """Take note of an answer, and of its length."""
        answers, tokens = self._answers.get(kind, (0, 0))
        self._answers[kind] = answers + 1, tokens + answer_tokens
        self._follow(self.limit.answered(in_flight=self.in_flight))

    def refused(self, reason: str) -> None:
        """Take note of an attempt that a server refused; ``reason`` is empty where that tells of no load."""
        self._follow(self.limit.answered(in_flight=self.in_flight, refusal=reason))

    def looked(self, look: Look | None) -> None:
        """Take note of the server's metrics, if it was looked at."""
        if look is None:
            return
        if look.running and look.kv_use is not None:
            held = self._tokens * look.running / (look.running + look.waiting)
            # The last calls of a stage say little of what others leave them: the bound stays as it is.
            tells = held > 0 and (bool(self._waiting) or 2 * self._tokens >= self._peak_tokens)
            if look.kv_use >= KV_FROM and tells:
                self.most_tokens = held * KV_FULL / look.kv_use
            elif look.kv_use < KV_FROM and self._waiting and self.in_flight < self.limit.allowed:
                self.most_tokens *= 2
        self._follow(self.limit.looked(look, self.in_flight))

    def take_changes(self) -> tuple[LimitChange, ...]:
        """Return the changes of the limit since the last time."""
        taken = tuple(self._changes)
        self._changes.clear()
        return taken

    def _follow(self, change: LimitChange | None) -> None:
        if change is not None:
            self._changes.append(change)
        self._let_go()

    def _let_go(self) -> None:
        while self._waiting:
            tokens, ticket = self._waiting[0]
            if not ticket.done():
                if self.in_flight >= self.limit.allowed:
                    return
                if self.in_flight and self._tokens + tokens > self.most_tokens:
                    return
                self.in_flight += 1
                self._tokens += tokens
                self._peak_tokens = max(self._peak_tokens, self._tokens)
                ticket.set_result(self.in_flight)
            self._waiting.popleft()

    def _end(self, tokens: int) -> None:
        self.in_flight -= 1
        self._tokens -= tokens
        self._let_go()
