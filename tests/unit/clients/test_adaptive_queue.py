"""The limit of calls in flight as it follows a server's queue, and what it passes over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from combee.clients.model.adaptive import CAREFUL_FROM, QUEUED, AdaptiveLimit, LimitChange
from combee.clients.model.looks import Look


def look(running: int | None, waiting: int) -> Look:
    return Look(waiting, 0.5, 0, 0, running)


@given(
    st.integers(1, 200),
    st.lists(st.tuples(st.integers(0, 300), st.booleans()), max_size=400),
    st.lists(st.tuples(st.none() | st.integers(0, 300), st.integers(0, 300)), max_size=5),
)
@settings(max_examples=50)
def test_the_limit_stays_within_its_bounds(
    most: int, calls: list[tuple[int, bool]], seen: list[tuple[int | None, int]]
) -> None:
    limit = AdaptiveLimit(most)
    for number, (in_flight, refused) in enumerate(calls):
        limit.answered(in_flight=in_flight, refusal="429" if refused else "")
        if number % 50 == 0 and seen:
            limit.looked(look(*seen[number // 50 % len(seen)]), in_flight)
        assert 1 <= limit.allowed <= most


def test_a_queue_at_the_server_is_kept_as_long_as_what_it_runs() -> None:
    limit = AdaptiveLimit(512)
    assert limit.looked(look(64, 448), 512) is None, "a burst may wait while its prompts are read"
    change = limit.looked(look(64, 448), 512)
    assert change == LimitChange(0, 512, QUEUED * 64 + 1, "queue")
    for _ in range(20):
        limit.looked(look(64, limit.allowed - 64), limit.allowed)
        assert abs(limit.allowed - QUEUED * 64) <= 1, "it settles"


def test_answers_raise_no_limit_while_calls_wait() -> None:
    limit = AdaptiveLimit(512)
    for _ in range(2):
        limit.looked(look(64, 448), 512)
    for _ in range(2000):
        assert limit.answered(in_flight=limit.allowed) is None


def test_a_burst_whose_prompts_are_still_read_changes_nothing() -> None:
    limit = AdaptiveLimit(64)
    assert [limit.looked(look(running, 64 - running), 64) for running in (8, 30, 60)] == [None] * 3


def test_the_limit_doubles_at_each_look_at_which_no_call_waits() -> None:
    limit = AdaptiveLimit(256)
    for _ in range(2):
        limit.looked(look(10, 246), 256)
    assert limit.allowed == 21
    seen = []
    for _ in range(5):
        limit.looked(look(limit.allowed, 0), limit.allowed)
        seen.append(limit.allowed)
    assert seen == [42, 84, 168, 256, 256]
    assert limit.looked(look(3, 0), 3) is None, "a limit that nobody reaches says nothing"


def test_no_empty_queue_takes_it_back_to_where_the_server_refused() -> None:
    limit = AdaptiveLimit(100)
    for number in range(100):
        limit.answered(in_flight=100, refusal="429" if number % 2 else "")
    assert (limit.allowed, limit.ceiling) == (50, 100)
    for _ in range(5):
        limit.looked(look(50, 0), limit.allowed)
    assert limit.allowed == int(CAREFUL_FROM * 100)


def test_the_requests_of_others_are_not_taken_for_ours() -> None:
    limit = AdaptiveLimit(64)
    for _ in range(2):
        limit.looked(look(100, 100), 64)
    assert limit.allowed == 64, "half of ours run: 32, and as many may wait"
    for _ in range(2):
        limit.looked(look(100, 300), 64)
    assert limit.allowed == 33


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_calls_that_were_in_flight_when_the_limit_fell_do_not_lower_it_again(share: float) -> None:
    limit = AdaptiveLimit(200)
    refused = round(share * 200)
    for number in range(400):  # those in flight meet the same overload
        limit.answered(in_flight=200, refusal="timeout" if number % 200 < refused else "")
    assert limit.allowed == int(200 * (1 - refused / 200))


def test_a_few_calls_that_are_refused_tell_little_of_many() -> None:
    limit = AdaptiveLimit(512)
    told = [limit.answered(in_flight=1, refusal="503" if n % 8 == 0 else "") for n in range(32)]
    assert told[-1] == LimitChange(32, 512, 28, "503"), "32, less an eighth, and not none at all"


def test_a_queue_beside_which_nobody_says_what_runs_holds_nothing_back() -> None:
    limit = AdaptiveLimit(64)
    for n in range(64):
        limit.answered(in_flight=64, refusal="429" if n % 2 else "")
    limit.looked(look(None, 9), 32)
    assert any(limit.answered(in_flight=32) for _ in range(64 + 32)), "it grows"


def test_a_window_is_no_longer_than_what_was_in_flight() -> None:
    limit = AdaptiveLimit(512)
    told = [limit.answered(in_flight=40, refusal="timeout" if n < 20 else "") for n in range(40)]
    assert told[:-1] == [None] * 39
    assert told[-1] == LimitChange(40, 512, 20, "timeout"), "a limit that is far from reached falls below it"


def test_looks_that_change_nothing_leave_the_window_as_it_is() -> None:
    limit = AdaptiveLimit(64)
    for n in range(64):
        limit.answered(in_flight=64, refusal="429" if n % 2 else "")
    assert (limit.allowed, limit.ceiling) == (32, 64)
    for _ in range(8):
        limit.looked(look(32, 0), 32)
    assert limit.allowed == int(CAREFUL_FROM * 64), "57.6 is no more than 57"
    changes = []
    for n in range(400):  # half of all answers are refusals, and every few of them the server is looked at
        changes.append(limit.answered(in_flight=57, refusal="429" if n % 2 else ""))
        if n % 10 == 0:
            limit.looked(look(57, 0), 57)
    assert any(one is not None and one.reason == "429" for one in changes)


def test_a_limit_that_nobody_reaches_is_not_what_makes_a_queue() -> None:
    limit = AdaptiveLimit(64)
    for _ in range(4):
        assert limit.looked(look(60, 300), 1) is None
    assert limit.allowed == 64


def test_a_queue_that_drains_raises_no_limit() -> None:
    limit = AdaptiveLimit(64)
    for n in range(64):
        limit.answered(in_flight=64, refusal="429" if n % 4 else "")
    assert limit.allowed == 16
    for _ in range(3):
        assert limit.looked(look(48, 16), 64) is None
    assert limit.allowed == 16
