"""Which observations still speak of today's delay law: a workload may change in mid-run.

Observations are walked in the order they were made. Each is compared with the law of the *era* so
far: d = ln(seconds / predicted). A new era begins where the mean of the last one to five d, all of one
sign and like size, is beyond 3.3 standard errors (the era's scatter, drawn towards 20 % while few were
seen, and the law's own uncertainty there) and beyond a factor of 1.25. What came before then only lends its shape, scaled to today's level, until
the new era has two batch sizes of its own. An observation that stands alone, the next one being back
at the old law, was an accident: it begins nothing and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from combee.algo.delay import HUBER, Observation, usable
from combee.algo.laws import Law, Laws, fit_laws

SPREAD = 1.5
"""Sizes closer than this ratio say nothing of a slope."""
KNOWN = 3
"""An era of fewer observations has no law to disagree with."""
_ERRORS = 3.3
_LEAST_FACTOR = math.log(1.25)
_PRIOR_SCATTER, _PRIOR_WEIGHT = 0.2, 8
"""The scatter of an era is taken as if eight observations with 20 % noise had been seen before."""
_LOOK_BACK = 5


@dataclass(frozen=True, slots=True)
class Today:
    """What is believed before the next iteration.

    ``laws``: fitted on the era's own observations; None while it has no two sizes. ``law``: what
    describes them: ``laws.chosen``, else the earlier era's law scaled
    to today's level (``borrowed``), else None. ``start``: index of the era's first observation.
    ``factor``: how many times as slow as expected the era began; None in the first.
    """

    laws: Laws | None
    law: Law | None
    start: int
    factor: float | None = None
    borrowed: bool = False

    def planned(self, size: Callable[[Law], float]) -> Law | None:
        """The law that a rule plans with, which asks ``size`` of each: ``Laws.typical``, else ``law``."""
        return self.law if self.laws is None else self.laws.typical(size)


def spread(sizes: Sequence[float]) -> bool:
    """Whether two sizes differ enough to tell a slope from noise.

    >>> spread([40, 44]), spread([40, 60])
    (False, True)
    """
    return bool(sizes) and max(sizes) >= SPREAD * min(sizes)


def today(obs: Sequence[Observation]) -> Today:
    """The current era and its law. Unusable observations count for nothing; never raises.

    Cost: one fit of the laws an observation. Source: issue 4 ("re-planned within two iterations").

    >>> slow = [Observation(b, 3 * (36 + b)) for b in (44, 22)]
    >>> seen = today([*(Observation(b, 36 + b) for b in (5, 25, 10, 44, 44)), *slow])
    >>> seen.start, round(seen.factor), round(seen.law.a), round(seen.law.f)
    (5, 3, 108, 3)
    """
    seen = [(index, one) for index, one in enumerate(obs) if usable([one])]
    made = [one for _, one in seen]
    start = 0
    before: Law | None = None
    factor: float | None = None
    known: dict[int, Law] = {}
    position = 0
    while position < len(made):
        era = made[start:position]
        if len(era) >= KNOWN and (law := _law(_own(era), before, era)) is not None:
            known[position] = law
        broken = _break(known, made, start, position)
        position += 1
        if broken is None:
            continue
        old, deviations = broken
        mean = sum(deviations) / len(deviations)
        if _back(old, mean, made[position : position + 1]):
            if len(deviations) == 1 and abs(mean) > HUBER:
                position -= 1
                del seen[position], made[position]
            continue
        before, factor = old, _factor(mean)
        start, known = position - len(deviations), {}
    era = made[start:]
    laws = _own(era)
    first = seen[start][0] if seen else 0
    if laws is not None:
        return Today(laws, laws.chosen, first, factor)
    borrowed = _law(None, before, era)
    return Today(None, borrowed, first, factor, borrowed=borrowed is not None)


def _law(own: Laws | None, before: Law | None, era: Sequence[Observation]) -> Law | None:
    """What describes an era: its own law, else the shape of the one before at the era's level."""
    if own is not None or before is None or not era:
        return own.chosen if own is not None else None
    return before.scaled(_factor(sum(_deviations(before, era)) / len(era)))


def _factor(log: float) -> float:
    """exp, within what a float can hold."""
    return math.exp(max(-700.0, min(700.0, log)))


def _break(
    known: Mapping[int, Law], made: Sequence[Observation], start: int, position: int
) -> tuple[Law, list[float]] | None:
    """The law that held until now and the deviations of the last one to five observations from it,
    if they no longer follow it. ``known[p]`` is the law of the era's observations before ``p``."""
    for count in range(1, _LOOK_BACK + 1):
        first = position + 1 - count
        law = known.get(first)
        if law is None:
            return None
        tail = _deviations(law, made[first : position + 1])
        mean = sum(tail) / count
        same_way = all(value * mean > mean**2 / 2 for value in tail)
        unsure = 1 / count + _leverage(law, made[start:first], made[first : position + 1])
        error = _scatter(law, first - start) * math.sqrt(unsure)
        if same_way and abs(mean) > max(_LEAST_FACTOR, _ERRORS * error):
            return law, tail
    return None


def _own(era: Sequence[Observation]) -> Laws | None:
    return fit_laws(era) if spread([one.batch_size for one in era]) else None


def _deviations(law: Law, era: Sequence[Observation]) -> list[float]:
    """ln(seconds / predicted), 0 where the law predicts nothing."""
    return [
        math.log(one.seconds) - math.log(predicted)
        if 0 < (predicted := law.predict(one.batch_size)) < math.inf
        else 0.0
        for one in era
    ]


def _scatter(law: Law, n: int) -> float:
    """The standard deviation of a log error, drawn towards 20 % while few were seen."""
    free = max(0, n - law.coefficients)
    return math.sqrt((_PRIOR_WEIGHT * _PRIOR_SCATTER**2 + n * law.error**2) / (_PRIOR_WEIGHT + free))


def _leverage(law: Law, era: Sequence[Observation], new: Sequence[Observation]) -> float:
    """Variance of the law's mean log prediction at ``new``, in units of one observation's variance:
    a law of three observations is hardly surer than its data, and less so away from them."""

    def design(these: Sequence[Observation]) -> NDArray[np.float64]:
        sizes = np.array([one.batch_size for one in these], float)
        predicted = np.array([max(law.predict(one.batch_size), 1e-300) for one in these])
        return np.stack([sizes.max() / predicted, sizes / predicted], axis=1)

    with np.errstate(all="ignore"):
        known, asked = design([*era, *new]), np.ones(len(new)) / len(new)
        known, rows = known[: len(era)], known[len(era) :]
        try:
            spread_of = np.linalg.pinv(known.T @ known)
        except np.linalg.LinAlgError:
            return 0.0
        mean = asked @ rows
        variance = float(mean @ spread_of @ mean)
    return variance if math.isfinite(variance) else 0.0


def _back(law: Law, mean: float, after: Sequence[Observation]) -> bool:
    """Whether the observation after some that deviate by ``mean`` is back, by more than half, at the law."""
    return any(abs(deviation) < abs(mean) / 2 for deviation in _deviations(law, after))
