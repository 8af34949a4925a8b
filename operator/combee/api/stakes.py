"""What a manifest says about its verdicts: who keeps heldOut, if it was tuned on, what an error costs.

A run says in words what an error costs. A Playbook says it as one of three classes, and each has a weakest
canary, which is in ``WEAKEST`` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

FailureCost = Literal["Low", "Medium", "High"]
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Weakest:
    """The weakest canary that a class of failure cost allows."""

    min_samples: int
    """the least canary.minSamples."""
    duration_seconds: int
    """the least canary.durationSeconds."""
    epsilon: float
    """the largest canary.epsilon, also of one that is waived or asks a person: the watch goes by it."""


WEAKEST: Mapping[FailureCost, Weakest] = {
    "Low": Weakest(min_samples=20, duration_seconds=0, epsilon=0.1),
    "Medium": Weakest(min_samples=200, duration_seconds=_DAY, epsilon=0.02),
    # The traffic of a service repeats itself by the week.
    "High": Weakest(min_samples=1_000, duration_seconds=7 * _DAY, epsilon=0.005),
}


TUNED_ON = "heldOut was used for tuning before, so its scores can be too good"


@dataclass(frozen=True, slots=True)
class Stakes:
    """The three answers, as a run's manifest or a version's origin has them; empty where it says nothing."""

    steward: str = ""
    used_for_tuning: bool = False
    failure_cost: str = ""

    def sentences(self) -> Iterator[str]:
        """Yield what was said, without full stops.

        >>> list(Stakes(steward="data-platform", failure_cost="A wrong figure").sentences())
        ['data-platform keeps heldOut', 'a wrong answer costs: A wrong figure']
        """
        if self.steward:
            yield f"{self.steward} keeps heldOut"
        if self.used_for_tuning:
            yield TUNED_ON
        if self.failure_cost:
            yield f"a wrong answer costs: {self.failure_cost}"


def too_weak(field: str, cost: FailureCost) -> str:
    """Return what is wrong with a canary whose ``field`` is weaker than a class of failure cost allows.

    >>> too_weak("epsilon", "Medium")
    'canary.epsilon is over 0.02, the largest with failureCost Medium (a loss of up to epsilon passes)'
    """
    least = WEAKEST[cost]
    bound, why = {
        "minSamples": (f"under {least.min_samples}, the least", "fewer requests can be one user's"),
        "durationSeconds": (f"under {least.duration_seconds}, the least", "hours and weekdays differ"),
        "epsilon": (f"over {least.epsilon:g}, the largest", "a loss of up to epsilon passes"),
    }[field]
    return f"canary.{field} is {bound} with failureCost {cost} ({why})"
