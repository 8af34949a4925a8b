"""A run's limits: exact, fair, and nothing lost when a waiter goes away."""

from __future__ import annotations

import asyncio
import random

import pytest
from adapters_bench import Bench, FakeTime, ask, refuse

from combee.clients.model.limits import RunLimits
from combee.errors import ManifestError


async def test_slots_go_in_order_of_arrival() -> None:
    limits, order = RunLimits(2), []

    async def work(i: int) -> None:
        async with limits:
            order.append(i)
            assert limits.in_flight <= 2
            await asyncio.sleep(0)

    await asyncio.gather(*(work(i) for i in range(50)))
    assert order == list(range(50)) and limits.in_flight == 0


async def test_cancelled_waiters_lose_no_slot() -> None:
    limits, drawn = RunLimits(3), random.Random(7)

    async def work() -> None:
        async with limits:
            assert limits.in_flight <= 3
            await asyncio.sleep(0)  # so that slots change hands while others are cancelled

    tasks = [asyncio.create_task(work()) for _ in range(300)]
    for _ in range(60):
        await asyncio.sleep(0)
        for task in drawn.sample(tasks, 3):
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert limits.in_flight == 0 and not limits._waiting


async def test_a_slot_handed_to_a_waiter_that_is_being_cancelled_goes_on() -> None:
    limits = RunLimits(1)
    await limits.__aenter__()
    first = asyncio.create_task(limits.__aenter__())
    second = asyncio.create_task(limits.__aenter__())
    await asyncio.sleep(0)
    await limits.__aexit__()  # the slot is now first's
    first.cancel()  # before it could run
    await second
    assert limits.in_flight == 1
    await limits.__aexit__()
    assert limits.in_flight == 0


def _most_in_a_minute(events: list[tuple[float, int]]) -> int:
    return max(sum(n for at, n in events if start <= at < start + 60) for start, _ in events)


async def test_requests_per_minute_hold_in_every_window() -> None:
    time, sent = FakeTime(), []
    limits = RunLimits(8, requests_per_minute=10, clock=time, sleep=time.sleep)
    for i in range(35):
        await limits.reserve(1)
        sent.append((time.now, 1))
        time.now += i % 4
    assert _most_in_a_minute(sent) == 10
    assert sent[9][0] < 1060, "a burst within the limit does not wait"


async def test_tokens_per_minute_hold_in_every_window() -> None:
    time, sent = FakeTime(), []
    limits = RunLimits(8, tokens_per_minute=1000, clock=time, sleep=time.sleep)
    for i in range(40):
        tokens = 50 + 90 * (i % 5)
        await limits.reserve(tokens)
        sent.append((time.now, tokens))
        time.now += 1
    assert _most_in_a_minute(sent) <= 1000


async def test_what_was_not_used_is_given_back() -> None:
    time = FakeTime()
    limits = RunLimits(8, tokens_per_minute=1000, clock=time, sleep=time.sleep)
    reservation = await limits.reserve(900)
    assert reservation is not None
    reservation.settle(100)
    await limits.reserve(900)
    assert time.waits == []
    time.now += 61
    await limits.reserve(1)
    reservation.settle(5000)  # long out of the window: changes nothing
    await limits.reserve(999)
    assert time.waits == []


async def test_a_request_above_the_limit_goes_alone() -> None:
    time = FakeTime()
    limits = RunLimits(8, tokens_per_minute=1000, clock=time, sleep=time.sleep)
    await limits.reserve(1)
    await limits.reserve(5000)
    assert time.now == 1060.0
    await limits.reserve(1)
    assert time.now == 1120.0


async def test_a_cancelled_wait_for_a_rate_reserves_nothing() -> None:
    time = FakeTime()
    limits = RunLimits(8, requests_per_minute=1, clock=time, sleep=asyncio.sleep)
    await limits.reserve(1)
    waiting = [asyncio.create_task(limits.reserve(1)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    time.now += 60
    await asyncio.wait_for(limits.reserve(1), 60)


async def test_every_attempt_counts_as_a_request(bench: Bench) -> None:
    time = bench.time
    limits = RunLimits(4, requests_per_minute=2, clock=time, sleep=time.sleep)
    bench.server.script = [refuse(500)]
    client = bench.client(limits=limits, clock=time)
    await client.ask(ask("a"))
    await client.ask(ask("b"))
    assert time.now >= 1060
    assert bench.calls[1].queued_seconds > 50 and bench.calls[1].attempts == 1


@pytest.mark.parametrize("bad", [(0, None, None), (1, 0, None), (1, None, -1)])
def test_limits_below_one_are_refused(bad: tuple[int, int | None, int | None]) -> None:
    with pytest.raises(ManifestError):
        RunLimits(*bad)
