"""What a manifest says about its verdicts: who keeps heldOut, if it was tuned on, what an error costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
