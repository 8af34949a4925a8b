"""Stragglers are raced within a budget, and a role's limit follows the server without swinging."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest
from adapters_bench import LATE, Bench, ask, held, refuse, slow
from hypothesis import given
from hypothesis import strategies as st

from combee.clients.model.adaptive import AdaptiveLimit, LimitChange
from combee.clients.model.batcher import Batcher
from combee.clients.model.limits import RunLimits
from combee.clients.model.race import MIN_SAMPLES, Hedger
from combee.errors import TransientError
from waiting import until


def warm(budget: float = 0.5, seconds: float = 0.01, kind: str = "task ") -> Hedger:
    hedger = Hedger(budget)
    for _ in range(4 * MIN_SAMPLES):
        hedger.observe(kind, seconds)
    return hedger


def once_asked(bench: Bench) -> Hedger:
    """A hedger that sends one beside the first request once the server has that, and no further one."""

    class Once(Hedger):
        def wait_seconds(self, kind: str) -> float | None:
            if self.hedges:
                return LATE
            return 0.0 if bench.server.asked else None

    return Once(0.5, calls=4 * MIN_SAMPLES)


async def test_a_straggler_is_raced_and_the_first_answer_kept(bench: Bench) -> None:
    hedger = once_asked(bench)
    bench.server.script = [slow(LATE)]
    answered = await bench.client(hedger=hedger).ask(ask("late"))
    assert answered.completion.text == "late"
    assert answered.completion.hedged and answered.completion.latency_seconds < LATE
    assert (answered.completion.attempts, len(bench.server.asked), hedger.hedges) == (2, 2, 1)
    assert bench.calls[-1].hedged
    again = await bench.client().ask(ask("late"))
    assert again.hit and again.completion == answered.completion


async def test_what_is_slow_may_be_learned_from_those_sent_at_the_same_moment(bench: Bench) -> None:
    bench.server.script = [slow(LATE)]
    limits = RunLimits(4 * MIN_SAMPLES)
    client = bench.client(hedger=Hedger(0.5), limits=limits)
    answers = await asyncio.gather(*(client.ask(ask(str(number))) for number in range(2 * MIN_SAMPLES)))
    # More than the one where this machine makes others late, too.
    assert 1 <= [answered.completion.hedged for answered in answers].count(True) <= MIN_SAMPLES
    assert max(answered.completion.latency_seconds for answered in answers) < LATE


async def test_a_call_in_time_is_not_raced(bench: Bench) -> None:
    await bench.client(hedger=warm(seconds=60.0)).ask(ask())
    assert len(bench.server.asked) == 1


async def test_the_slow_first_still_wins_when_the_hedge_fails(bench: Bench) -> None:
    bench.server.script = [slow(0.4), refuse(500)]
    answered = await bench.client(hedger=warm(), max_attempts=1).ask(ask("late"))
    assert answered.completion.text == "late"


async def test_a_hedge_that_fails_is_sent_again_after_its_rest_and_the_straggler_left_behind(
    bench: Bench,
) -> None:
    bench.server.script = [slow(LATE), refuse(500)]
    hedger = once_asked(bench)
    answered = await bench.client(hedger=hedger).ask(ask("late"))
    assert answered.completion.text == "late" and answered.completion.hedged
    assert answered.completion.latency_seconds < LATE
    assert answered.completion.retried_for == ("500",)
    assert (len(bench.server.asked), hedger.hedges) == (3, 2)


async def test_a_straggling_hedge_is_left_behind_too(bench: Bench) -> None:
    limits = RunLimits(8)
    bench.server.script = [slow(LATE), slow(LATE)]
    answered = await bench.client(hedger=warm(), limits=limits).ask(ask("late"))
    assert answered.completion.latency_seconds < LATE
    assert len(bench.server.asked) == 3 and limits.in_flight == 0


async def test_a_hedge_goes_to_the_head_of_the_queue_and_never_beyond_the_slots(bench: Bench) -> None:
    limits, full, go = RunLimits(2), threading.Event(), threading.Event()

    class Waits(Hedger):
        """Sends nothing beside a request before both slots are taken."""

        def wait_seconds(self, kind: str) -> float | None:
            return 0.0 if full.is_set() else None

    bench.server.script = [slow(LATE)]
    bench.server.always = held(go)
    hedger = Waits(0.5)
    late = asyncio.create_task(bench.client(hedger=hedger, limits=limits).ask(ask("late")))
    await until(lambda: len(bench.server.asked) == 1)
    client = bench.client(limits=limits)  # the others are not hedged: no second one wants to be at the head
    queue = [asyncio.create_task(client.ask(ask(str(number)))) for number in range(8)]
    await until(lambda: len(bench.server.asked) == 2)
    full.set()
    # Seven calls wait for a slot, and the late one's hedge.
    await until(lambda: len(limits._waiting) >= 8)
    go.set()
    assert (await late).completion.hedged
    await asyncio.gather(*queue)
    third = bench.server.asked[2]["messages"][-1]["content"]
    assert third == "late", "the hedge did not wait for the queue"
    assert hedger.hedges == 1
    assert bench.server.most_in_flight <= 3, "two slots, and what was left behind"
    assert limits.in_flight == 0


async def test_claims_take_turns_at_the_head_and_leave_nothing_behind() -> None:
    limits = RunLimits(1)
    assert limits.take_free()
    waiting = asyncio.create_task(limits.__aenter__())
    await asyncio.sleep(0)
    dropped, claim = limits.claim(), limits.claim()
    limits.drop(dropped)
    limits.give_back()
    await claim
    assert not waiting.done()
    limits.drop(claim)
    await waiting
    limits.give_back()
    assert limits.in_flight == 0


async def test_when_both_fail_the_call_is_asked_again(bench: Bench) -> None:
    async def late_failure(request, body):
        await asyncio.sleep(0.3)
        return await refuse(503)(request, body)

    bench.server.script = [late_failure, refuse(503)]
    hedger = warm()
    answered = await bench.client(hedger=hedger).ask(ask("third time"))
    assert answered.completion.text == "third time"
    sent = len(bench.server.asked)
    # Both failed, or the hedge was sent again after its rest; and a late third one may be hedged.
    assert sent >= 3 and sent - hedger.hedges <= 2, "two rounds of one request and its hedges"


@pytest.mark.parametrize(
    ("hedger", "limits"),
    [(warm(budget=0.0), RunLimits(8)), (Hedger(0.5), RunLimits(8)), (warm(), RunLimits(1))],
    ids=["no budget", "nothing to compare with", "no free slot"],
)
async def test_no_hedge(hedger: Hedger, limits: RunLimits, bench: Bench) -> None:
    bench.server.script = [slow(0.4)]
    answered = await bench.client(hedger=hedger, limits=limits).ask(ask())
    assert len(bench.server.asked) == 1 and not answered.completion.hedged


async def test_hedges_stay_within_the_budget_and_the_slots(bench: Bench) -> None:
    hedger = warm(budget=0.05)
    limits = RunLimits(8)
    bench.server.always = slow(0.3)
    client = bench.client(hedger=hedger, limits=limits)
    await asyncio.gather(*(client.ask(ask(str(number))) for number in range(24)))
    assert hedger.hedges < max(1, 0.05 * hedger.calls) + 1, "one is sent while they are fewer than allowed"
    assert bench.server.most_in_flight <= 8 + hedger.hedges, "the slots, and what was left behind"
    assert limits.in_flight == 0


async def test_cancelling_a_race_leaves_nothing_behind(bench: Bench) -> None:
    limits = RunLimits(4)
    bench.server.always = slow(LATE)
    task = asyncio.create_task(bench.client(hedger=warm(), limits=limits).ask(ask()))
    await until(lambda: len(bench.server.asked) >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert limits.in_flight == 0


@given(st.lists(st.floats(0.001, 100.0), min_size=MIN_SAMPLES, max_size=400))
def test_a_hedge_waits_for_what_is_slow_among_its_like(seconds: list[float]) -> None:
    hedger = Hedger(0.05)
    for value in seconds:
        hedger.observe("kind", value)
    wait = hedger.wait_seconds("kind")
    assert wait is not None
    assert wait >= 1.4 * sorted(seconds[-256:])[len(seconds[-256:]) // 2]
    assert hedger.wait_seconds("other") is None


def served(limit: AdaptiveLimit, capacity: int, rounds: int) -> list[int]:
    """A server that refuses what is above its capacity; the limit after each round of answers."""
    seen = []
    for _ in range(rounds):
        sent = limit.allowed
        for number in range(sent):
            limit.answered(in_flight=sent, refusal="429" if number >= capacity else "")
        seen.append(limit.allowed)
    return seen


@pytest.mark.parametrize("capacity", [1, 4, 10, 30, 60])
def test_the_limit_settles_at_what_the_server_takes(capacity: int) -> None:
    settled = served(AdaptiveLimit(64), capacity, 200)[50:]
    assert min(settled) >= max(1, int(0.7 * capacity))
    assert max(settled) <= capacity * 1.25 + 2
    assert sum(abs(a - b) for a, b in pairwise(settled)) / len(settled) <= max(1, 0.1 * capacity)


def test_it_grows_back_when_the_server_does() -> None:
    limit = AdaptiveLimit(64)
    served(limit, 8, 60)
    assert served(limit, 64, 300)[-1] == 64


@given(st.integers(13, 5000), st.integers(0, 10))
def test_a_few_refusals_are_a_bad_day_and_cost_nothing(every: int, seed: int) -> None:
    limit = AdaptiveLimit(64)
    for number in range(5000):
        limit.answered(in_flight=64, refusal="" if (number + seed) % every else "429")
    assert limit.allowed == 64


@given(st.lists(st.booleans(), max_size=2000), st.integers(1, 200))
def test_the_limit_stays_within_its_bounds(answers: list[bool], most: int) -> None:
    limit = AdaptiveLimit(most)
    for refused in answers:
        limit.answered(in_flight=limit.allowed, refusal="429" if refused else "")
        assert 1 <= limit.allowed <= most


def test_a_change_says_from_what_to_what_at_which_call_and_why() -> None:
    limit = AdaptiveLimit(64)
    reasons = [("503" if n % 8 == 0 else "429") if n % 2 == 0 else "" for n in range(64)]
    told = [limit.answered(in_flight=64, refusal=reason) for reason in reasons]
    assert [one for one in told if one] == [LimitChange(64, 64, 32, "429")]
    grown = [limit.answered(in_flight=32) for _ in range(64 + 32)]
    assert [one for one in grown if one] == [LimitChange(160, 32, 36, "")], "the first 64 are older"


async def test_refusals_shrink_a_roles_slots_and_the_others_keep_theirs(bench: Bench) -> None:
    limit = AdaptiveLimit(8)
    bench.server.always = refuse(429)
    client = bench.client("proposer", batcher=Batcher(limit), limits=RunLimits(8), max_attempts=2)
    results = await asyncio.gather(*(client.ask(ask(str(n))) for n in range(24)), return_exceptions=True)
    assert all(isinstance(result, TransientError) for result in results)
    assert limit.allowed < 8
    bench.server.always = None
    first, second = await client.ask(ask("then")), await client.ask(ask("and then"))
    (change,) = first.limit_changes
    assert (change.before, change.after, change.reason) == (8, limit.allowed, "429") and change.call >= 32
    assert second.limit_changes == (), "a change is told once"
    assert (await client.ask(ask("then"))).limit_changes == (), "an answer from the memo tells none"
    await asyncio.gather(*(bench.client("task").ask(ask(str(n))) for n in range(8)))
