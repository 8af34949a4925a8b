"""What a run has cost by now, from its usage and the manifest's prices. Pure."""

from __future__ import annotations

from combee.api.run import RunSpec
from combee.plan.types import Usage

SECONDS_AN_HOUR = 3600.0


def money_of(spec: RunSpec, usage: Usage, gpu_seconds: float = 0.0) -> float:
    """Return what the usage costs, and GPUs that were held for so many seconds, all together. What has no
    price costs nothing."""
    if spec.prices is None:
        return 0.0
    money = gpu_seconds * spec.prices.per_gpu_hour / SECONDS_AN_HOUR
    for role, used in usage.items():
        if (price := spec.price_of(role)) is not None:
            money += price.of(
                used.prompt_tokens, used.completion_tokens, used.cached_tokens, used.lost_tokens
            )
    return money
