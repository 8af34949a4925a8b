"""What model calls and GPUs cost, by the prices that the user states. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MILLION = 1_000_000
SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Price:
    """What a model's tokens cost, per million: prompt, those of the prompt that were cached, completion."""

    prompt: float = 0.0
    cached: float = 0.0
    completion: float = 0.0

    def of(self, prompt: int, completion: int, cached: int = 0, lost: int = 0) -> float:
        """Return what so many tokens cost. ``lost`` tokens cost what those in and out do on average, none of
        them cached. Cost: O(1).

        >>> Price(2.0, 0.5, 10.0).of(prompt=1_000_000, completion=100_000, cached=400_000)
        2.4
        >>> Price(1.0, 1.0, 3.0).of(prompt=500_000, completion=500_000, lost=1_000_000)
        4.0
        """
        cached = min(cached, prompt)
        full = prompt * self.prompt + completion * self.completion
        again = lost * full / (prompt + completion) if prompt + completion else 0.0
        return (full - cached * (self.prompt - self.cached) + again) / MILLION


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a run: of each role's model, and of an hour of one GPU. What is not stated costs
    nothing."""

    by_role: Mapping[str, Price] = field(default_factory=dict)
    gpu_hour: float = 0.0

    def of_role(self, role: str) -> Price:
        """Return the price of a role's model."""
        return self.by_role.get(role, Price())

    def of_gpus(self, gpu_seconds: float) -> float:
        """Return what GPUs cost that were held for so many seconds, all together.

        >>> Prices(gpu_hour=3.0).of_gpus(1800)
        1.5
        """
        return gpu_seconds * self.gpu_hour / SECONDS_AN_HOUR
