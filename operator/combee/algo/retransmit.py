"""Sending again what was not carried, and what that costs under a law of aggregator capacity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from combee.errors import BugError

DUPLICATE_BELOW = 64
"""Below this many reflections a round's latency costs more than copies do (DESIGN section 5)."""
EXACT_UP_TO = 2000
"""Largest n whose distribution is followed exactly; above it the mean is (relative error O(1/n))."""

_Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Redundancy:
    """How an iteration's reflections are sent: ``copies`` each, in at most ``rounds`` rounds."""

    mode: Literal["Duplicate", "Retransmit"]
    copies: int
    rounds: int


@dataclass(frozen=True, slots=True)
class CapacityLaw:
    """Distinct entries that one call carries out of z items: e = z / (1 + z/items + (T/tokens)^2).

    T = z * ``item_tokens``. Defaults are the simulated model's for raw reflections (facts.md: one
    call saturates at about m / (1 + m/9.5) entries); they describe that model, not a real one.
    """

    items: float = 11.5
    tokens: float = 9600.0
    item_tokens: float = 200.0

    def carried(self, z: float) -> float:
        """Expected distinct entries of a call over ``z`` items (a count or a mean), in [0, z].

        Source: simulated-model.md (Aggregating). Cost: O(1).

        >>> round(CapacityLaw().carried(8), 2), CapacityLaw().carried(0)
        (4.64, 0.0)
        """
        if z <= 0:
            return 0.0
        return z / (1 + z / self.items + (z * self.item_tokens / self.tokens) ** 2)


@dataclass(frozen=True, slots=True)
class RoundExpectation:
    """Means of one round: reflections ``sent``, leaf ``calls``, lessons newly ``kept``."""

    sent: float
    calls: float
    kept: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """Means of an iteration: ``kept`` is a share of n in [0, 1], ``calls`` the leaf calls of all rounds."""

    kept: float
    calls: float
    rounds: tuple[RoundExpectation, ...]


def choose_redundancy(
    mode: Literal["Auto", "Duplicate", "Retransmit"], n: int, copies: int = 2, max_rounds: int = 4
) -> Redundancy:
    """Copies and rounds for n reflections.

    ``Auto`` is ``Duplicate`` with ``copies`` for n < 64, else ``Retransmit``. Duplicate is one round;
    Retransmit sends one copy and then, for at most ``max_rounds`` rounds in all, what is missing.
    Raises ``BugError`` for another mode or counts below 1. Source: DESIGN section 5. Cost: O(1).

    >>> choose_redundancy("Auto", 20), choose_redundancy("Auto", 1000).rounds
    (Redundancy(mode='Duplicate', copies=2, rounds=1), 4)
    """
    if mode not in ("Auto", "Duplicate", "Retransmit") or copies < 1 or max_rounds < 1:
        raise BugError(
            f"mode {mode!r}, copies {copies}, max_rounds {max_rounds} are no redundancy",
            where="choose_redundancy",
        )
    if mode == "Duplicate" or (mode == "Auto" and n < DUPLICATE_BELOW):
        return Redundancy("Duplicate", copies, 1)
    return Redundancy("Retransmit", 1, max_rounds)


def missing(carried: Sequence[bool] | Mapping[int, bool]) -> tuple[int, ...]:
    """Ascending indices of the reflections whose lessons were not all carried: the next round's.

    ``carried[i]`` tells it of reflection i (a mapping may leave indices out: they are not asked for).
    Empty gives (). Source: DESIGN section 5 (Retransmission). Cost: O(n log n).

    >>> missing([True, False, False]), missing({5: False, 2: True, 3: False})
    ((1, 2), (3, 5))
    """
    pairs = carried.items() if isinstance(carried, Mapping) else enumerate(carried)
    return tuple(sorted(i for i, kept in pairs if not kept))


def expected_kept(
    n: int, leaf_size: int, rounds: int, *, copies: int = 1, law: CapacityLaw | None = None
) -> Expectation:
    """Share of n distinct lessons kept, and leaf calls spent, after ``rounds`` rounds under ``law``.

    One lesson a reflection, all distinct, chosen alike; round 1 sends each ``copies`` times to
    different leaves, each later round sends what is missing once. A call carries floor(e) lessons,
    plus one with probability e - floor(e). With copies = 1 and n <= 2,000 this is the exact
    expectation (the distribution of the missing count is followed from round to round), else the
    mean is. At n = 1,000, f = 8: 3 rounds keep 92.7 % with 200 calls, 4 keep 97.0 % with 210; copies = 2
    at f = 4 keep 93.1 % with 500. n = 0 keeps everything (1.0) with no call. ``BugError`` for n < 0 or
    counts below 1. Source: DESIGN section 5, simulated-model.md. Cost: O(n sigma) with sigma =
    O(sqrt n) when exact; 10 ms at n = 1,000.

    >>> result = expected_kept(1000, 8, 3)
    >>> round(result.kept, 2), round(result.calls)
    (0.93, 200)
    """
    if n < 0 or leaf_size < 1 or rounds < 1 or copies < 1:
        raise BugError(
            f"n={n}, leaf_size={leaf_size}, rounds={rounds}, copies={copies}", where="expected_kept"
        )
    law = law or CapacityLaw()
    if n == 0:
        return Expectation(1.0, 0.0, ())
    if copies == 1 and n <= EXACT_UP_TO:
        steps = _exact_rounds(n, leaf_size, rounds, law)
    else:
        steps = _mean_rounds(n, leaf_size, rounds, copies, law)
    return Expectation(sum(s.kept for s in steps) / n, sum(s.calls for s in steps), tuple(steps))


def _leaf_sizes(sent: int, leaf_size: int) -> tuple[int, int, int]:
    """(leaves, size of the small ones, how many hold one more) for an even deal of ``sent`` items."""
    leaves = -(-sent // leaf_size)
    return leaves, sent // leaves, sent % leaves


def _exact_rounds(n: int, leaf_size: int, rounds: int, law: CapacityLaw) -> list[RoundExpectation]:
    chance = np.zeros(n + 1)
    chance[n] = 1.0
    steps: list[RoundExpectation] = []
    for _ in range(rounds):
        after = np.zeros(n + 1)
        after[0] = chance[0]
        sent = calls = 0.0
        for m in (np.flatnonzero(chance[1:] > 1e-14) + 1).tolist():
            weight = float(chance[m])
            leaves, size, larger = _leaf_sizes(m, leaf_size)
            small = _kept_by(leaves - larger, law.carried(size))
            kept = np.convolve(small, _kept_by(larger, law.carried(size + 1)))[: m + 1]
            after[: m + 1] += weight * np.pad(kept, (0, m + 1 - len(kept)))[::-1]
            sent += weight * m
            calls += weight * leaves
        steps.append(RoundExpectation(sent, calls, sent - float(after @ np.arange(n + 1))))
        chance = after
    return steps


def _kept_by(leaves: int, each: float) -> _Vector:
    """Distribution of the lessons kept by ``leaves`` calls that carry ``each`` on average."""
    whole = math.floor(each)
    return np.concatenate([np.zeros(leaves * whole), _binomial(leaves, each - whole)])


def _binomial(n: int, p: float) -> _Vector:
    if p <= 0.0:
        return np.array([1.0] + [0.0] * n)
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
        for k in range(n + 1)
    ]
    chances: _Vector = np.exp(np.array(logs))
    return chances


def _mean_rounds(
    n: int, leaf_size: int, rounds: int, copies: int, law: CapacityLaw
) -> list[RoundExpectation]:
    steps: list[RoundExpectation] = []
    left = float(n)
    for k in range(rounds):
        if left < 1e-9:
            break
        dealt = left * (copies if k == 0 else 1)
        leaves = max(1.0, float(math.ceil(dealt / leaf_size - 1e-9)))
        p = min(float(copies), leaves) if k == 0 else 1.0
        size = left * p / leaves
        share = law.carried(size) / size
        kept = left * (1 - (1 - share) ** p)
        steps.append(RoundExpectation(left, leaves, kept))
        left -= kept
    return steps
