"""What came in one canary, as counts: each judged pair once, in any order, in a few kilobytes of JSON.

A pair is one request answered by both versions and scored by the evaluator; its *difference* is the
candidate's score minus the other's, in [-1, 1]. The tally is the whole state of a canary: the same for any
order of arrival (within MAX_SPANS gaps), and each pair counts once however often it is handed in.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from combee.algo.blocks import Blocks, Grid
from combee.algo.sequence import GRID, on_grid
from combee.errors import BugError

MAX_STREAMS = 100
"""most streams whose numbers are remembered. A further one replaces the oldest, by name: the pairs of that
stay counted, and it can add no more."""
MAX_SPANS = 24
"""most stretches of numbers per stream. With more, the lowest gap is closed and its numbers are left out. So
number pairs as they are handed in, not requests."""
WHY_FAILED = re.compile(r"[1-9][0-9]{2}|timeout|too long|no answer")
"""the reasons that may be given for a missing answer."""
REPEATED = 0
"""not a status: a request of a conversation or cluster that has its pair already."""
UNJUDGED = 1
"""not a status: a pair of answers on which the evaluator gave no verdict."""


Expense = Literal["latency", "cost"]
"""What an answer takes: time, and tokens."""
EXPENSES: tuple[Expense, ...] = get_args(Expense)


@dataclass(frozen=True, slots=True)
class Pair:
    """One judged request. (stream, number) identifies it within a comparison.

    ``stream``: who numbered it (a gateway's pod, a Job); ``number`` from 0. ``latency_ratio``: the seconds of
    the candidate's answer over the other's; ``cost_ratio``: what it cost, prompt and answer, over what the
    other's did; None where not measured.
    """

    stream: str
    number: int
    difference: float
    latency_ratio: float | None = None
    failed: str = ""
    """why one of the answers is missing: a status, or another reason. It is the candidate's where the
    difference is -1, and the other's where it is 1."""
    time: float | None = None
    """when it was asked, in seconds since 1970; None where that is not known."""
    cost_ratio: float | None = None

    def ratio(self, expense: Expense) -> float | None:
        """Return how many times as much of it the candidate's answer took; None where not measured."""
        return self.latency_ratio if expense == "latency" else self.cost_ratio


@dataclass(frozen=True, slots=True)
class Ratios:
    """The ratios of an expense that came."""

    count: int = 0
    log_sum: int = 0
    """the sum of their logarithms in whole millionths, so that order does not matter."""

    @property
    def mean(self) -> float | None:
        """The geometric mean; None while there are none."""
        return math.exp(self.log_sum / 1e6 / self.count) if self.count else None

    def plus(self, ratios: Iterable[float]) -> Ratios:
        """Return them with more. BugError for one that cannot be."""
        logs = []
        for ratio in ratios:
            if not 0 < ratio < math.inf:
                raise BugError(f"a ratio of {ratio} cannot be", where="Ratios.plus")
            logs.append(round(1e6 * math.log(ratio)))
        return Ratios(self.count + len(logs), self.log_sum + sum(logs))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A request that makes no pair. (stream, number) identifies it as in ``Pair``."""

    stream: str
    number: int
    status: int
    """the upstream's status; 200 for an unusable answer; REPEATED for a request of a conversation or a
    cluster that has its pair; UNJUDGED where there are answers and no verdict."""


Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Tally:
    """The data received in one canary. Created by ``Tally()`` and ``with_pairs``; read and written as
    JSON."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """difference in hundredths -> number of pairs."""
    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    """stream -> first and last numbers of the stretches received, ascending, with gaps between them."""
    expenses: Mapping[Expense, Ratios] = field(default_factory=lambda: dict.fromkeys(EXPENSES, Ratios()))
    """what the candidate's answers took, as multiples of the other's."""
    left_out: Mapping[int, int] = field(default_factory=dict)
    """``LeftOut.status`` -> number of requests; they are in ``spans`` and make no pairs."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """reason -> pairs in which only the candidate gave no answer; they are in ``counts``, too."""
    other_failed: Mapping[str, int] = field(default_factory=dict)
    """reason -> pairs in which only the other version gave no answer."""
    folded: str = ""
    """the last stream whose numbers were dropped; streams up to it that are not in ``spans`` are ignored."""
    folded_streams: int = 0
    blocks: Blocks = field(default_factory=Blocks)
    """the pairs by time, as far as it is known."""

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Mean difference; 0 without pairs."""
        return sum(v * n for v, n in self.counts.items()) / GRID / self.pairs if self.counts else 0.0

    @property
    def variance(self) -> float:
        """Variance of the differences; 0 without pairs."""
        if not self.counts:
            return 0.0
        square = sum(v * v * n for v, n in self.counts.items()) / GRID**2 / self.pairs
        return max(0.0, square - self.mean**2)

    def with_pairs(self, comparison: str, pairs: Iterable[Pair], grid: Grid | None = None) -> Tally:
        """Return a tally with those of ``pairs`` that are not in it yet. ``comparison`` seeds the rounding;
        ``grid``: where the blocks lie, None where there are none.

        BugError for a difference outside [-1, 1], a negative number or an impossible ratio.
        """
        counts, streams = dict(self.counts), _Streams(dict(self.spans), self.folded, self.folded_streams)
        new: list[Pair] = []
        failed, other_failed = dict(self.failed), dict(self.other_failed)
        placed: list[tuple[int, int]] = []
        for pair in sorted(pairs, key=lambda pair: (pair.stream, pair.number)):
            if pair.number < 0:
                raise BugError(f"pair {pair} cannot be", where="Tally.with_pairs")
            if pair.failed and abs(pair.difference) != 1:
                raise BugError(f"pair {pair} without an answer cannot be", where="Tally.with_pairs")
            value = on_grid(pair.difference, _luck(comparison, pair))
            if not streams.came(pair):
                continue
            new.append(pair)
            counts[value] = counts.get(value, 0) + 1
            if grid is not None and (block := grid.block(pair.time)) is not None:
                placed.append((block, value))
            if pair.failed:
                failures = failed if pair.difference < 0 else other_failed
                failures[pair.failed] = failures.get(pair.failed, 0) + 1
        ratios = {of: [ratio for pair in new if (ratio := pair.ratio(of)) is not None] for of in EXPENSES}
        return replace(
            self,
            **streams.fields(),
            counts=counts,
            expenses={of: self.expenses[of].plus(ratios[of]) for of in EXPENSES},
            failed=failed,
            other_failed=other_failed,
            blocks=self.blocks.plus(placed),
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
        latency, cost = (self.expenses[of] for of in EXPENSES)
        return {
            "counts": {str(value): self.counts[value] for value in sorted(self.counts)},
            "spans": {stream: [list(s) for s in self.spans[stream]] for stream in sorted(self.spans)},
            "timed": latency.count,
            "logRatio": latency.log_sum,
            **({"costs": [cost.count, cost.log_sum]} if cost.count else {}),
            **({"folded": [self.folded, self.folded_streams]} if self.folded else {}),
            **({"blocks": self.blocks.to_json()} if self.blocks.sums else {}),
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
            costed, log_cost = raw.get("costs", (0, 0))
            tally = cls(
                {int(value): int(count) for value, count in raw["counts"].items()},
                {str(s): tuple((int(a), int(b)) for a, b in spans) for s, spans in raw["spans"].items()},
                {
                    "latency": Ratios(int(raw["timed"]), int(raw["logRatio"])),
                    "cost": Ratios(int(costed), int(log_cost)),
                },
                {int(status): int(count) for status, count in raw.get("leftOut", {}).items()},
                failed={str(why): int(count) for why, count in raw.get("failed", {}).items()},
                other_failed={str(why): int(count) for why, count in raw.get("otherFailed", {}).items()},
                folded=str(folded),
                folded_streams=int(streams),
                blocks=Blocks.from_json(raw["blocks"]) if "blocks" in raw else Blocks(),
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
