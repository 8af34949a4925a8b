"""The latency law against vLLM on one H200 (measured), and an engine clock that obeys the law."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from combee.sim import latency

CONCURRENT = (1, 4, 16, 32, 64, 128, 256, 512)
PLAYBOOK_FIRST = (4.47, 4.38, 5.21, 5.71, 7.76, 10.1, 18.8, 36.6)
PLAYBOOK_LAST = (4.58, 4.60, 6.55, 8.94, 13.8, 24.8, 50.5, 101.3)
PLAYBOOK_TOKENS, TASK_TOKENS, OUT_TOKENS = 4096, 1024, 256


@pytest.mark.parametrize(("n", "measured"), [*zip(CONCURRENT, PLAYBOOK_FIRST, strict=True)])
def test_playbook_first_is_within_15_percent_of_the_measured_rows(n: int, measured: float) -> None:
    assert latency.seconds(OUT_TOKENS, n, n * TASK_TOKENS) / measured == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("n", "measured"), [*zip(CONCURRENT, PLAYBOOK_LAST, strict=True)])
def test_playbook_last_is_within_15_percent_of_the_measured_rows(n: int, measured: float) -> None:
    """A prompt's first block (the chat template's head) is shared even then."""
    uncached = PLAYBOOK_TOKENS + TASK_TOKENS - latency.BLOCK_TOKENS
    assert latency.seconds(OUT_TOKENS, n, n * uncached) / measured == pytest.approx(1, abs=0.15)


T = TypeVar("T")


class Leaping(asyncio.SelectorEventLoop):
    """A loop whose time passes only in leaps to what is due next: no machine is slow by it."""

    def __init__(self) -> None:
        super().__init__()
        self._now, look = 0.0, self._selector.select

        def leap(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return look(0)

        self._selector.select = leap

    def time(self) -> float:
        return self._now


def leaping(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives, on such a loop."""
    with asyncio.Runner(loop_factory=Leaping) as runner:
        return runner.run(work)


def run_together(count: int, out: int, uncached: int, *, scale: float, running: int = 1024) -> list[float]:
    """Modelled seconds of calls that start together on one engine."""

    async def one(engine: latency.Engine) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        start = await engine.admit(uncached)
        try:
            await engine.decoded(start, out)
        finally:
            engine.leave()
        return (loop.time() - began) / scale

    async def together() -> list[float]:
        engine = latency.Engine(scale, running)
        took = await asyncio.gather(*(one(engine) for _ in range(count)))
        assert (engine.running, engine.waiting) == (0, 0)
        return list(took)

    return leaping(together())


@pytest.mark.parametrize("count", [1, 16, 64])
def test_the_clock_obeys_the_law_for_calls_that_start_together(count: int) -> None:
    took = run_together(count, 256, 1024, scale=0.05)
    wanted = latency.seconds(256, count, count * 1024)
    assert min(took) >= 0.99 * wanted
    assert sorted(took)[len(took) // 2] <= 1.35 * wanted


def test_calls_beyond_the_limit_wait_for_a_place() -> None:
    took = sorted(run_together(4, 100, 0, scale=0.05, running=2))
    assert took[3] >= 1.9 * took[0]


def test_scale_zero_never_waits() -> None:
    async def go() -> None:
        engine = latency.Engine(0.0, 8)
        start = await engine.admit(10**9)
        await engine.decoded(start, 10**9)
        engine.leave()

    asyncio.run(asyncio.wait_for(go(), 60))


def test_a_waiting_call_that_is_cancelled_leaves_no_trace() -> None:
    async def go() -> None:
        engine = latency.Engine(1.0, 1)
        await engine.admit(0)
        waiting = asyncio.ensure_future(engine.admit(0))
        await asyncio.sleep(0)
        assert engine.waiting == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        engine.leave()
        assert (engine.running, engine.waiting) == (0, 0)
        await asyncio.wait_for(engine.admit(0), 60)

    asyncio.run(go())


def test_the_prefix_cache_serves_shared_beginnings_only_and_forgets_the_oldest() -> None:
    cache = latency.PrefixCache(4_096)
    shared = "playbook " * 500
    size = len(shared) // 4
    assert cache.cached(shared + "first question " * 30, 2_000) == 0
    again = cache.cached(shared + "other question " * 30, 2_000)
    assert size - 64 <= again <= size
    assert cache.cached("question first " * 30 + shared, 2_000) == 0
    for i in range(10):
        cache.cached(f"{i} " * 4_000, 4_000)
    assert cache.cached(shared, 2_000) == 0
    assert latency.PrefixCache(0).cached(shared * 2, 10) == 0
