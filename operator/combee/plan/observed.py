"""What one measured iteration says to the controller, and the caps that follow from it. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from combee.algo.batch import Cap
from combee.algo.delay import Observation
from combee.plan.types import StepSummary

HELD_SHARE = 0.9
"""A size whose carried share falls below this part of what smaller sizes had is too large."""
LEAST_LESSONS = 40
"""A share of fewer lessons is chance."""
LEAST_VARIANCE = 0.02
"""Below this the rewards are all right or all wrong as far as can be told (p = .98: .0196)."""
RECENT = 3
"""The number of iterations whose rewards count for the variance, and whose calls for the client's noise."""
OWN_SECONDS = 0.005
"""What this client may need of its own to make a call and read the answer: 1 to 4 ms were measured beside a
server that answers at once. A model needs several times that, however many calls are in flight: 34 ms a call
for 250 examples at once on an H200, by its latency law."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One iteration: its size, the modelled seconds of its learning calls, covariates and results.

    ``engine`` is the digest of the engine it was measured on ("" where an older version did not say).
    The tokens are the prompt tokens of the learning calls and those that a prefix cache served. ``lessons``
    counts the distinct lessons from reflections; ``carried`` counts those that are cited with their anchors.
    """

    batch_size: int
    seconds: float
    engine: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    examples: int = 0
    correct: int = 0
    lessons: int = 0
    carried: int = 0
    calls: int = 0
    """learning calls; 0 where an older version did not say."""

    @property
    def timing(self) -> Observation:
        """The size and time as the delay laws take them."""
        return Observation(self.batch_size, self.seconds)


def observed(summary: StepSummary) -> tuple[Observed, ...]:
    """Return the observations of a finished iteration's summary (normally one)."""
    counts = summary.counts
    return tuple(
        Observed(
            batch_size=size,
            seconds=seconds,
            engine=summary.outputs.get("engine", ""),
            prompt_tokens=counts.get("promptTokens", 0),
            cached_tokens=counts.get("cachedTokens", 0),
            examples=counts.get("examples", 0),
            correct=counts.get("correct", 0),
            lessons=counts.get("lessons", 0),
            carried=counts.get("carried", 0),
            calls=counts.get("calls", 0),
        )
        for size, seconds in summary.observations
    )


def of_engine(observations: Sequence[Observed], engine: str) -> tuple[Observed, ...]:
    """Return the observations made on ``engine`` or an unknown one since the engine last changed."""
    latest: list[Observed] = []
    for observation in observations:
        if observation.engine in ("", engine):
            latest.append(observation)
        else:
            latest.clear()
    return tuple(latest)


def own_seconds(waves: Sequence[tuple[int, float]], observations: Sequence[Observed]) -> float | None:
    """Return the seconds a call where they are at the level of the client's own noise, else None.

    Judged are the last three iterations that say how many calls they made, profile's waves before there are
    any: all calls together took no longer than ``OWN_SECONDS`` each, one after the other, on the critical
    path. Times of an older version that does not say count as a model's.

    >>> own_seconds([(5, 0.014), (50, 0.152)], []), own_seconds([(5, 0.6), (50, 0.9)], [])
    (0.003, None)
    """
    counted = [(o.calls, o.seconds) for o in observations[-RECENT:]] or waves
    usable = [(calls, seconds) for calls, seconds in counted if calls > 0 and 0 < seconds < math.inf]
    if not usable:
        return None
    each = sum(seconds for _, seconds in usable) / sum(calls for calls, _ in usable)
    return round(each, 4) if each <= OWN_SECONDS else None


def retention_cap(observations: Sequence[Observed]) -> Cap | None:
    """Return the cap of verified retention: the largest size that still carries its lessons.

    A lesson counts as carried when an entry cites its reflection and states its anchors. A size fails
    when its carried share, all its iterations together, is under .9 of the share that the smaller
    sizes that hold had together, both with at least 40 lessons. The cap is then the largest size below
    the smallest that fails. None means that nothing speaks against growth.
    """
    holding: list[int] = []
    for size in sorted({observation.batch_size for observation in observations}):
        share = _carried([o for o in observations if o.batch_size == size])
        smaller = _carried([o for o in observations if o.batch_size in holding])
        if share is not None and smaller is not None and share < HELD_SHARE * smaller:
            low, high = f"{100 * share:.0f} %", f"{100 * smaller:.0f} %"
            why = f"{low} of the lessons were carried at {size}, {high} at smaller sizes"
            return Cap("verified retention", holding[-1], why)
        holding.append(size)
    return None


def variance_cap(observations: Sequence[Observed]) -> Cap | None:
    """Return the cap of reward variance: the size does not grow while train rewards hardly vary.

    The variance is q (1 - q) with q = (right + 1) / (examples + 2) over the last three iterations (the rule
    of succession, so that a few examples never look certain). Where nearly all are right, there is little
    left to learn from a larger batch; where nearly all are wrong, there is little to tell apart. A larger
    batch would gain nothing, so the size stays at most what it was. None means that the rewards vary.
    """
    recent = observations[-RECENT:]
    examples, correct = sum(o.examples for o in recent), sum(o.correct for o in recent)
    q = (min(correct, examples) + 1) / (examples + 2)
    if not recent or examples == 0 or q * (1 - q) >= LEAST_VARIANCE:
        return None
    right = f"{correct} of the last {examples} train examples were right"
    why = f"{right}, so a larger batch has little more to tell"
    return Cap("reward variance", recent[-1].batch_size, why)


def _carried(observations: Sequence[Observed]) -> float | None:
    lessons = sum(o.lessons for o in observations)
    return sum(o.carried for o in observations) / lessons if lessons >= LEAST_LESSONS else None
