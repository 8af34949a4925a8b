"""What a base method says of its cost before a run: plain data that ``preview`` adds up."""

from __future__ import annotations

from dataclasses import dataclass

from combee.algo.ranges import Range


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of a preview, as the cost of a method depends on it."""

    size: int
    texts: int
    """that it works with side by side, at most."""
    components: int
    select_rows: int
    verify: str
    """Replay, Support or Off."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a method asks for in an iteration, beside the rollouts of the batch and the aggregator's leaves."""

    tried: Range = Range(0, 0)  # noqa: RUF009
    """rollouts that it takes to believe what was proposed."""
    reflects: bool = True
    """a call is made about each trajectory; not where a trajectory is a record that aggregators read themselves."""
    knows_select: bool = False
    """it scores on select what it tries out, so that what it renders is not scored there once more."""
    clusters: int | None = None
    """calls of its group-by; None: as many as there are lessons that say nearly the same."""
