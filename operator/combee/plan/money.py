"""What a run has cost by now, from its usage and the manifest's prices. Pure."""

from __future__ import annotations

from combee.algo.money import Price, Prices
from combee.api.run import RunSpec
from combee.plan.types import Usage


def prices_of(spec: RunSpec) -> Prices:
    """Return the prices of each role's model; none where the manifest states none."""
    if spec.prices is None:
        return Prices()
    rows = {row.name: row for row in spec.prices.models}
    by_role = {}
    for role in spec.roles_in_use():
        row = rows.get(spec.model_name(role))
        if row is not None:
            prompt, cached = row.prompt_per_million_tokens, row.cached_per_million_tokens
            by_role[role] = Price(
                prompt, prompt if cached is None else cached, row.completion_per_million_tokens
            )
    return Prices(by_role, spec.prices.per_gpu_hour)


def without_token_price(spec: RunSpec) -> tuple[str, ...]:
    """Return the roles in use whose model's tokens have no price; none where no prices are stated."""
    if spec.prices is None:
        return ()
    priced = prices_of(spec).by_role
    return tuple(role for role in spec.roles_in_use() if role not in priced)


def money_of(prices: Prices, usage: Usage, gpu_seconds: float = 0.0) -> float:
    """Return what the usage and the GPUs cost so far."""
    tokens = 0.0
    for role, used in usage.items():
        tokens += prices.of_role(role).of(
            used.prompt_tokens, used.completion_tokens, used.cached_tokens, used.lost_tokens
        )
    return tokens + prices.of_gpus(gpu_seconds)
