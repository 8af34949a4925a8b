"""What tokens cost: additive, never negative, and no more than at the full price."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from combee.api.prices import ModelPrice


def price_of(prompt: float, cached: float | None, completion: float) -> ModelPrice:
    return ModelPrice(
        name="m",
        promptPerMillionTokens=prompt,
        cachedPerMillionTokens=cached,
        completionPerMillionTokens=completion,
    )


prices = st.builds(
    lambda prompt, share, completion: price_of(prompt, prompt * share, completion),
    st.floats(0, 1e3),
    st.floats(0, 1),
    st.floats(0, 1e3),
)
tokens = st.integers(0, 10**9)


@given(prices, tokens, tokens, st.floats(0, 1))
def test_what_was_cached_costs_no_more_and_nothing_is_negative(
    price: ModelPrice, prompt: int, completion: int, share: float
) -> None:
    cached = int(share * prompt)
    cost = price.of(prompt, completion, cached)
    assert -1e-6 <= cost <= price.of(prompt, completion) * (1 + 1e-12)
    each, less = price.prompt_per_million_tokens, price.cached_per_million_tokens or 0.0
    wanted = (prompt - cached) * each + cached * less + completion * price.completion_per_million_tokens
    assert cost == pytest.approx(wanted / 1e6, abs=1e-6)


@given(prices, st.lists(st.tuples(tokens, tokens), min_size=1, max_size=5))
def test_calls_cost_what_their_sum_costs(price: ModelPrice, calls: list[tuple[int, int]]) -> None:
    together = price.of(sum(prompt for prompt, _ in calls), sum(completion for _, completion in calls))
    assert sum(price.of(*call) for call in calls) == pytest.approx(together, rel=1e-9, abs=1e-9)


@given(prices, tokens, tokens, st.integers(1, 3))
def test_a_lost_request_costs_what_the_answer_costs_uncached(
    price: ModelPrice, prompt: int, completion: int, lost: int
) -> None:
    cost = price.of(prompt, completion, cached=prompt, lost=lost * (prompt + completion))
    wanted = price.of(prompt, completion, cached=prompt) + lost * price.of(prompt, completion)
    assert cost == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_more_cached_than_there_was_is_all_of_it_and_without_a_price_of_its_own_it_costs_the_full_one() -> (
    None
):
    assert price_of(2.0, 1.0, 0.0).of(1_000_000, 0, cached=5_000_000) == 1.0
    assert price_of(2.0, None, 0.0).of(1_000_000, 0, cached=1_000_000) == 2.0


def test_what_was_lost_without_any_answer_costs_what_the_dearer_tokens_do() -> None:
    assert price_of(2.0, None, 8.0).of(0, 0, lost=1_000_000) == 8.0
