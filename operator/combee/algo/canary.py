"""Is a candidate no worse than the active version on traffic? Turns judged pairs into a verdict, at any time.

A pair is one request answered by both versions and scored by the evaluator; its *difference* is the
candidate's score minus the other's, in [-1, 1]. The mean difference has a confidence sequence (``sequence``),
so one may look after each pair and stop at will:

- Failed as soon as its upper end is at or below -epsilon;
- Passed when its lower end is at or above -epsilon (a mean of -epsilon is refuted), *and* enough pairs came,
  *and* the shortest duration is over, *and* the candidate's answers are not too slow;
- Inconclusive otherwise; for good at the deadline. Time alone never passes anything.

A candidate at or under active - epsilon passes with probability ALPHA / 2 at most, however often one looks.
The assumption: given the pairs before, each one's expected difference is that mean. Turns of one conversation
are more alike than that, so the caller hands in one pair per conversation (``work.judge.root_of``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from combee.algo.sequence import above, below, interval, log_capital
from combee.algo.tally import REPEATED, UNJUDGED, Tally
from combee.algo.verdict import PAIRS, Judgement, Words, number, spoken

ALPHA = 0.05
"""error probability of the confidence sequence, both ends together."""
_FAR = 1e6
"""no forecast beyond this multiple of the pairs received so far."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a canary. Times are in seconds, ``epsilon`` in units of the score."""

    epsilon: float
    min_samples: int
    duration_seconds: float
    deadline_seconds: float
    max_latency_ratio: float = math.inf
    alpha: float = ALPHA


def tally_verdict(
    tally: Tally,
    rules: Rules,
    elapsed_seconds: float,
    *,
    against: str = "active",
    words: Words = PAIRS,
) -> Judgement:
    """Return the verdict of the pairs after ``elapsed_seconds``. ``against``: the other version's name;
    ``words``: the names of pairs and differences.

    ``needed`` is the number of pairs still missing if they go on as before (or ``min_samples``, where that is
    more). ``final`` is False while the canary goes on.

    >>> tally = Tally({0: 4000, 100: 30, -100: 30})
    >>> tally_verdict(tally, Rules(0.01, 200, 60, 600), 90).message
    '+0.000 [-0.007, 0.007] vs active, n=4,060: the lower end is above -0.010'
    """
    mean, count = tally.mean, tally.pairs
    low, high = interval(tally.counts, rules.alpha)
    numbers = spoken(mean, low, high, count, against, words)
    needed, more = still_needed(tally, rules), _failed(tally, against) + _left_out(tally)

    def say(outcome: Any, reason: str, finding: str, *, final: bool = True) -> Judgement:
        message = f"{numbers}: {finding}{more}"
        missing = None if final and outcome in ("Passed", "Failed") else needed
        return Judgement(outcome, reason, message, None, mean, low, high, count, missing, final)

    floor = words.amount(-rules.epsilon)
    if below(tally.counts, -rules.epsilon, rules.alpha):
        return say("Failed", "CanaryWorse", f"the upper end is below {floor}")
    missing = _missing(tally, rules, elapsed_seconds, needed, words)
    if missing is None:
        return say("Passed", "CanaryPassed", f"the lower end is above {floor}")
    if elapsed_seconds >= rules.deadline_seconds:
        cause = f"the deadline of {_span(rules.deadline_seconds)} is over with {count:,} {words.many}"
        return say("Inconclusive", "DeadlineExceeded", f"{cause}; {missing[1]}")
    return say("Inconclusive", missing[0], missing[1], final=False)


def _failed(tally: Tally, against: str) -> str:
    """Return the pairs in which one version gave no answer, in words; empty where there are none."""
    parts = [
        f"{version} gave no answer to {sum(reasons.values()):,} "
        f"({', '.join(f'{reason}: {reasons[reason]:,}' for reason in sorted(reasons))})"
        for version, reasons in (("the candidate", tally.failed), (against, tally.other_failed))
        if reasons
    ]
    return f"; {', '.join(parts)}" if parts else ""


def _left_out(tally: Tally) -> str:
    """Return the requests that made no pair, in words; empty where there are none."""
    refused = {status: n for status, n in tally.left_out.items() if status not in (REPEATED, UNJUDGED)}
    text = ""
    if total := sum(refused.values()):
        statuses = ", ".join(f"{status}: {refused[status]:,}" for status in sorted(refused))
        text = f"; {_are(total)} left out: the upstream refuses {'it' if total == 1 else 'them'} ({statuses})"
    if unjudged := tally.left_out.get(UNJUDGED, 0):
        text += f"; {_are(unjudged)} left out: the evaluator gave no verdict"
    if repeated := tally.left_out.get(REPEATED, 0):
        text += f"; {_are(repeated)} left out: one counts of those that begin with the same words"
    return text


def _are(requests: int) -> str:
    return f"{requests:,} {'request is' if requests == 1 else 'requests are'}"


def _missing(
    tally: Tally, rules: Rules, elapsed: float, needed: int | None, words: Words
) -> tuple[str, str] | None:
    """Return what keeps the candidate from passing, as a reason and words; None when nothing does."""
    if not tally.pairs:
        return "NoTraffic", f"no {words.one} has come"
    no_worse = above(tally.counts, -rules.epsilon, rules.alpha)
    if not no_worse or tally.pairs < rules.min_samples:
        at_least = "" if no_worse else f"the lower end must be above {words.amount(-rules.epsilon)}, "
        more = f"{'' if needed is None else f'about {needed:,} '}more {words.many} are needed"
        return "NeedPairs", at_least + more
    ratio = tally.latency_ratio
    if ratio is not None and ratio > rules.max_latency_ratio:
        limit = number(rules.max_latency_ratio)
        return "TooSlow", f"answers take {ratio:.2f} times as long, {limit} is allowed"
    if elapsed < rules.duration_seconds:
        return "TooEarly", f"it takes {_span(rules.duration_seconds)} at least"
    return None


def still_needed(tally: Tally, rules: Rules) -> int | None:
    """Return the pairs missing to decide either way, if they go on as before; None: no forecast.

    The capital of the same shares of differences at c times the pairs is known without any assumption; c is
    where it reaches the limit. 0 when nothing is missing. Cost: O(log) looks at the capital.

    >>> still_needed(Tally({0: 900, 100: 50, -100: 50}), Rules(0.01, 200, 60, 600))
    10477
    """
    count = tally.pairs
    floor = max(0, rules.min_samples - count)
    if not count:
        return None
    up = tally.mean > -rules.epsilon
    limit = math.log(2 / rules.alpha)

    def decided(factor: float) -> bool:
        grown: Any = {value: times * factor for value, times in tally.counts.items()}
        return log_capital(grown, -rules.epsilon, up=up) >= limit

    if decided(1.0):
        return floor if up else 0
    if not decided(_FAR):
        return None
    low, high = 1.0, _FAR
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if decided(middle) else (middle, high)
    return max(floor if up else 0, math.ceil(count * (high - 1)))


def _span(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
