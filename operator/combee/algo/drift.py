"""Which observations still follow the current delay law: a workload may change in mid-run.

Observations are walked in the order they were made. Each is compared with the law of the *era* so far: d =
ln(seconds / predicted). A new era begins where the mean of the last one to five d, all of one sign and like
size, is beyond 3.3 standard errors and beyond a factor of 1.25. The standard error holds the era's scatter,
drawn towards 20 % while few were seen, and the law's own uncertainty there. Earlier observations then lend
only their law's shape, scaled to today's level, until the new era has two batch sizes of its own. An
observation that stands alone, the next one being back at the old law, was an accident: it begins no era and
is left out.
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
"""Sizes closer than this ratio do not determine a slope."""
KNOWN = 3
"""An era of fewer observations has no law to compare with."""
_ERRORS = 3.3
_LEAST_FACTOR = math.log(1.25)
_PRIOR_SCATTER, _PRIOR_WEIGHT = 0.2, 8
"""The scatter of an era is taken as if eight observations with 20 % noise had been seen before."""
_LOOK_BACK = 5


@dataclass(frozen=True, slots=True)
class Today:
    """The laws believed before the next iteration.

    ``laws``: fitted on the era's own observations; None while the era lacks two sizes. ``law``: the law that
    describes them: ``laws.chosen``, else the earlier era's law scaled to today's level (``borrowed``), else
    None. ``start``: index of the era's first observation. ``factor``: how many times as slow as expected the
    era began; None in the first.
    """

    laws: Laws | None
    law: Law | None
    start: int
    factor: float | None = None
    borrowed: bool = False

    def planned(self, size: Callable[[Law], float]) -> Law | None:
        """Return the law that a rule plans with: ``Laws.typical`` of its ``size``, else ``law``."""
        return self.law if self.laws is None else self.laws.typical(size)


def spread(sizes: Sequence[float]) -> bool:
    """Return whether the sizes differ enough to tell a slope from noise.

    >>> spread([40, 44]), spread([40, 60])
    (False, True)
    """
    return bool(sizes) and max(sizes) >= SPREAD * min(sizes)


def today(obs: Sequence[Observation]) -> Today:
    """Return the current era and its law. Unusable observations are ignored; never raises.

    Cost: one fit of the laws per observation. Source: issue 4 ("re-planned within two iterations").

    >>> slow = [Observation(b, 3 * (36 + b)) for b in (44, 22)]
    >>> era = today([*(Observation(b, 36 + b) for b in (5, 25, 10, 44, 44)), *slow])
    >>> era.start, round(era.factor), round(era.law.a), round(era.law.f)
    (5, 3, 108, 3)
    """
    indexed = [(index, observation) for index, observation in enumerate(obs) if usable([observation])]
    usable_obs = [observation for _, observation in indexed]
    start = 0
    previous: Law | None = None
    factor: float | None = None
    laws_by_position: dict[int, Law] = {}
    position = 0
    while position < len(usable_obs):
        era = usable_obs[start:position]
        if len(era) >= KNOWN and (law := _law(_own(era), previous, era)) is not None:
            laws_by_position[position] = law
        departure = _break(laws_by_position, usable_obs, start, position)
        position += 1
        if departure is None:
            continue
        departed_law, deviations = departure
        mean = sum(deviations) / len(deviations)
        if _back(departed_law, mean, usable_obs[position : position + 1]):
            if len(deviations) == 1 and abs(mean) > HUBER:
                position -= 1
                del indexed[position], usable_obs[position]
            continue
        previous, factor = departed_law, _factor(mean)
        start, laws_by_position = position - len(deviations), {}
    era = usable_obs[start:]
    laws = _own(era)
    first = indexed[start][0] if indexed else 0
    if laws is not None:
        return Today(laws, laws.chosen, first, factor)
    borrowed = _law(None, previous, era)
    return Today(None, borrowed, first, factor, borrowed=borrowed is not None)


def _law(laws: Laws | None, previous: Law | None, era: Sequence[Observation]) -> Law | None:
    """Return the law of an era: its own, else the previous law's shape at the era's level."""
    if laws is not None or previous is None or not era:
        return laws.chosen if laws is not None else None
    return previous.scaled(_factor(sum(_deviations(previous, era)) / len(era)))


def _factor(log: float) -> float:
    """Return exp(log), kept within the range of a float."""
    return math.exp(max(-700.0, min(700.0, log)))


def _break(
    laws_by_position: Mapping[int, Law], observations: Sequence[Observation], start: int, position: int
) -> tuple[Law, list[float]] | None:
    """Return the law that held until now and the deviations of the last one to five observations from it, if
    they no longer follow it; else None. ``laws_by_position[p]`` is the law of the era's observations before
    ``p``."""
    for count in range(1, _LOOK_BACK + 1):
        first = position + 1 - count
        law = laws_by_position.get(first)
        if law is None:
            return None
        tail = _deviations(law, observations[first : position + 1])
        mean = sum(tail) / count
        if abs(mean) <= _LEAST_FACTOR or any(value * mean <= mean**2 / 2 for value in tail):
            continue
        variance = 1 / count + _leverage(law, observations[start:first], observations[first : position + 1])
        if abs(mean) > _ERRORS * _scatter(law, first - start) * math.sqrt(variance):
            return law, tail
    return None


def _own(era: Sequence[Observation]) -> Laws | None:
    return fit_laws(era) if spread([observation.batch_size for observation in era]) else None


def _deviations(law: Law, era: Sequence[Observation]) -> list[float]:
    """Return ln(seconds / predicted) of each observation, 0 where the law predicts no time."""
    return [
        math.log(observation.seconds) - math.log(predicted)
        if 0 < (predicted := law.predict(observation.batch_size)) < math.inf
        else 0.0
        for observation in era
    ]


def _scatter(law: Law, n: int) -> float:
    """Return the standard deviation of a log error, drawn towards 20 % while few were seen."""
    free = max(0, n - law.coefficients)
    return math.sqrt((_PRIOR_WEIGHT * _PRIOR_SCATTER**2 + n * law.error**2) / (_PRIOR_WEIGHT + free))


def _leverage(law: Law, era: Sequence[Observation], new: Sequence[Observation]) -> float:
    """Return the variance of the law's mean log prediction at ``new``, in units of one observation's
    variance: a law of three observations is hardly surer than its data, and less sure away from them."""

    def design(observations: Sequence[Observation]) -> NDArray[np.float64]:
        sizes = np.array([observation.batch_size for observation in observations], float)
        predicted = np.array(
            [max(law.predict(observation.batch_size), 1e-300) for observation in observations]
        )
        return np.stack([sizes.max() / predicted, sizes / predicted], axis=1)

    with np.errstate(all="ignore"):
        era_rows, mean_weights = design([*era, *new]), np.ones(len(new)) / len(new)
        era_rows, rows = era_rows[: len(era)], era_rows[len(era) :]
        try:
            covariance = np.linalg.pinv(era_rows.T @ era_rows)
        except np.linalg.LinAlgError:
            return 0.0
        mean = mean_weights @ rows
        variance = float(mean @ covariance @ mean)
    return variance if math.isfinite(variance) else 0.0


def _back(law: Law, mean: float, after: Sequence[Observation]) -> bool:
    """Return whether the next observation is back at the law, by more than half of ``mean``."""
    return any(abs(deviation) < abs(mean) / 2 for deviation in _deviations(law, after))
