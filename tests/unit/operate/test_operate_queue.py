"""The queue of keys that are due: nothing that was woken is lost, and a stop is a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from combee.operator.queue import DueQueue

PATIENCE_SECONDS = 120.0
NEVER = -1.0


def until(
    done: Callable[[list[str]], bool],
    play: Callable[[DueQueue[str], str], Awaitable[float]],
    resync_seconds: float = 60.0,
) -> list[str]:
    """Return the keys in the order of their ticks, until they are ``done``; ``play`` is what a tick does."""
    ticked: list[str] = []
    ended = asyncio.Event()

    async def go() -> None:
        async def tick(key: str) -> float:
            ticked.append(key)
            if done(ticked):
                ended.set()
            return await play(queue, key)

        queue = DueQueue(tick, resync_seconds=resync_seconds)
        queue.wake("a")
        work = asyncio.create_task(queue.run())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ended.wait()
        finally:
            work.cancel()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(work, return_exceptions=True)

    asyncio.run(go())
    return ticked


@pytest.mark.parametrize("after_seconds", [0.0, 0.01])
def test_a_key_that_is_woken_while_it_is_at_work_comes_again(after_seconds: float) -> None:
    """Whoever is at work may have looked before what it is woken for."""
    times = 0

    async def play(queue: DueQueue[str], key: str) -> float:
        nonlocal times
        times += 1
        if times == 1:
            queue.wake(key, after_seconds)
            await asyncio.sleep(0)
        return NEVER

    assert until(lambda ticked: len(ticked) == 2, play) == ["a", "a"]


def test_the_sooner_of_two_wakes_counts() -> None:
    woken = False

    async def play(queue: DueQueue[str], key: str) -> float:
        nonlocal woken
        if not woken:
            woken = True
            queue.wake(key, 3600.0)
            queue.wake(key, 0.01)
        return 3600.0

    assert until(lambda ticked: len(ticked) == 2, play) == ["a", "a"]


def test_one_that_fails_comes_again_and_is_counted_anew_once_it_succeeds() -> None:
    async def play(queue: DueQueue[str], key: str) -> float:
        if key == "a" and not queue._failures:
            raise RuntimeError("not yet")
        return NEVER

    assert until(lambda ticked: len(ticked) == 2, play) == ["a", "a"]


def test_what_is_forgotten_does_not_come_again() -> None:
    async def play(queue: DueQueue[str], key: str) -> float:
        if key == "a":
            queue.wake("gone", 0.02)
            queue.forget("gone")
            queue.wake("b", 0.05)
        return NEVER

    assert until(lambda ticked: "b" in ticked, play) == ["a", "b"]


def test_nothing_waits_longer_than_the_resync() -> None:
    """A deadline may be hours away, and an event may be missed before it."""

    async def play(queue: DueQueue[str], key: str) -> float:
        return 3600.0

    assert until(lambda ticked: len(ticked) == 3, play, resync_seconds=0.02)[:3] == ["a", "a", "a"]


def test_one_that_is_at_work_counts_as_waiting() -> None:
    """Else an operator whose only tick hangs would pass for one that has nothing to do."""
    counts = list[int]()

    async def play(queue: DueQueue[str], key: str) -> float:
        counts.append(len(queue))
        return NEVER

    until(lambda ticked: True, play)
    assert counts == [1]
