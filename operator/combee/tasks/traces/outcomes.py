"""Reads how a recorded attempt ended from its row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from combee.tasks.traces.conversation import Row, whole

KEYS = ("outcome", "reward", "score", "success", "passed", "correct", "resolved")
"""fields that may state the outcome; the first one present counts, then those of the row's ``extra``."""
FEEDBACK = ("feedback", "reason", "explanation", "message")
RIGHT_FROM = 0.5
"""An attempt with at least this score is right."""
MAX_FEEDBACK = 4000
_RIGHT = frozenset(
    [
        "success",
        "succeeded",
        "successful",
        "pass",
        "passed",
        "correct",
        "right",
        "resolved",
        "solved",
        "ok",
        "true",
        "yes",
        "good",
        "done",
        "completed",
    ]
)
_WRONG = frozenset(
    [
        "failure",
        "fail",
        "failed",
        "unsuccessful",
        "wrong",
        "incorrect",
        "unresolved",
        "unsolved",
        "error",
        "false",
        "no",
        "bad",
        "timeout",
        "aborted",
    ]
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``score`` is in [0, 1], or None when the row has none; ``feedback`` is the text beside it."""

    score: float | None = None
    feedback: str = ""


def outcome_of(row: Row) -> Outcome:
    """Return the outcome that a row states: true or false, a number (cut to 0 to 1), a word, or an object of
    these."""
    score: float | None = None
    texts: list[str] = []
    for place in _places(row):
        for key in KEYS:
            if score is None and key in place:
                score, words = _score(place[key])
                texts += [words] if words else []
        texts += [whole(place[key]) for key in FEEDBACK[:1] if isinstance(place.get(key), str)]
    return Outcome(score, " ".join(" ".join(texts).split())[:MAX_FEEDBACK])


def _places(row: Row) -> Iterator[Row]:
    yield row
    if isinstance(row.get("extra"), dict):
        yield row["extra"]


def _score(value: Any, depth: int = 0) -> tuple[float | None, str]:
    if isinstance(value, bool):
        return float(value), ""
    if isinstance(value, int | float | Decimal):
        return float(min(1, max(0, value))), ""
    if isinstance(value, str):
        word = value.strip().casefold()
        if word in _RIGHT or word in _WRONG:
            return float(word in _RIGHT), ""
        return None, whole(value)
    if isinstance(value, dict) and depth == 0:
        outcomes = [_score(value[key], 1) for key in KEYS if key in value]
        words = [whole(value[key]) for key in FEEDBACK if isinstance(value.get(key), str)]
        score = next((score for score, _ in outcomes if score is not None), None)
        return score, " ".join([*(text for _, text in outcomes if text), *words])
    return None, ""
