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

The tally is the whole state: JSON, a few kilobytes, the same for any order of arrival (within MAX_SPANS
gaps). Each pair counts once however often it is handed in.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from combee.algo.sequence import GRID, above, below, interval, log_capital, on_grid
from combee.algo.verdict import PAIRS, Judgement, Words, number, spoken
from combee.errors import BugError

ALPHA = 0.05
"""error probability of the confidence sequence, both ends together."""
MAX_STREAMS = 100
"""most streams whose numbers are remembered. A further one replaces the oldest, by name: the pairs of that
stay counted, and it can add no more."""
MAX_SPANS = 24
"""most stretches of numbers per stream. With more, the lowest gap is closed and its numbers are left out. So
number pairs as they are handed in, not requests."""
WHY_FAILED = re.compile(r"[1-9][0-9]{2}|timeout|too long|no answer")
"""the reasons that may be given for a missing answer."""
REPEATED = 0
"""not a status: a request of a conversation that has its pair already."""
UNJUDGED = 1
"""not a status: a pair of answers on which the evaluator gave no verdict."""
_FAR = 1e6
"""no forecast beyond this multiple of the pairs received so far."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One judged request. (stream, number) identifies it within a comparison.

    ``stream``: who numbered it (a gateway's pod, a Job); ``number`` from 0. ``latency_ratio``: the seconds of
    the candidate's answer over the other's; None where not measured.
    """

    stream: str
    number: int
    difference: float
    latency_ratio: float | None = None
    failed: str = ""
    """why one of the answers is missing: a status, or another reason. It is the candidate's where the
    difference is -1, and the other's where it is 1."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A request that makes no pair. (stream, number) identifies it as in ``Pair``."""

    stream: str
    number: int
    status: int
    """the upstream's status; 200 for an unusable answer; REPEATED for a request of a conversation that has
    its pair; UNJUDGED where there are answers and no verdict."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a canary. Times are in seconds, ``epsilon`` in units of the score."""

    epsilon: float
    min_samples: int
    duration_seconds: float
    deadline_seconds: float
    max_latency_ratio: float = math.inf
    alpha: float = ALPHA


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """The data received in one canary. Created by ``Tally()`` and ``with_pairs``; read and written as
    JSON."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """difference in hundredths -> number of pairs."""
    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """stream -> first and last numbers of the stretches received, ascending, with gaps between them."""
    timed: int = 0
    log_ratio: int = 0
    """sum of log(latency ratio) over the ``timed`` pairs, in whole millionths, so that order does not
    matter."""
    left_out: Mapping[int, int] = field(default_factory=dict)
    """``LeftOut.status`` -> number of requests; they are in ``spans`` and make no pairs."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """reason -> pairs in which only the candidate gave no answer; they are in ``counts``, too."""
    other_failed: Mapping[str, int] = field(default_factory=dict)
    """reason -> pairs in which only the other version gave no answer."""
    folded: str = ""
    """the last stream whose numbers were dropped; streams up to it that are not in ``spans`` are ignored."""
    folded_streams: int = 0

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Mean difference; 0 without pairs."""
        return sum(v * n for v, n in self.counts.items()) / GRID / self.pairs if self.counts else 0.0

    @property
    def latency_ratio(self) -> float | None:
        """Geometric mean of the latency ratios; None while nothing was timed."""
        return math.exp(self.log_ratio / 1e6 / self.timed) if self.timed else None

    def with_pairs(self, comparison: str, pairs: Iterable[Pair]) -> Tally:
        """Return a tally with those of ``pairs`` that are not in it yet. ``comparison`` seeds the rounding.

        BugError for a difference outside [-1, 1], a negative number or an impossible latency ratio.
        """
        counts, streams = dict(self.counts), _Streams(dict(self.spans), self.folded, self.folded_streams)
        timed, log_ratio = self.timed, self.log_ratio
        failed, other_failed = dict(self.failed), dict(self.other_failed)
        for pair in sorted(pairs, key=lambda pair: (pair.stream, pair.number)):
            if pair.number < 0 or (pair.latency_ratio is not None and not 0 < pair.latency_ratio < math.inf):
                raise BugError(f"pair {pair} cannot be", where="Tally.with_pairs")
            if pair.failed and abs(pair.difference) != 1:
                raise BugError(f"pair {pair} without an answer cannot be", where="Tally.with_pairs")
            value = on_grid(pair.difference, _luck(comparison, pair))
            if not streams.came(pair):
                continue
            counts[value] = counts.get(value, 0) + 1
            if pair.failed:
                failures = failed if pair.difference < 0 else other_failed
                failures[pair.failed] = failures.get(pair.failed, 0) + 1
            if pair.latency_ratio is not None:
                timed, log_ratio = timed + 1, log_ratio + round(1e6 * math.log(pair.latency_ratio))
        return replace(
            self,
            **streams.fields(),
            counts=counts,
            timed=timed,
            log_ratio=log_ratio,
            failed=failed,
            other_failed=other_failed,
        )

    def with_left_out(self, requests: Iterable[LeftOut]) -> Tally:
        """Return a tally with those of ``requests`` that are not in it yet, so that they are not asked again.

        BugError for a negative number.
        """
        streams, left_out = _Streams(dict(self.spans), self.folded, self.folded_streams), dict(self.left_out)
        for request in sorted(requests, key=lambda request: (request.stream, request.number)):
            if request.number < 0:
                raise BugError(f"request {request} cannot be", where="Tally.with_left_out")
            if streams.came(request):
                left_out[request.status] = left_out.get(request.status, 0) + 1
        return replace(self, **streams.fields(), left_out=left_out)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a status; equal tallies give equal data."""
        optional: dict[str, Mapping[Any, int]] = {
            "leftOut": self.left_out,
            "failed": self.failed,
            "otherFailed": self.other_failed,
        }
        return {
            "counts": {str(value): self.counts[value] for value in sorted(self.counts)},
            "spans": {stream: [list(s) for s in self.spans[stream]] for stream in sorted(self.spans)},
            "timed": self.timed,
            "logRatio": self.log_ratio,
            **({"folded": [self.folded, self.folded_streams]} if self.folded else {}),
            **{
                name: {str(key): counts[key] for key in sorted(counts, key=str)}
                for name, counts in optional.items()
                if counts
            },
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any] | None) -> Tally:
        """Read what ``to_json`` wrote; None gives an empty tally. Raises BugError for anything else."""
        if not raw:
            return cls()
        try:
            folded, streams = raw.get("folded", ("", 0))
            tally = cls(
                {int(value): int(count) for value, count in raw["counts"].items()},
                {str(s): tuple((int(a), int(b)) for a, b in spans) for s, spans in raw["spans"].items()},
                int(raw["timed"]),
                int(raw["logRatio"]),
                {int(status): int(count) for status, count in raw.get("leftOut", {}).items()},
                failed={str(why): int(count) for why, count in raw.get("failed", {}).items()},
                other_failed={str(why): int(count) for why, count in raw.get("otherFailed", {}).items()},
                folded=str(folded),
                folded_streams=int(streams),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BugError(f"a tally cannot be read ({type(error).__name__})", where="Tally") from None
        if any(abs(value) > GRID or count < 1 for value, count in tally.counts.items()):
            raise BugError("a tally counts what cannot be", where="Tally")
        return tally


def _luck(comparison: str, pair: Pair) -> float:
    """Return a uniform number in [0, 1), always the same one for a pair."""
    seed = f"{comparison}\n{pair.stream}\n{pair.number}".encode()
    return int.from_bytes(hashlib.sha256(seed).digest()[:6], "big") / float(1 << 48)


@dataclass(slots=True)
class _Streams:
    """The streams of a tally while pairs are added."""

    spans: dict[str, tuple[Span, ...]]
    folded: str
    count: int

    def came(self, request: Pair | LeftOut) -> bool:
        """Return whether ``request`` is new and may be counted; then it is added to ``spans``."""
        spans = self.spans.get(request.stream)
        extended = _joined(spans or (), request.number)
        if extended is None or (spans is None and request.stream <= self.folded):
            return False
        self.spans[request.stream] = extended
        while len(self.spans) > MAX_STREAMS:
            self.folded = min(self.spans)
            self.count += 1
            del self.spans[self.folded]
        return True

    def fields(self) -> dict[str, Any]:
        return {"spans": self.spans, "folded": self.folded, "folded_streams": self.count}


def _joined(spans: tuple[Span, ...], new: int) -> tuple[Span, ...] | None:
    """Return ``spans`` with one more number; None when it is in them already."""
    if any(first <= new <= last for first, last in spans):
        return None
    touching = [s for s in spans if s[1] + 1 == new or s[0] - 1 == new]
    first = min([new, *(s[0] for s in touching)])
    last = max([new, *(s[1] for s in touching)])
    joined = sorted([*(s for s in spans if s not in touching), (first, last)])
    if len(joined) > MAX_SPANS:
        joined = [(joined[0][0], joined[1][1]), *joined[2:]]
    return tuple(joined)


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
