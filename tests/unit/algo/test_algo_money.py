"""What tokens and GPUs cost: additive, never negative, and no more than at the full price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.algo.money import Price, Prices

prices = st.builds(
    lambda prompt, share, completion: Price(prompt, prompt * share, completion),
    st.floats(0, 1e3),
    st.floats(0, 1),
    st.floats(0, 1e3),
)
tokens = st.integers(0, 10**9)


@given(prices, tokens, tokens, st.floats(0, 1))
def test_what_was_cached_costs_no_more_and_nothing_is_negative(
    price: Price, prompt: int, completion: int, share: float
) -> None:
    cached = int(share * prompt)
    cost = price.of(prompt, completion, cached)
    assert -1e-6 <= cost <= price.of(prompt, completion) * (1 + 1e-12)
    wanted = (prompt - cached) * price.prompt + cached * price.cached + completion * price.completion
    assert cost == pytest.approx(wanted / 1e6, abs=1e-6)


@given(prices, st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5))
def test_calls_cost_what_their_sum_costs(price: Price, calls: list[tuple[int, int]]) -> None:
    together = price.of(sum(prompt for prompt, _ in calls), sum(completion for _, completion in calls))
    assert sum(price.of(*call) for call in calls) == pytest.approx(together, rel=1e-9, abs=1e-9)


@given(prices, tokens, tokens, st.integers(1, 3))
def test_a_lost_request_costs_what_the_answer_costs_uncached(
    price: Price, prompt: int, completion: int, lost: int
) -> None:
    cost = price.of(prompt, completion, cached=prompt, lost=lost * (prompt + completion))
    wanted = price.of(prompt, completion, cached=prompt) + lost * price.of(prompt, completion)
    assert cost == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_more_cached_than_there_was_is_all_of_it() -> None:
    assert Price(2.0, 1.0, 0.0).of(1_000_000, 0, cached=5_000_000) == 1.0


def test_what_has_no_price_costs_nothing() -> None:
    assert Prices().of_role("task").of(10**9, 10**9) == 0.0
    assert Prices().of_gpus(1e9) == 0.0
