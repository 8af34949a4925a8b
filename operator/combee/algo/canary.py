"""Is a candidate no worse than the active version on traffic? Turns judged pairs into a verdict, at any time.

A pair is one request answered by both versions and scored by the evaluator; its *difference* is the
candidate's score minus the other's, in [-1, 1]. The mean difference has a confidence sequence (``sequence``),
so one may look after each pair and stop at will:

- Failed as soon as its upper end is at or below -epsilon;
- Passed when its lower end is at or above -epsilon (a mean of -epsilon is refuted), *and* enough pairs came,
  *and* the shortest duration is over, *and* the candidate's answers are neither too slow nor too costly,
  *and* the blocks of time say so, too (``blocks``);
- Inconclusive otherwise; for good at the deadline. Time alone never passes anything.

A candidate at or under active - epsilon passes with probability ALPHA / 2 at most, however often one looks.
The assumption: given the pairs before, each one's expected difference is that mean. Turns of one conversation
are more alike than that, so the caller hands in one pair per conversation and cluster
(``work.judge.roots_of``). Hours are more alike than that, so their blocks must agree with one mean; where
they do not, it is Unstable: nothing passes before SETTLED times the shortest duration, and then by the
blocks' own interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from combee.algo.blocks import LEAST_BLOCKS, Grid
from combee.algo.sequence import above, below, interval, log_capital
from combee.algo.tally import EXPENSES, REPEATED, UNJUDGED, Expense, Tally
from combee.algo.verdict import PAIRS, Judgement, Words, number, spoken

ALPHA = 0.05
"""error probability of the confidence sequence, both ends together."""
DAY_SECONDS = 86_400.0
"""A cycle of traffic: a duration of a day or more is rounded up to whole ones."""
LONGEST_BLOCK_SECONDS = 3600.0
BLOCKS_IN_DURATION = 24
SETTLED = 3
"""Blocks that do not agree with one mean tell by themselves after this many times the duration."""
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
    max_cost_ratio: float = math.inf
    alpha: float = ALPHA
    by_time: bool = False
    """whether pairs are those of live traffic and say when they were asked, so that blocks are compared."""
    late_seconds: float = 0.0
    """how long after the beginning nothing counts, since labels come late."""

    def largest(self, expense: Expense) -> float:
        """Return how many times as much of an expense is allowed."""
        return self.max_latency_ratio if expense == "latency" else self.max_cost_ratio

    @property
    def span_seconds(self) -> float:
        """The shortest time that must be seen: whole days from a day on, as far as the deadline allows.

        >>> [Rules(0.01, 200, day * 86_400, 259_200).span_seconds / 86_400 for day in (0.5, 1, 1.5, 3)]
        [0.5, 1.0, 2.0, 3.0]
        """
        return max(self.duration_seconds, min(self._whole_seconds, self.deadline_seconds - self.late_seconds))

    @property
    def _whole_seconds(self) -> float:
        """The duration, in whole days from a day on."""
        days = math.ceil(self.duration_seconds / DAY_SECONDS)
        return self.duration_seconds if self.duration_seconds < DAY_SECONDS else days * DAY_SECONDS

    @property
    def shortest_seconds(self) -> float:
        """The shortest time that it takes."""
        return self.late_seconds + self.span_seconds

    @property
    def settled_seconds(self) -> float:
        """From when on blocks tell that do not agree with one mean."""
        return self.late_seconds + SETTLED * self.span_seconds

    @property
    def deadline_for_unstable(self) -> float:
        """The least deadline, in seconds, with which a candidate whose blocks do not agree with one mean can
        still pass; 0 where no blocks are compared.

        >>> rules = [Rules(0.01, 200, day * 86_400, 259_200, by_time=True) for day in (0.5, 1.2)]
        >>> [one.deadline_for_unstable for one in rules]
        [129600.0, 518400.0]
        """
        return self.late_seconds + SETTLED * self._whole_seconds if self.block_seconds else 0.0

    @property
    def block_seconds(self) -> float:
        """The length of a block: a part of the duration, an hour at most; 0 where none are compared."""
        block = min(LONGEST_BLOCK_SECONDS, self.duration_seconds / BLOCKS_IN_DURATION)
        return block if self.by_time else 0.0

    def grid(self, since: float) -> Grid | None:
        """Return where the blocks of a canary lie that began at ``since``; None where it has none."""
        if not self.block_seconds:
            return None
        return Grid(since, self.block_seconds, since + self.deadline_seconds)


TOO_MUCH: Mapping[Expense, str] = {"latency": "TooSlow", "cost": "TooCostly"}
"""The reason of a version whose answers take too much of an expense."""


def takes(expense: Expense, ratio: float) -> str:
    """Return in words how many times as much of an expense answers take.

    >>> takes("latency", 1.2), takes("cost", 3)
    ('answers take 1.20 times as long', 'requests cost 3.00 times as much')
    """
    if expense == "latency":
        return f"answers take {ratio:.2f} times as long"
    return f"requests cost {ratio:.2f} times as much"


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
    '+0.000 [-0.007, 0.007] vs active, n=4,060: the lower end is above -0.010; no whole day was seen'
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
        whole_day = "" if elapsed_seconds >= DAY_SECONDS else "; no whole day was seen"
        return say("Passed", "CanaryPassed", f"the lower end is above {floor}{whole_day}")
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
        alike = "one counts of those that begin with the same words or are of one cluster"
        text += f"; {_are(repeated)} left out: {alike}"
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
    for expense in EXPENSES:
        ratio, limit = tally.expenses[expense].mean, rules.largest(expense)
        if ratio is not None and ratio > limit:
            return TOO_MUCH[expense], f"{takes(expense, ratio)}, {number(limit)} is allowed"
    if elapsed < rules.shortest_seconds:
        return "TooEarly", f"it takes {_span(rules.shortest_seconds)} at least"
    return _missing_in_blocks(tally, rules, elapsed, words) if rules.block_seconds else None


def _missing_in_blocks(tally: Tally, rules: Rules, elapsed: float, words: Words) -> tuple[str, str] | None:
    """Return what the blocks of time lack to agree that it is no worse; None when nothing."""
    look = tally.blocks.look(rules.block_seconds, elapsed, tally.variance)
    length, floor = _span(tally.blocks.seconds(rules.block_seconds)), words.amount(-rules.epsilon)
    if look.count < LEAST_BLOCKS:
        few = f"{look.count} of the {LEAST_BLOCKS} that are needed at least have {words.many} and are closed"
        return "TooEarly", f"by blocks of {length}: {few}"
    # The time that the blocks stand for: not that in which nothing came any more.
    seen = min(elapsed, look.until_seconds + rules.span_seconds / 2)
    if seen < rules.shortest_seconds:
        return "TooEarly", f"no {words.one} has come since {_span(look.until_seconds)} after it began"
    if look.low >= -rules.epsilon and (look.steady or seen >= rules.settled_seconds):
        return None
    low = words.amount(round(look.low, 3))
    lower = f"by blocks of {length} the lower end must be above {floor}, it is {low}"
    if look.steady:
        return "NeedPairs", lower
    least, most = (words.amount(round(end, 3)) for end in (min(look.quarters), max(look.quarters)))
    moves = f"the mean moves with time, from {least} to {most} between quarters of it"
    later = f"blocks tell from {_span(rules.settled_seconds)} on"
    return "Unstable", f"{moves}; {lower if seen >= rules.settled_seconds else later}"


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
