"""The last answer to a canary of mode Prometheus, kept beside its tally, and the sentence for people. Pure.

A reading is what one Job brought: which windows it asked for, what both versions had in them, or why the
answer cannot be used. The Job hands it over in a ConfigMap, and anybody may have written a ConfigMap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal, get_args

from combee.algo.canary import Rules, tally_verdict
from combee.algo.tally import Tally
from combee.algo.verdict import Judgement, Words
from combee.api.common import one_line
from combee.api.prometheus import Prometheus
from combee.jsonread import MALFORMED, finite, read_json

Measure = Literal["score", "latency", "cost"]
Problem = Literal[
    "BadQuery", "Empty", "NotANumber", "OutOfRange", "SeveralSeries", "TooLarge", "Unreadable", "WrongType"
]
MAX_DETAIL = 200
LARGEST_WINDOW = 2**40
_UNITS = {"Seconds": "s", "Milliseconds": "ms"}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an answer cannot be used."""

    problem: Problem
    what: Measure
    side: Literal["active", "candidate"]
    detail: str = ""
    """how many series, which type, which number, or the server's own words, in one line."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at windows ``first`` to ``last``. Means are (candidate, active), in the query's own unit."""

    first: int
    last: int
    at: float
    """when it was made, in seconds since 1970."""
    compared: int
    """the number of windows in which both versions had all that was asked."""
    trouble: Trouble | None = None
    score: tuple[float, float] | None = None
    latency: tuple[float, float] | None = None
    cost: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"first": self.first, "last": self.last, "at": round(self.at, 3)}
        plain["compared"] = self.compared
        if self.trouble is not None:
            plain["trouble"] = list(astuple(self.trouble))
        for name, means in (("score", self.score), ("latency", self.latency), ("cost", self.cost)):
            if means is not None:
                plain[name] = [float(f"{mean:.8g}") for mean in means]
        return plain

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Reading:
        """Read what ``to_json`` wrote. Raises an error of MALFORMED for something else."""
        first, last, compared = (_count(raw[name]) for name in ("first", "last", "compared"))
        at = finite(raw["at"])
        if not first <= last < LARGEST_WINDOW or compared > last - first + 1:
            raise ValueError("a reading that cannot be")
        trouble = _trouble(raw["trouble"]) if raw.get("trouble") is not None else None
        means = (_means(raw.get(name)) for name in get_args(Measure))
        return cls(first, last, at, compared, trouble, *means)


def read_reading(text: str) -> Reading | None:
    """Return the reading in ``text``; None when it holds none that can be true."""
    try:
        return Reading.from_json(read_json(text))
    except MALFORMED:
        return None


def latest(before: Reading | None, came: Iterable[Reading], over: int) -> Reading | None:
    """Return the reading of the latest windows among the first ``over``, which are over by now."""
    usable = [reading for reading in (before, *came) if reading is not None and reading.last < over]
    return max(usable, key=lambda reading: (reading.last, reading.at), default=None)


def words_of(prometheus: Prometheus) -> Words:
    """Return what windows and differences are called."""
    score = prometheus.score
    ends = (score.lowest, score.highest)
    if score.unit == "Points" and ends[0] is not None and ends[1] is not None:
        return Words("window", "windows", ends[1] - ends[0], "points")
    return Words("window", "windows", 100.0 if score.unit == "Percent" else 1.0, score.unit.lower())


def reading_verdict(
    prometheus: Prometheus,
    tally: Tally,
    reading: Reading | None,
    rules: Rules,
    elapsed: float,
    *,
    against: str = "active",
) -> Judgement:
    """Return what the windows and the last reading say. An Error says what to do; nothing passes on it, and
    the canary goes on until the deadline."""
    result = tally_verdict(tally, rules, elapsed, against=against, words=words_of(prometheus))
    result = replace(result, message=result.message + _lately(prometheus, tally, reading))
    if reading is None or reading.trouble is None or result.outcome == "Failed":
        return result
    cause = wrong(prometheus, reading.trouble)
    if elapsed >= rules.deadline_seconds:
        over = "" if result.outcome == "Inconclusive" else "the deadline is over; "
        message = f"{result.message}; {over}{cause}"
        return replace(result, outcome="Inconclusive", reason="DeadlineExceeded", message=message, final=True)
    message = f"{cause}; {result.message}"
    return replace(result, outcome="Error", reason="QueryError", message=message, final=False)


def wrong(prometheus: Prometheus, trouble: Trouble) -> str:
    """Return what is wrong with an answer, and what to do."""
    kind, detail = trouble.problem, trouble.detail
    if kind == "OutOfRange" and trouble.what != "score":
        text = (
            f"gives {detail}, and no {'time' if trouble.what == 'latency' else 'cost'} is below 0: correct it"
        )
    elif kind == "OutOfRange":
        text = f"gives {detail}, which is outside of its unit ({_scale(prometheus)}): correct query or unit"
    else:
        text = {
            "BadQuery": f"is refused ({detail}): correct it",
            "Empty": "gives no series: is this version measured, and do the labels fit?",
            "NotANumber": "gives NaN or an infinity, mostly 0 / 0: divide by (... > 0), so that a window "
            "without requests gives nothing",
            "SeveralSeries": f"gives {detail} series: make one of them, as sum(...) does",
            "TooLarge": "gives more than is read: make one series of it, as sum(...) does",
            "Unreadable": f"gives what is no answer of Prometheus ({detail}): see canary.prometheus.url",
            "WrongType": f"gives a {detail} where one number at a time is needed: correct it",
        }[kind]
    return f"the {trouble.what} query of the {trouble.side} version {text}"


def _scale(prometheus: Prometheus) -> str:
    score = prometheus.score
    if score.unit == "Points":
        return f"Points, {score.lowest:g} to {score.highest:g}"
    return f"{score.unit}, 0 to {100 if score.unit == 'Percent' else 1}"


def _lately(prometheus: Prometheus, tally: Tally, reading: Reading | None) -> str:
    """Return the last reading's numbers with their units, and how many windows are left out."""
    if reading is None:
        return ""
    parts = []
    latency_unit = _UNITS[prometheus.latency.unit] if prometheus.latency is not None else ""
    units = words_of(prometheus).unit, latency_unit, "of cost"
    for means, unit in zip((reading.score, reading.latency, reading.cost), units, strict=True):
        if means is not None and unit:
            parts.append(f"{means[0]:.4g} against {means[1]:.4g} {unit}")
    count = f"last {reading.compared:,} window{'' if reading.compared == 1 else 's'}"
    numbers = f"; {count}: {', '.join(parts)}" if parts else ""
    omitted = reading.last + 1 - tally.pairs
    are = "window is" if omitted == 1 else "windows are"
    return f"{numbers}; {omitted:,} {are} left out, for want of a number" if omitted > 0 else numbers


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def _means(raw: Any) -> tuple[float, float] | None:
    if raw is None:
        return None
    candidate, active = raw
    return finite(candidate), finite(active)


def _trouble(raw: Any) -> Trouble:
    problem, what, side, detail = raw
    if problem not in get_args(Problem) or what not in get_args(Measure):
        raise ValueError("no trouble that is known")
    if side not in ("active", "candidate") or not isinstance(detail, str):
        raise ValueError("no trouble that is known")
    return Trouble(problem, what, side, one_line(detail, MAX_DETAIL))
