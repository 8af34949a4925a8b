"""Held-out gates: is a candidate good enough, and better than the active version on the same examples?

There are three questions; the first that is not answered with yes gives the verdict:

1. Is its score at least ``min_score``? The measured score is compared; the sentence gives its interval, so
   that a reader sees how certain it is.
2. Is the lower end of the paired difference's interval above ``min_gain``? Then it is better, with the
   confidence asked for. Is the upper end below it? Then it is not.
3. Otherwise there are too few examples to tell, and the sentence says how many would do.

There is one look per candidate, and each look at the same heldOut is judged more strictly than the one
before (``spending``). Of a candidate that passes ``corrected_gain`` says what it probably gains. Right /
wrong scores with ``min_gain`` 0 get a bootstrap interval whose distribution is exact and which never
contradicts the exact sign test; with another ``min_gain`` they get Tango's score interval where that is
wider, since no sign test guards that. Other scores get a bootstrap interval (``paired_difference``), which
is too narrow below some thirty examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

from combee.algo.shrinkage import shrunk_gain, shrunk_mean
from combee.algo.spending import look_confidence, percent
from combee.algo.stats import can_ever_detect, gate_power, paired_difference, score_difference, wilson
from combee.algo.verdict import Judgement, Outcome, number, spoken
from combee.errors import BugError

CONFIDENCE = 0.95
"""confidence of the interval on gate that decides whether a run ends as Learned."""
POWER = 0.8
"""probability with which the number of examples said to be needed would decide."""
_MANY = 1_000_000
"""number of examples from which on the normal distribution is exact enough."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two versions' scores on the same examples, in [0, 1]; ``low``..``high`` holds at ``confidence``."""

    score: float
    other: float
    low: float
    high: float
    rows: int
    confidence: float = 0.95
    discordant: int | None = None
    """number of examples on which the two differ; None when unknown."""

    @property
    def gain(self) -> float:
        """The version's score minus the other's."""
        return self.score - self.other


def compare(
    version: Mapping[str, float], other: Mapping[str, float], *, confidence: float, seed: int = 0
) -> Compared:
    """Return both versions' scores, paired by example id; examples that only one has are left out.

    No pairs give rows 0 and an interval of [-1, 1]. ``seed`` has no effect on right / wrong scores. BugError
    for confidence outside (0, 1). Cost and source: ``stats.paired_difference``.

    >>> old = {str(i): 0.0 for i in range(40)}
    >>> compare(old | {str(i): 1.0 for i in range(10)}, old, confidence=0.95).low
    0.125
    """
    paired = paired_difference(other, version, seed=seed, confidence=confidence)
    both = [i for i in version if i in other and math.isfinite(version[i]) and math.isfinite(other[i])]
    rows = max(1, len(both))
    return Compared(
        score=math.fsum(version[i] for i in both) / rows,
        other=math.fsum(other[i] for i in both) / rows,
        low=paired.low,
        high=paired.high,
        rows=paired.n,
        confidence=confidence,
        discordant=paired.discordant,
    )


def at_confidence(compared: Compared, confidence: float) -> Compared:
    """Return ``compared`` with its interval at ``confidence``.

    The interval of right / wrong scores is computed anew, exactly. Otherwise both arms are stretched as
    Student's would be, and reach 0 where too few examples differ for this confidence. BugError for confidence
    outside (0, 1).

    >>> at_confidence(Compared(0.75, 0.5, 0.125, 0.4, 40, discordant=10), 0.99).low
    0.1
    """
    if not 0 < confidence < 1:
        raise BugError(f"confidence {confidence} is not in (0, 1)", where="at_confidence")
    if confidence == compared.confidence or not compared.rows:
        return replace(compared, confidence=confidence)
    if (counts := _wins_and_losses(compared)) is not None:
        wins, losses = counts
        before = {str(i): float(wins <= i < wins + losses) for i in range(compared.rows)}
        after = {str(i): float(i < wins) for i in range(compared.rows)}
        paired = paired_difference(before, after, seed=0, confidence=confidence)
        return replace(compared, low=paired.low, high=paired.high, confidence=confidence)
    stretch = _reach(compared.rows, confidence) / _reach(compared.rows, compared.confidence)
    low = max(-1.0, compared.gain - stretch * (compared.gain - compared.low))
    high = min(1.0, compared.gain + stretch * (compared.high - compared.gain))
    if compared.discordant is not None and not can_ever_detect(compared.discordant, 1 - confidence):
        low, high = min(low, 0.0), max(high, 0.0)
    return replace(compared, low=low, high=high, confidence=confidence)


def _reach(rows: int, confidence: float) -> float:
    """Return the standard errors to either end of Student's interval of a mean of ``rows`` values."""
    from scipy.special import stdtrit  # it takes a fifth of a second to import

    return float(stdtrit(max(1, rows - 1), (1 + confidence) / 2))


def _wins_and_losses(compared: Compared) -> tuple[int, int] | None:
    """Return the examples won and lost where both scores are shares of right answers; else None."""
    if compared.discordant is None:
        return None
    total = compared.gain * compared.rows
    wins = (compared.discordant + total) / 2
    losses = compared.discordant - wins
    right = compared.score * compared.rows
    whole = all(abs(value - round(value)) < 1e-6 for value in (wins, losses, right))
    return (round(wins), round(losses)) if whole and wins > -0.5 and losses > -0.5 else None


def held_out_verdict(
    compared: Compared,
    *,
    min_score: float | None,
    min_gain: float,
    confidence: float,
    look: int = 1,
    against: str = "active",
) -> Judgement:
    """Return the verdict of heldOut. ``against``: the other version's name in the sentence.

    ``confidence`` is that of the first look at a heldOut; the ``look``-th is judged by
    ``spending.look_confidence``. ``needed`` is the number of examples missing for the gain measured, at this
    look. Reasons: HeldOutPassed, ScoreTooLow, NotBetter, TooFewExamples.

    >>> compared = Compared(0.861, 0.640, 0.18, 0.26, 300)
    >>> held_out_verdict(compared, min_score=0.85, min_gain=0.0, confidence=0.95).message
    '0.861 >= 0.850 (0.817 to 0.896 at 95 %); +0.221 [0.180, 0.260] vs active, n=300'
    """
    level = look_confidence(confidence, look)
    compared = _claimed(compared, min_gain, level)
    gain, low, high = compared.gain, compared.low, compared.high
    parts = [spoken(gain, low, high, compared.rows, against)]
    if min_score is not None:
        from_, to = score_interval(compared.score, compared.rows, level)
        sign = ">=" if compared.score >= min_score else "<"
        precision = f"({from_:.3f} to {to:.3f} at {percent(level)} %)"
        parts.insert(0, f"{compared.score:.3f} {sign} {number(min_score)} {precision}")
    needed: int | None = None
    outcome: Outcome
    if compared.rows and min_score is not None and compared.score < min_score:
        outcome, reason = "Failed", "ScoreTooLow"
    elif compared.rows and low > min_gain:
        outcome, reason = "Passed", "HeldOutPassed"
    elif compared.rows and high < min_gain:
        outcome, reason = "Failed", "NotBetter"
        parts.append(f"a gain over {number(min_gain)} is asked for")
    else:
        outcome, reason = "Inconclusive", "TooFewExamples"
        needed = examples_missing(compared, min_gain, level)
        parts.append(_too_few(compared, min_gain, needed))
    if look > 1:
        parts.append(f"look {look:,} at this heldOut: {percent(level)} % asked")
    return Judgement(
        outcome, reason, "; ".join(parts), compared.score, gain, low, high, compared.rows, needed
    )


def _claimed(compared: Compared, min_gain: float, confidence: float) -> Compared:
    """Return ``compared`` with the interval by which a gain over ``min_gain`` is judged."""
    compared = at_confidence(compared, confidence)
    if min_gain and compared.rows and (counts := _wins_and_losses(compared)) is not None:
        low, high = score_difference(*counts, compared.rows, confidence)
        return replace(compared, low=min(low, compared.low), high=max(high, compared.high))
    return compared


@lru_cache(maxsize=1024)
def corrected_gain(compared: Compared, *, min_gain: float, confidence: float, look: int = 1) -> float:
    """Return the gain of a version that ``held_out_verdict`` passes, less what being chosen for it adds.

    Arguments as there. It is the likeliest gain given that it passed; where it would have passed with a gain
    over 0 asked for, given that. BugError for one that does not pass. Source: ``shrinkage``. Cost: that of
    some ten verdicts, once: a candidate whose canary goes on is looked at again and again.

    >>> compared = Compared(0.2, 0.08, 0.05, 0.19, 150, discordant=38)
    >>> round(corrected_gain(compared, min_gain=0.0, confidence=0.95), 3)
    0.095
    """
    compared = _claimed(compared, min_gain, look_confidence(confidence, look))
    claim = max(min_gain, 0.0) if compared.low > 0 else min_gain
    counts = _wins_and_losses(compared)
    if counts is None:
        reach = compared.gain - compared.low
        spread = reach / _reach(compared.rows, compared.confidence)
        return shrunk_mean(compared.gain, spread, least=claim + reach, floor=claim) if spread else claim
    wins, losses = counts
    fails, least = -1, wins
    while least - fails > 1:
        fewer = (fails + least) // 2
        won, lost = fewer / compared.rows, (wins + losses - fewer) / compared.rows
        other = replace(compared, score=won, other=lost, confidence=0.0)
        passes = _claimed(other, claim, compared.confidence).low > claim
        fails, least = (fails, fewer) if passes else (fewer, least)
    return shrunk_gain(wins, losses, compared.rows, least=least, floor=claim)


def _too_few(compared: Compared, min_gain: float, needed: int | None) -> str:
    claim = f"a gain over {number(min_gain)} cannot be told from chance"
    if needed is None:
        return f"{claim}, and none was measured: more examples would hardly show one"
    return f"{claim}; about {needed:,} more examples would show one of {compared.gain:.3f}"


def examples_missing(compared: Compared, min_gain: float, confidence: float) -> int | None:
    """Return the examples still missing to show the gain measured; None where no gain was measured.

    Arguments as ``held_out_verdict``, source and cost as ``examples_needed``. BugError for confidence outside
    (0, 1).

    >>> examples_missing(Compared(0.61, 0.6, -0.02, 0.04, 300, discordant=30), 0.0, 0.95)
    7786
    """
    effect = compared.gain - min_gain
    if not compared.rows or effect <= 0:
        return None
    share = abs(compared.gain) if compared.discordant is None else compared.discordant / compared.rows
    total = examples_needed(effect, discordance=min(1.0, max(share, effect)), confidence=confidence)
    return max(1, total - compared.rows)


def examples_needed(gain: float, *, discordance: float, confidence: float, power: float = POWER) -> int:
    """Return the examples on which a true gain shows with probability ``power``, to within a hundredth.

    ``gain`` > 0 in units of the score, ``discordance`` d in (0, 1] the share of examples on which the two
    differ. BugError otherwise. Source: d ((z_{(1+c)/2} + z_power) / gain)^2 (Connor 1987), never fewer than
    the sign test needs, raised until ``stats.gate_power`` agrees; over a million the two are the same. Cost:
    O(sqrt(examples)).

    >>> examples_needed(0.04, discordance=0.1, confidence=0.95)
    518
    """
    shares = (discordance, confidence, power)
    if not gain > 0 or not all(0 < share <= 1 for share in shares) or confidence == 1 or power == 1:
        raise BugError(f"gain {gain}, discordance {discordance}, confidence {confidence}, power {power}")
    normal = NormalDist()
    reach = normal.inv_cdf((1 + confidence) / 2) + normal.inv_cdf(power)
    least = math.ceil(math.log2(2 / (1 - confidence)))
    needed = max(math.ceil(least / discordance), math.ceil(discordance * (reach / gain) ** 2))
    true, alpha = min(gain, discordance), 1 - confidence
    while needed < _MANY and gate_power(needed, true, discordance=discordance, alpha=alpha) < power:
        needed += max(1, needed // 100)
    return needed


def score_interval(score: float, rows: int, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a mean of ``rows`` scores in [0, 1]; (0, 1) without rows.

    >>> [round(end, 3) for end in score_interval(0.861, 300, 0.95)]
    [0.817, 0.896]
    """
    return wilson(score, rows, NormalDist().inv_cdf((1 + confidence) / 2))
