"""What a canary asks Prometheus, window by window, and how the answers are compared. Pure.

Window k of a canary ends at ``begins + (k + 1) windowSeconds``. Both queries are evaluated there, for both
versions; a window in which all of them give a number makes one pair: the candidate's score minus the active
version's, as a share of the scale. Every window is asked for once. Nothing in an answer is taken for granted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from combee.algo.power import least_pairs
from combee.algo.tally import EXPENSES, Expense, Pair
from combee.algo.verdict import number
from combee.api.canary import Canary
from combee.api.common import one_line
from combee.api.prometheus import WINDOW, CostQuery, LatencyQuery, Prometheus, ScoreQuery
from combee.jsonread import read_json
from combee.plan.playbook.readings import Measure, Reading, Trouble

STREAM = "prometheus"
"""The stream of the pairs; their numbers are those of windows."""
MOST_WINDOWS = 500
"""The most windows asked for at once: Prometheus gives at most 11,000 points of a series."""
SHORT = 12
"""The number of digits of a digest that $(version) stands for."""
TOLERANCE = 0.1
"""The share of the scale by which a score may be outside and count as its end: ``increase`` extrapolates."""
LARGEST_RATIO = 1000.0
MAX_DETAIL = 200
"""The most bytes of a server's own words that are repeated."""
_QUOTED = re.compile(r"""\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`""")
_RANGE = re.compile(r"\[\s*([^\]:\s]+)")

Side = Literal["active", "candidate"]
Values = Mapping[int, float]
"""Window -> number; NaN and infinities are kept as they came."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question about one version."""

    what: Measure
    side: Side
    text: str

    def trouble(self, problem: Any, detail: str = "") -> Trouble:
        """Return the trouble that its answer cannot be used."""
        return Trouble(problem, self.what, self.side, one_line(detail, MAX_DETAIL))


def queries(prometheus: Prometheus, candidate: str, active: str) -> tuple[Query, ...]:
    """Return the questions, for two digests."""
    sides: tuple[tuple[Side, str, str], ...] = (
        ("candidate", candidate, prometheus.sides.candidate),
        ("active", active, prometheus.sides.active),
    )
    return tuple(
        Query(measure, side, _filled(text, prometheus, digest, name))
        for measure, text in _texts(prometheus)
        for side, digest, name in sides
    )


def tells_versions_apart(prometheus: Prometheus) -> bool:
    """Return whether each query selects a version by its digest, and not only by the side that it is on.

    >>> score = {"query": "good{role='$(side)'}", "unit": "Ratio"}
    >>> tells_versions_apart(Prometheus.model_validate({"url": "http://p", "score": score}))
    False
    """
    return all("$(version)" in text or "$(digest)" in text for _, text in _texts(prometheus))


def _texts(prometheus: Prometheus) -> list[tuple[Measure, str]]:
    parts: tuple[tuple[Measure, ScoreQuery | LatencyQuery | CostQuery | None], ...] = (
        ("score", prometheus.score),
        ("latency", prometheus.latency),
        ("cost", prometheus.cost),
    )
    return [(measure, query.query) for measure, query in parts if query is not None]


def _filled(text: str, prometheus: Prometheus, digest: str, side: str) -> str:
    text = text.replace("$(digest)", digest).replace("$(version)", digest[:SHORT])
    return text.replace("$(side)", side).replace(WINDOW, f"{prometheus.window_seconds}s")


def begins_at(since: float, prometheus: Prometheus) -> int:
    """Return when window 0 of a canary that began at ``since`` begins: after the labels' delay, at a multiple
    of the window's length, since some servers move the times they are asked about to such multiples."""
    first = since + prometheus.label_delay_seconds
    return math.ceil(first / prometheus.window_seconds) * prometheus.window_seconds


def end_of(prometheus: Prometheus, begins: int, window: int) -> int:
    """Return when a window ends, in seconds since 1970."""
    return begins + (window + 1) * prometheus.window_seconds


def windows_over(prometheus: Prometheus, begins: int, now: float) -> int:
    """Return how many windows are over, their delay included."""
    return max(0, math.floor((now - prometheus.delay_seconds - begins) / prometheus.window_seconds))


def windows(prometheus: Prometheus, begins: int, first: int, now: float) -> range:
    """Return the windows from ``first`` on that may be asked for now, at most MOST_WINDOWS."""
    return range(first, max(first, min(windows_over(prometheus, begins, now), first + MOST_WINDOWS)))


def ready_seconds(prometheus: Prometheus, begins: int, first: int, now: float) -> float:
    """Return the seconds until window ``first`` may be asked for."""
    return max(0.0, end_of(prometheus, begins, first) + prometheus.delay_seconds - now)


def read_answer(query: Query, content: bytes, times: Mapping[int, int]) -> Values | Trouble:
    """Read the numbers of a range query's answer. ``times``: the seconds since 1970 asked for -> window."""
    try:
        raw = read_json(content)
        if raw.get("status") == "error":
            return query.trouble("BadQuery", str(raw.get("error")))
        data = raw["data"]
        kind, result = data["resultType"], data["result"]
        if raw["status"] != "success" or raw.get("isPartial") is True:
            return query.trouble("Unreadable", "the answer is not whole")
        if kind != "matrix":
            return query.trouble("WrongType", str(kind))
        if len(result) > 1:
            return query.trouble("SeveralSeries", str(len(result)))
        if not result:
            return query.trouble("Empty")
        if "values" not in result[0]:
            return query.trouble("WrongType", "histogram" if "histograms" in result[0] else "no values")
        return {times[_whole(time)]: _number(value) for time, value in result[0]["values"]}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError):
        return query.trouble("Unreadable", "not the JSON of a range query")


def _whole(time: Any) -> int:
    """Return a time as a number. Raises ValueError between two seconds: windows end on whole ones."""
    if isinstance(time, bool) or not isinstance(time, int | float) or time != math.floor(time):
        raise ValueError("a time that was not asked for")
    return int(time)


def _number(value: Any) -> float:
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError("a number that is not text")
    return float(value)


def ends_of(score: ScoreQuery) -> tuple[float, float]:
    """Return the least and the greatest number of a score's unit."""
    if score.unit == "Points" and score.lowest is not None and score.highest is not None:
        return score.lowest, score.highest
    return (0.0, 100.0) if score.unit == "Percent" else (0.0, 1.0)


def share_of(score: ScoreQuery, value: float) -> float | None:
    """Return a score as a share of its scale, 1 for the best; None where it is outside of the scale.

    >>> query = ScoreQuery(query="$(version)", unit="Percent", better="Lower")
    >>> share_of(query, 25.0), share_of(query, 104.0), share_of(query, 150.0)
    (0.75, 0.0, None)
    """
    low, high = ends_of(score)
    share = (value - low) / (high - low)
    if not -TOLERANCE <= share <= 1 + TOLERANCE:
        return None
    share = min(1.0, max(0.0, share))
    return 1.0 - share if score.better == "Lower" else share


def compare(
    prometheus: Prometheus,
    answers: Mapping[Query, Values | Trouble],
    looked_at: range,
    at: float,
    begins: int,
) -> tuple[list[Pair], Reading]:
    """Return the pairs of the windows ``looked_at``, and the reading of them. ``at``: when they were asked
    for; ``begins``: when window 0 began.

    There are no pairs where an answer cannot be used. Windows that lack a number are left out. A number that
    is NaN or infinite is trouble besides: other windows count, and nothing passes on this reading.
    """
    first, last = looked_at[0], looked_at[-1]
    troubles = [answer for answer in answers.values() if isinstance(answer, Trouble)]
    if troubles:
        return [], Reading(first, last, at, 0, troubles[0])
    values = {(q.what, q.side): answer for q, answer in answers.items() if not isinstance(answer, Trouble)}
    for query in answers:
        wrong = next(
            (v for v in values[query.what, query.side].values() if _outside(prometheus, query, v)), None
        )
        if wrong is not None:
            return [], Reading(first, last, at, 0, query.trouble("OutOfRange", f"{wrong:g}"))
    odd = next((q for q in answers if not all(map(math.isfinite, values[q.what, q.side].values()))), None)
    trouble = None if odd is None else odd.trouble("NotANumber")
    numbers = values.values()
    complete = [w for w in looked_at if all(math.isfinite(by.get(w, math.nan)) for by in numbers)]
    pairs = [
        replace(_pair(prometheus, values, window), time=begins + window * prometheus.window_seconds)
        for window in complete
    ]
    means = {measure: _means(values, measure, complete) for measure, _ in _texts(prometheus)}
    return pairs, Reading(first, last, at, len(pairs), trouble, **means)


def query_warnings(canary: Canary, prometheus: Prometheus) -> tuple[str, ...]:
    """Return what the canary can hardly get: enough windows in time, and windows that do not overlap."""
    warnings = []
    counted = max(0, canary.deadline_seconds - prometheus.label_delay_seconds)
    expected, seconds = counted // prometheus.window_seconds, f"{prometheus.window_seconds} s"
    least = least_pairs(canary.epsilon)
    if counted < canary.duration_seconds:
        cause = f"canary.prometheus.labelDelaySeconds {prometheus.label_delay_seconds:,}"
        warnings.append(f"{cause}: durationSeconds begins after it, and ends after deadlineSeconds")
    if least is None:
        warnings.append("canary.epsilon 0: no number of windows would show an equal candidate to be no worse")
    elif least > expected:
        demand = f"{least:,} windows at least would show an equal candidate to be no worse"
        advice = "take a larger epsilon, shorter windows or a later deadline"
        supply = f"{expected:,} of {seconds} end before the deadline"
        warnings.append(f"canary.epsilon {number(canary.epsilon)}: {demand}, and {supply}: {advice}")
    if canary.min_samples > expected:
        windows = f"{expected:,} windows of {seconds} end before the deadline"
        warnings.append(f"canary.minSamples {canary.min_samples:,}: {windows}")
    for measure, text in _texts(prometheus):
        if ranges := sorted(set(_RANGE.findall(_QUOTED.sub("", text))) - {WINDOW}):
            cause = f"canary.prometheus.{measure}.query looks back over {', '.join(ranges)}"
            effect = "windows overlap, and the chance of a false promotion is not bounded"
            warnings.append(f"{cause}: where that is more than a window, {effect}; write [{WINDOW}]")
    return tuple(warnings)


def _outside(prometheus: Prometheus, query: Query, value: float) -> bool:
    if not math.isfinite(value):
        return False
    return share_of(prometheus.score, value) is None if query.what == "score" else value < 0


def _pair(prometheus: Prometheus, values: Mapping[tuple[Any, Any], Values], window: int) -> Pair:
    shares = [share_of(prometheus.score, values["score", side][window]) for side in ("candidate", "active")]
    candidate, active = (0.0 if share is None else share for share in shares)
    ratios = {of: _ratio(values, of, window) for of in EXPENSES if (of, "candidate") in values}
    latency, cost = (ratios.get(of) for of in EXPENSES)
    return Pair(STREAM, window, candidate - active, latency, cost_ratio=cost)


def _ratio(values: Mapping[tuple[Any, Any], Values], of: Expense, window: int) -> float | None:
    """Return how many times as much of an expense the candidate took; None where nothing can be told."""
    more, usual = (values[of, side][window] for side in ("candidate", "active"))
    if more > 0 and usual > 0:
        return min(LARGEST_RATIO, max(1 / LARGEST_RATIO, more / usual))
    # Nothing takes nothing at all: a zero is less than the service can tell.
    return 1.0 if more == usual else None


def _means(
    values: Mapping[tuple[Any, Any], Values], what: str, complete: Sequence[int]
) -> tuple[float, float] | None:
    """Return the candidate's mean and the active version's, over the windows compared."""
    if not complete:
        return None
    candidate, active = (
        math.fsum(values[what, side][window] for window in complete) / len(complete)
        for side in ("candidate", "active")
    )
    return candidate, active
