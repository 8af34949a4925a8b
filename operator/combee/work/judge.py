"""Pairs of answers, scored one answer at a time by a judge that is told nothing else.

The gateway keeps both answers to a request as one line of JSON. Here each is judged by itself, in an order
that a hash of the pair draws, and the difference of their scores makes the pair. Equal answers do not differ,
and no model is asked. Where one version gave no answer at all, the difference is 1 against it, and no model
is asked either. What cannot be judged is left out and never counts as a zero.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from combee.algo.tally import WHY_FAILED, Pair
from combee.errors import ContextLengthError, TransientError
from combee.jsonread import MALFORMED, read_json
from combee.methods.judging import shown_answer
from combee.methods.protocol import ParseError
from combee.times import seconds_of
from combee.work.asker import Asker
from combee.work.evaluator import ROLE, ask_verdict
from combee.work.pool import pooled
from combee.work.traffic.record import CLUSTER, MOST_TOKENS

STAGE = "judge"
RECORD_VERSION = 1
HOPELESS = 8
"""When this many calls failed for a passing reason and none was answered, the others are not tried."""
_LARGEST_RATIO = 1000.0
Key = tuple[str, int]
"""(stream, number) of a request."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A request and both answers, as the gateway kept them. (stream, number) is its name in a comparison."""

    stream: str
    number: int
    request: Mapping[str, Any]
    tested: Mapping[str, Any]
    against: Mapping[str, Any]
    latency_ratio: float | None = None
    """the seconds of the tested version's answer over those of the other's."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """side -> why it gave no answer; at most one side, since no pair can be made where both failed."""
    time: float | None = None
    """when it was asked, in seconds since 1970; None where the record does not say."""
    cost_ratio: float | None = None
    """the tokens of the tested version's prompt and answer over those of the other's."""

    def pair(self, difference: float, failed: str = "") -> Pair:
        """Return the pair of its answers, which differ by that much."""
        identity = self.stream, self.number
        return Pair(*identity, difference, self.latency_ratio, failed, self.time, self.cost_ratio)

    def __repr__(self) -> str:
        return f"Sampled({self.stream!r}, {self.number})"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A pair without a verdict. ``passing``: whether there may be one another time."""

    stream: str
    number: int
    why: str
    """the error's code."""
    passing: bool


def roots_of(comparison: str, request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a request has in common with others that one pair must stand for: hashes, others in each
    comparison, of its first user message, which all turns of a conversation begin with, and of its cluster.
    A request without either stands for itself.

    A cluster only joins requests: those that begin alike are of one root, whatever their clusters are.

    >>> first = {"role": "user", "content": "hello"}
    >>> turns = [first], [{"role": "system"}, first]
    >>> len({roots_of("comparison-1", {"messages": messages}) for messages in turns})
    1
    >>> len(roots_of("comparison-1", {"messages": [first], "cluster": "3fa9c1"}))
    2
    """
    named = [f"cluster\n{json.dumps(cluster)}"] if (cluster := request.get(CLUSTER)) else []
    messages = request.get("messages")
    for message in messages if isinstance(messages, Sequence) else ():
        if isinstance(message, Mapping) and message.get("role") == "user" and message.get("content"):
            named.insert(0, json.dumps(message["content"], sort_keys=True))
            break
    return tuple(hashlib.sha256(f"{comparison}\n{one}".encode()).hexdigest()[:16] for one in named)


def claims(holders: dict[str, Key], roots: Iterable[str], key: Key) -> bool:
    """Return whether a request counts: no other one holds any of its roots. Then it holds all of them."""
    roots = tuple(roots)
    if any(holders.get(root, key) != key for root in roots):
        return False
    holders |= dict.fromkeys(roots, key)
    return True


def in_hash_order(comparison: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], bool]]:
    """Sort ``rows`` by a hash of their first words, one for each beginning and cluster; then come the others,
    marked."""
    holders: dict[str, Key] = {}
    first, others = [], []
    for at, row in enumerate(rows):
        roots = roots_of(comparison, row) or (hashlib.sha256(f"{comparison}\n{at}".encode()).hexdigest(),)
        if claims(holders, roots, ("", at)):
            first.append((roots, at))
        else:
            others.append((row, True))
    return [*((rows[at], False) for _, at in sorted(first)), *others]


def read_samples(data: bytes, comparison: str) -> tuple[list[Sampled], int]:
    """Return the pairs of ``comparison`` in an object of the spool, and how many lines cannot be read."""
    samples = [_sample(line, comparison) for line in data.splitlines() if line.strip()]
    return [sample for sample in samples if sample is not None], samples.count(None)


def _sample(line: bytes, comparison: str) -> Sampled | None:
    try:
        raw = read_json(line)
        stream, number = raw["stream"], raw["number"]
        tested, against, request = raw["tested"], raw["against"], raw["request"]
        sides = {"tested": tested, "against": against}
        failed = {side: str(of["failed"]) for side, of in sides.items() if "failed" in of}
        answers = {side: {} if side in failed else of["answer"] for side, of in sides.items()}
        right = raw["version"] == RECORD_VERSION and raw["test"] == comparison
        ratio = _ratio(tested.get("seconds"), against.get("seconds"))
        cost_ratio = _ratio(*(tokens_of(answer) for answer in answers.values()))
    except MALFORMED:
        return None
    named = isinstance(stream, str) and 0 < len(stream) <= 128 and type(number) is int and 0 <= number < 2**53
    known = len(failed) < 2 and all(map(WHY_FAILED.fullmatch, failed.values()))
    mappings = all(isinstance(part, Mapping) for part in (*answers.values(), request))
    if not (right and named and known and mappings):
        return None
    time = _time(raw.get("time"))
    both = answers["tested"], answers["against"]
    return Sampled(stream, number, request, *both, ratio, failed, time, cost_ratio)


def _time(written: Any) -> float | None:
    try:
        return seconds_of(written)
    except (ValueError, TypeError, OverflowError):
        return None


def _ratio(tested: Any, against: Any) -> float | None:
    seconds = [float(value) if isinstance(value, int | float) else 0.0 for value in (tested, against)]
    if not all(0 < value < math.inf for value in seconds):
        return None
    return min(_LARGEST_RATIO, max(1 / _LARGEST_RATIO, seconds[0] / seconds[1]))


def tokens_of(answer: Mapping[str, Any]) -> int | None:
    """Return the tokens of an answer and of its prompt; None where the server did not say them.

    >>> tokens_of({"content": "4", "usage": {"prompt_tokens": 30, "completion_tokens": 2}}), tokens_of({})
    (32, None)
    """
    usage = answer.get("usage")
    counts = [usage.get(f"{part}_tokens") for part in ("prompt", "completion")] if usage else [None]
    known = [count for count in counts if type(count) is int and 0 <= count <= MOST_TOKENS]
    return sum(known) if len(known) == len(counts) else None


async def judge_all(
    asker: Asker, samples: Iterable[Sampled], comparison: str, criteria: Sequence[str] = (), *, width: int
) -> list[Pair | Unjudged]:
    """Return a verdict on each sample, ``width`` at once, in their order; by the criteria, where there are
    any.

    Raises what every other pair would meet, too: EndpointError (a wrong key, an unknown model, nobody there),
    and TransientError when HOPELESS calls failed and none was answered.
    """
    failed: list[TransientError] = []
    rows_before = len(asker.rows)

    async def judge(numbered: tuple[int, Sampled]) -> Pair | Unjudged:
        chain, sample = numbered
        if len(failed) >= HOPELESS and len(asker.rows) == rows_before:
            raise failed[0]
        try:
            return await _judge(asker, sample, comparison, criteria, chain)
        except TransientError as error:
            failed.append(error)
            return Unjudged(sample.stream, sample.number, error.code, passing=True)
        except (ContextLengthError, ParseError) as error:
            return Unjudged(sample.stream, sample.number, error.code, passing=False)

    return await pooled(list(enumerate(samples)), judge, width=width)


async def _judge(asker: Asker, sample: Sampled, comparison: str, criteria: Sequence[str], chain: int) -> Pair:
    for side, why in sample.failed.items():
        return sample.pair(-1.0 if side == "tested" else 1.0, why)
    if shown_answer(sample.tested) == shown_answer(sample.against):
        return sample.pair(0.0)
    scores = {}
    for side in drawn_order(comparison, sample.stream, sample.number):
        answer = sample.tested if side == "tested" else sample.against
        scores[side] = await ask_verdict(
            asker, ROLE, sample.request, answer, criteria, stage=STAGE, chain=chain
        )
    return sample.pair(scores["tested"].score - scores["against"].score)


def drawn_order(comparison: str, stream: str, number: int) -> Sequence[str]:
    """Return which answer comes first: a coin that the pair's identity tosses."""
    seed = hashlib.sha256(f"{comparison}\n{stream}\n{number}\norder".encode()).digest()
    return ("tested", "against") if seed[0] & 1 else ("against", "tested")
