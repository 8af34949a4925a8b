"""The way to one server, on the client that uses it."""

from __future__ import annotations

import asyncio
import math

from adapters_bench import Bench, ask
from hypothesis import given
from hypothesis import strategies as st

from combee.clients.model.adaptive import AdaptiveLimit
from combee.clients.model.batcher import Batcher
from combee.clients.model.looks import Look


async def begun(batcher: Batcher, *prompts: int) -> tuple[list[asyncio.Task[None]], list[int], asyncio.Event]:
    """Calls of these lengths, the lengths of those that went, and what ends these."""
    went, end = list[int](), asyncio.Event()

    async def call(prompt_tokens: int) -> None:
        async with batcher.place("kind", prompt_tokens):
            went.append(prompt_tokens)
            await end.wait()

    tasks = [asyncio.create_task(call(tokens)) for tokens in prompts]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks, went, end


async def test_calls_go_in_order_and_each_is_told_how_many_are_in_flight() -> None:
    batcher = Batcher(AdaptiveLimit(2))
    tasks, went, end = await begun(batcher, 10, 500, 90)
    assert went == [10, 500] and batcher.in_flight == 2
    async with asyncio.timeout(10):
        end.set()
        await asyncio.gather(*tasks)
    assert went == [10, 500, 90] and batcher.in_flight == 0
    async with batcher.place("kind", 1) as in_flight:
        assert in_flight == 1


async def test_a_cancelled_call_leaves_its_place_to_others_wherever_it_was() -> None:
    batcher = Batcher(AdaptiveLimit(1))
    first = batcher.place("kind", 10)
    await first.__aenter__()
    tasks, went, end = await begun(batcher, 500, 90, 7)
    tasks[0].cancel()  # it waits
    await asyncio.sleep(0)
    await first.__aexit__(None, None, None)
    tasks[1].cancel()  # it may go, and does not know yet
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert went == [7] and batcher.in_flight == 0


def look(running: int, waiting: int, kv_use: float | None) -> Look:
    return Look(waiting, kv_use, 0, 0, running)


async def test_a_full_kv_cache_bounds_the_tokens_in_flight() -> None:
    batcher = Batcher(AdaptiveLimit(100))
    tasks, went, end = await begun(batcher, 100, 100, 100, 100)
    batcher.looked(look(4, 0, 1.0))
    more, later, _ = await begun(batcher, 100, 100, 1)
    assert later == [100], "1.25 times what fills it: five calls, and no shorter one overtakes the next"
    batcher.looked(look(5, 0, None))
    assert batcher.most_tokens == 500, "the bound stays where the metrics tell of none"
    batcher.looked(look(5, 0, 0.2))
    await asyncio.sleep(0)
    assert later == [100, 100, 1], "and is too low where calls wait beside a cache that is far from full"
    for task in [*tasks, *more]:
        task.cancel()
    await asyncio.gather(*tasks, *more, return_exceptions=True)
    assert batcher.in_flight == 0 and went and not end.is_set()


async def test_the_last_calls_of_a_stage_leave_the_bound_as_it_is() -> None:
    batcher = Batcher(AdaptiveLimit(100))
    tasks, _, end = await begun(batcher, 100, 100, 100, 100)
    batcher.looked(look(8, 0, 0.8))
    assert batcher.most_tokens == 625
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks[1:], return_exceptions=True)
    batcher.looked(look(8, 0, 0.8))
    assert batcher.most_tokens == 625, "others fill the cache"
    end.set()
    await tasks[0]
    batcher.looked(look(8, 0, 0.8))
    assert batcher.most_tokens == 625, "none of ours is in flight"


async def test_calls_are_expected_to_be_answered_like_those_of_their_kind() -> None:
    batcher = Batcher(AdaptiveLimit(100))
    batcher.answered("kind", 400)
    tasks, *_ = await begun(batcher, 100)
    batcher.looked(look(1, 0, 0.5))
    assert batcher.most_tokens == 1250
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    batcher.looked(look(0, 0, 0.0))
    assert batcher.most_tokens == 1250, "what comes next is bounded before the server is full"


@given(
    st.lists(st.tuples(st.integers(1, 500), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 8),
    st.integers(1, 900) | st.just(math.inf),
)
def test_all_calls_go_within_the_bounds_or_alone(
    calls: list[tuple[int, bool]], most: int, most_tokens: float
) -> None:
    async def work() -> None:
        batcher, flying, went = Batcher(AdaptiveLimit(most), most_tokens), list[int](), list[int]()

        async def call(tokens: int) -> None:
            async with batcher.place("kind", tokens) as in_flight:
                flying.append(tokens)
                went.append(tokens)
                try:
                    assert in_flight <= most and batcher.in_flight <= most
                    assert len(flying) == 1 or sum(flying) <= most_tokens
                    await asyncio.sleep(0)
                finally:
                    flying.remove(tokens)

        tasks = [asyncio.create_task(call(tokens)) for tokens, _ in calls]
        await asyncio.sleep(0)
        for task, (_, cancelled) in zip(tasks, calls, strict=True):
            if cancelled:
                task.cancel()
        async with asyncio.timeout(60):
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [one for one in done if one is not None and not isinstance(one, asyncio.CancelledError)]
        assert len(went) >= sum(not cancelled for _, cancelled in calls)
        assert batcher.in_flight == 0 and batcher._tokens == 0

    asyncio.run(work())


async def test_an_answer_from_the_memo_takes_no_place(bench: Bench) -> None:
    client = bench.client(batcher=Batcher(AdaptiveLimit(2)))
    assert (await client.ask(ask("one"))).in_flight == 1
    again = await client.ask(ask("one"))
    assert again.hit and again.in_flight == 0


async def test_roles_that_ask_one_server_share_its_places(bench: Bench) -> None:
    batcher = Batcher(AdaptiveLimit(3))
    clients = [bench.client(role, batcher=batcher) for role in ("task", "proposer")]
    answered = await asyncio.gather(*(client.ask(ask(str(n))) for n in range(8) for client in clients))
    assert max(one.in_flight for one in answered) == 3
    assert batcher.in_flight == 0
