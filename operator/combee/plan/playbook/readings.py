"""What a canary of mode Prometheus was told last, kept beside its tally; and the sentence that it makes. Pure.

A reading is what one Job brought: which windows it asked for, what both versions had in them, or why the answer
cannot be used. The Job hands it over in a ConfigMap, and a ConfigMap can be anybody's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from combee.algo.canary import Rules, Tally, judge
from combee.algo.verdict import Judgement, Words
from combee.api.common import one_line
from combee.api.prometheus import Prometheus

Problem = Literal[
    "BadQuery",
    "Empty",
    "NotANumber",
    "OutOfRange",
    "SeveralSeries",
    "TooLarge",
    "Unreadable",
    "WrongType",
]
MAX_DETAIL = 200
LARGEST_WINDOW = 2**40
_UNITS = {"Seconds": "s", "Milliseconds": "ms"}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an answer cannot be used."""

    problem: Problem
    what: Literal["score", "latency"]
    side: Literal["active", "candidate"]
    detail: str = ""
    """how many series, which type, which number, the server's own words: one line."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at windows ``first`` to ``last``. Means are (candidate, active), in the query's own unit."""

    first: int
    last: int
    at: float
    """seconds since 1970."""
    compared: int
    """windows in which both versions had all that was asked."""
    trouble: Trouble | None = None
    score: tuple[float, float] | None = None
    latency: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for a status or a ConfigMap."""
        told: dict[str, Any] = {
            "first": self.first,
            "last": self.last,
            "at": round(self.at, 3),
            "compared": self.compared,
        }
        if self.trouble is not None:
            one = self.trouble
            told["trouble"] = [one.problem, one.what, one.side, one.detail]
        for name, means in (("score", self.score), ("latency", self.latency)):
            if means is not None:
                told[name] = [float(f"{mean:.8g}") for mean in means]
        return told

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Reading:
        """Read what ``to_json`` wrote. ValueError, TypeError or KeyError when it is something else."""
        first, last, compared = (_count(raw[name]) for name in ("first", "last", "compared"))
        at = _finite(raw["at"])
        if not first <= last < LARGEST_WINDOW or compared > last - first + 1:
            raise ValueError("a reading that cannot be")
        trouble = raw.get("trouble")
        return cls(
            first,
            last,
            at,
            compared,
            None if trouble is None else _trouble(trouble),
            _means(raw.get("score")),
            _means(raw.get("latency")),
        )


def read_reading(text: str) -> Reading | None:
    """The reading in ``text``; None when it holds none that can be."""
    try:
        return Reading.from_json(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def latest(before: Reading | None, came: Iterable[Reading], over: int) -> Reading | None:
    """The one that asked for the latest windows. ``over``: windows that are over by now; a reading of others
    cannot be, and counts for nothing."""
    known = [one for one in (before, *came) if one is not None and one.last < over]
    return max(known, key=lambda one: (one.last, one.at), default=None)


def words_of(asked: Prometheus) -> Words:
    """What windows and differences are called."""
    score = asked.score
    ends = (score.lowest, score.highest)
    if score.unit == "Points" and ends[0] is not None and ends[1] is not None:
        return Words("window", "windows", ends[1] - ends[0], "points")
    return Words("window", "windows", 100.0 if score.unit == "Percent" else 1.0, score.unit.lower())


def judge_reading(
    asked: Prometheus, tally: Tally, reading: Reading | None, rules: Rules, elapsed: float
) -> Judgement:
    """What the windows say, and what the last reading does: an Error says what to do, and nothing passes on it; the
    test goes on until the deadline."""
    said = judge(tally, rules, elapsed, words=words_of(asked))
    said = replace(said, message=said.message + _lately(asked, tally, reading))
    if reading is None or reading.trouble is None or said.outcome == "Failed":
        return said
    sentence = wrong(asked, reading.trouble)
    if elapsed >= rules.deadline_seconds:
        over = "" if said.outcome == "Inconclusive" else "the deadline is over; "
        message = f"{said.message}; {over}{sentence}"
        return replace(said, outcome="Inconclusive", reason="DeadlineExceeded", message=message, final=True)
    return replace(
        said, outcome="Error", reason="QueryError", message=f"{sentence}; {said.message}", final=False
    )


def wrong(asked: Prometheus, trouble: Trouble) -> str:
    """What is wrong with an answer, and what to do."""
    kind, detail = trouble.problem, trouble.detail
    if kind == "OutOfRange" and trouble.what == "latency":
        said = f"gives {detail}, and no time is below 0: correct it"
    elif kind == "OutOfRange":
        said = f"gives {detail}, which is outside of its unit ({_scale(asked)}): correct query or unit"
    else:
        said = {
            "BadQuery": f"is refused ({detail}): correct it",
            "Empty": "gives no series: is this version measured, and do the labels fit?",
            "NotANumber": "gives NaN or an infinity, mostly 0 / 0: divide by (... > 0), so that a window without "
            "requests gives nothing",
            "SeveralSeries": f"gives {detail} series: make one of them, as sum(...) does",
            "TooLarge": "gives more than is read: make one series of it, as sum(...) does",
            "Unreadable": f"gives what is no answer of Prometheus ({detail}): see canary.prometheus.url",
            "WrongType": f"gives a {detail} where one number at a time is needed: correct it",
        }[kind]
    return f"the {trouble.what} query of the {trouble.side} version {said}"


def _scale(asked: Prometheus) -> str:
    score = asked.score
    if score.unit == "Points":
        return f"Points, {score.lowest:g} to {score.highest:g}"
    return f"{score.unit}, 0 to {100 if score.unit == 'Percent' else 1}"


def _lately(asked: Prometheus, tally: Tally, reading: Reading | None) -> str:
    """The last reading's numbers with their units, and how many windows are left out."""
    if reading is None:
        return ""
    parts = []
    if reading.score is not None:
        unit = words_of(asked).unit
        parts.append(f"{_amount(reading.score[0])} against {_amount(reading.score[1])} {unit}")
    if reading.latency is not None and asked.latency is not None:
        unit = _UNITS[asked.latency.unit]
        parts.append(f"{_amount(reading.latency[0])} against {_amount(reading.latency[1])} {unit}")
    count = f"last {reading.compared:,} window{'' if reading.compared == 1 else 's'}"
    said = f"; {count}: {', '.join(parts)}" if parts else ""
    gone = reading.last + 1 - tally.pairs
    are = "window is" if gone == 1 else "windows are"
    return f"{said}; {gone:,} {are} left out, for want of a number" if gone > 0 else said


def _amount(value: float) -> str:
    return f"{value:.4g}"


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("not a number")
    return float(value)


def _means(raw: Any) -> tuple[float, float] | None:
    if raw is None:
        return None
    candidate, active = raw
    return _finite(candidate), _finite(active)


def _trouble(raw: Any) -> Trouble:
    problem, what, side, detail = raw
    if problem not in get_args(Problem) or what not in ("score", "latency"):
        raise ValueError("no trouble that is known")
    if side not in ("active", "candidate") or not isinstance(detail, str):
        raise ValueError("no trouble that is known")
    return Trouble(problem, what, side, one_line(detail, MAX_DETAIL))
