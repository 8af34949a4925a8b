"""What a run may spend, what it has spent, and what it can still afford."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from combee.api.run import LimitName

_NAMES: tuple[LimitName, ...] = get_args(LimitName)


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount of each budgeted thing. A rollout is every task-model call (map, replay, heldOut)."""

    rollouts: int = 0
    tokens: int = 0
    gpu_seconds: float = 0.0
    wall_clock_seconds: float = 0.0
    money: float = 0.0
    """in the currency of the manifest's prices."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(
            self.rollouts + other.rollouts,
            self.tokens + other.tokens,
            self.gpu_seconds + other.gpu_seconds,
            self.wall_clock_seconds + other.wall_clock_seconds,
            self.money + other.money,
        )

    def __sub__(self, other: Spend) -> Spend:
        return self + other.times(-1)

    def times(self, factor: int) -> Spend:
        """Return every amount times ``factor``.

        >>> Spend(rollouts=2, tokens=10).times(3)
        Spend(rollouts=6, tokens=30, gpu_seconds=0.0, wall_clock_seconds=0.0, money=0.0)
        """
        return Spend(
            self.rollouts * factor,
            self.tokens * factor,
            self.gpu_seconds * factor,
            self.wall_clock_seconds * factor,
            self.money * factor,
        )

    @property
    def amounts(self) -> tuple[float, float, float, float, float]:
        """The five amounts in the order of the limits' names.

        >>> Spend(rollouts=1).amounts
        (1, 0, 0.0, 0.0, 0.0)
        """
        return (self.rollouts, self.tokens, self.gpu_seconds, self.wall_clock_seconds, self.money)


@dataclass(frozen=True, slots=True)
class Limits:
    """``spec.budget``: each limit or None (no limit); ``primary`` is the one named first."""

    rollouts: int | None = None
    tokens: int | None = None
    gpu_seconds: float | None = None
    wall_clock_seconds: float | None = None
    primary: LimitName = "rollouts"
    money: float | None = None

    @property
    def by_name(self) -> tuple[tuple[int, LimitName, float], ...]:
        """(position in ``Spend.amounts``, name, limit) of each limit that is set, the primary first.

        >>> Limits(rollouts=9, tokens=50, primary="tokens").by_name
        ((1, 'tokens', 50), (0, 'rollouts', 9))
        """
        values = (self.rollouts, self.tokens, self.gpu_seconds, self.wall_clock_seconds, self.money)
        rows = [(k, _NAMES[k], value) for k, value in enumerate(values) if value is not None]
        return tuple(sorted(rows, key=lambda row: (row[1] != self.primary, row[0])))


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that forbids the next work; ``str()`` is a sentence for people."""

    name: LimitName
    limit: float
    spent: float
    planned: float

    def __str__(self) -> str:
        limit, spent, planned = (f"{x:,.10g}" for x in (self.limit, self.spent, self.planned))
        return f"budget.{self.name} is {limit}: {spent} spent and {planned} more are planned"

    @property
    def is_spent(self) -> str:
        """The same in short, for the end of a run.

        >>> Exceeded("tokens", 1000, 990, 20).is_spent, Exceeded("money", 2.5, 2.6, 0).is_spent
        ('the budget of 1,000 tokens is spent', 'the budget of 2.5 in money is spent')
        """
        name = "in money" if self.name == "money" else self.name
        return f"the budget of {self.limit:,.10g} {name} is spent"


def fits(spent: Spend, planned: Spend, limits: Limits) -> Exceeded | None:
    """Return None when ``spent`` + ``planned`` stays within every limit, else the first limit it breaks.

    The primary limit is checked first, then rollouts, tokens, gpuSeconds, wallClockSeconds, money. Exactly
    reaching a limit is within it; an amount that is NaN is not. Source: DESIGN section 5 (caps) and
    section 6 (budget). Cost: O(1).

    >>> str(fits(Spend(rollouts=90), Spend(rollouts=20), Limits(rollouts=100)))
    'budget.rollouts is 100: 90 spent and 20 more are planned'
    >>> fits(Spend(rollouts=90), Spend(rollouts=10), Limits(rollouts=100)) is None
    True
    """
    for k, name, limit in limits.by_name:
        if not spent.amounts[k] + planned.amounts[k] <= limit:
            return Exceeded(name, limit, spent.amounts[k], planned.amounts[k])
    return None


def largest_affordable(per_example: Spend, fixed: Spend, spent: Spend, limits: Limits) -> int | None:
    """Return the most examples whose cost, with ``fixed`` on top, still fits; None when no limit binds.

    Returns 0 when not even ``fixed`` fits or an amount is NaN. Source: DESIGN section 5 (budget as a cap of
    the batch size). Cost: O(1).

    >>> largest_affordable(Spend(rollouts=2), Spend(rollouts=5), Spend(rollouts=80), Limits(rollouts=100))
    7
    >>> largest_affordable(Spend(rollouts=2), Spend(), Spend(), Limits(tokens=100)) is None
    True
    """
    if fits(spent, fixed, limits) is not None:
        return 0
    best: int | None = None
    for k, _, limit in limits.by_name:
        unit_cost = per_example.amounts[k]
        if math.isnan(unit_cost):
            return 0
        if unit_cost <= 0 or math.isinf(limit):
            continue
        remaining = limit - spent.amounts[k] - fixed.amounts[k]
        affordable = math.floor(remaining / unit_cost + 1e-9)
        best = affordable if best is None else min(best, affordable)
    return best
