"""Modelled time as a clock: an event loop that never waits, and calls that take what a server needs.

The loop's time jumps to the next timer whenever nothing is ready, and work for threads is done on the spot.
So the product runs as it does beside a server at time scale 1, in whatever real time its own work takes, and
no call time depends on the machine that runs it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar

from bench.inprocess import Direct
from combee.clients.model.looks import Looks
from combee.clients.model.wire import ChatRequest, Completion, Endpoint
from combee.sim.latency import Engine, PrefixCache
from combee.sim.model import Model
from combee.sim.params import SimConfig

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """A selector that skips the time it is asked to wait."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.seconds += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is modelled."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.seconds

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, run on modelled time from 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class Wire:
    """Stands where a connection stands, for clients whose calls ``post`` answers."""

    looks: Looks | None = None

    def to(self, endpoint: Endpoint) -> Self:
        """The same connection for every endpoint."""
        return self

    @cached_property
    def quirks(self) -> set[str]:
        """What calls met of the server's ways."""
        return set()

    def context_tokens(self, model: str) -> None:
        """A server that does not say."""

    def weigh_schema(self, followed: bool | None) -> None:
        """Nothing follows from it."""


class Server:
    """A server that decodes by ``combee.sim``'s latency law, with its prefix cache, for all roles alike."""

    def __init__(self) -> None:
        self.engine = Engine(1.0, SimConfig().max_num_seqs)
        self.prefixes = PrefixCache(SimConfig().prefix_cache_tokens)

    async def serve(self, prompt: str, prompt_tokens: int, completion_tokens: int) -> int:
        """Take the time of one call; the number of its prompt tokens that were cached."""
        cached = self.prefixes.cached(prompt, prompt_tokens)
        start = await self.engine.admit(prompt_tokens - cached)
        try:
            await self.engine.decoded(start, completion_tokens)
        finally:
            self.engine.leave()
        return cached


class Client:
    """Stands for a server that answers at once: what is left is the client, one message at a time."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds, self.busy = seconds, asyncio.Lock()

    async def serve(self, prompt: str, prompt_tokens: int, completion_tokens: int) -> int:
        """Wait for the client's turn, and take it."""
        async with self.busy:
            await asyncio.sleep(self.seconds())
        return 0


@dataclass(kw_only=True)
class Timed(Direct):
    """A ``Direct`` whose new answers take ``server``'s time, at most ``slots`` of them at once."""

    server: Server | Client
    slots: asyncio.Semaphore

    async def served(self, request: ChatRequest, made: Completion) -> Completion:
        """The answer with the seconds that it took from when a slot was free."""
        prompt = "".join(message.content for message in request.prompt.messages)
        async with self.slots:
            loop = asyncio.get_running_loop()
            began = loop.time()
            cached = await self.server.serve(prompt, made.prompt_tokens, made.completion_tokens)
            return replace(made, cached_tokens=cached, latency_seconds=loop.time() - began)


def clients(model: Model, slots: int, server: Server | Client) -> dict[str, Timed]:
    """Both roles' way to one model behind one server."""
    known: dict[bytes, Completion] = {}
    free = asyncio.Semaphore(slots)
    return {
        role: Timed(model=model, role=role, known=known, server=server, slots=free)
        for role in ("task", "proposer")
    }
