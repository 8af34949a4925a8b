"""A server that batches as vLLM does, on modelled time, in the place of a connection.

Each of its running calls gets a token every ``a + b n`` seconds (the latency law of one H200). A call is
taken up, in order of arrival, when the KV cache has room for its prompt; when the cache is full the newest
call is put back to the head of the queue, and is read anew with all that it had written.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx2

from bench.virtual import Wire
from combee.algo.tokens import estimate_tokens
from combee.clients.model.looks import CACHED_TOKENS, KV_USE, PROMPT_TOKENS, RUNNING, WAITING, Looks
from combee.sim.latency import PREFILL_SECONDS_PER_TOKEN, step

MAX_RUNNING = 256
WATERMARK = 0.99


@dataclass(eq=False)
class _Request:
    prompt_tokens: int
    left: float
    held: float = 0.0
    """tokens in the cache: those read and those written."""
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass
class Server(Wire):
    """``slow``: how many times as long everything takes."""

    cache_tokens: int
    shows_metrics: bool
    slow: float = 1.0
    answer_tokens: dict[str, int] = field(default_factory=dict)
    preemptions: int = 0
    _running: list[_Request] = field(default_factory=list)
    _queue: deque[_Request] = field(default_factory=deque)
    _reading: float = 0.0
    _last: float = 0.0
    _timer: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        if self.shows_metrics:
            self.looks = Looks(self._pages, clock=lambda: asyncio.get_running_loop().time())

    async def post(self, path: str, body: bytes) -> httpx2.Response:
        text = json.loads(body)["messages"][0]["content"]
        request = _Request(estimate_tokens(text), self.answer_tokens[text.partition(" ")[0]])
        answer_tokens = int(request.left)
        self._advance()
        self._queue.append(request)
        self._go_on()
        try:
            await request.done
        except asyncio.CancelledError:  # the client hung up, as at its deadline
            self._advance()
            if request in self._running:
                self._running.remove(request)
            elif request in self._queue:
                self._queue.remove(request)
            self._go_on()
            raise
        usage = {"prompt_tokens": request.prompt_tokens, "completion_tokens": answer_tokens}
        choice = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
        return httpx2.Response(200, json={"choices": [choice], "usage": usage})

    async def _pages(self) -> Sequence[bytes]:
        numbers = {
            RUNNING: len(self._running),
            WAITING: len(self._queue),
            KV_USE: self._held / self.cache_tokens,
            PROMPT_TOKENS: 0,
            CACHED_TOKENS: 0,
        }
        return ["".join(f"{name} {number}\n" for name, number in numbers.items()).encode()]

    @property
    def _held(self) -> float:
        return sum(one.held for one in self._running)

    @property
    def _token_seconds(self) -> float:
        return self.slow * step(len(self._running))

    def _advance(self) -> None:
        """Read and decode until now."""
        now = asyncio.get_running_loop().time()
        seconds, self._last = now - self._last, now
        read = min(seconds, self._reading)
        self._reading -= read
        if self._running:
            tokens = (seconds - read) / self._token_seconds
            for one in self._running:
                one.left -= tokens
                one.held += tokens

    def _go_on(self) -> None:
        """End what is done, put back what has no room, take up what has, and set the clock to the next."""
        for one in [one for one in self._running if one.left <= 1e-6]:
            self._running.remove(one)
            if not one.done.done():  # else its caller has just hung up
                one.done.set_result(None)
        put_back = False
        while len(self._running) > 1 and self._held >= self.cache_tokens - 1e-6:
            newest = self._running.pop()
            self._queue.appendleft(newest)
            self.preemptions += 1
            put_back = True
        while self._queue and len(self._running) < MAX_RUNNING and not put_back:
            head = self._queue[0]
            needs = max(head.held, head.prompt_tokens)
            if self._running and self._held + needs > WATERMARK * self.cache_tokens:
                break
            self._running.append(self._queue.popleft())
            head.held = needs
            self._reading += self.slow * PREFILL_SECONDS_PER_TOKEN * needs
        if self._timer is not None:
            self._timer.cancel()
        if self._running:
            fits = (self.cache_tokens - self._held) / len(self._running)
            ahead = min(min(one.left for one in self._running), max(fits, 1.0))
            wait = self._reading + ahead * self._token_seconds
            self._timer = asyncio.get_running_loop().call_later(wait + 1e-9, self._wake)

    def _wake(self) -> None:
        self._advance()
        self._go_on()
