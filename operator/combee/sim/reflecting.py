"""Reflecting on a trajectory: what lessons are drawn, and how the bullets shown are voted on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from combee.sim import draws, lessons
from combee.sim.keyfile import Known
from combee.sim.params import Law
from combee.sim.reading import Support
from combee.sim.rulebook import Rulebook

MAX_TAGS = 8
WRONG_PLANT = "@wrong"


@dataclass(frozen=True, slots=True)
class Lessons:
    """``entries`` are (lesson in short, what its longer telling is drawn by; '' = verbatim)."""

    entries: tuple[tuple[str, str], ...]
    tags: tuple[tuple[str, str], ...]
    """votes on bullets: (id, helpful | harmful | neutral)."""


def states(text: str, value: str) -> bool:
    """Whether a text holds a value as a word of its own; a list with any blanks around its commas.

    >>> states("predicted 12.37.", "12.37"), states("112.37", "12.37")
    (True, False)
    >>> states("predicted: A, B", "A,B"), states("A,BC", "A,B")
    (True, False)
    """
    if "," in value:
        return _spelled(value).search(text) is not None
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        before, after = text[at - 1 : at], text[end : end + 2]
        if not re.match(r"[\w.]", before) and not re.match(r"\w|\.\d", after):
            return True
        at = text.find(value, at + 1)
    return False


@lru_cache(maxsize=4096)
def _spelled(value: str) -> re.Pattern[str]:
    """A pattern for a list; compiling it costs more than searching with it."""
    spelled = r"\s*,\s*".join(re.escape(part) for part in value.split(","))
    return re.compile(rf"(?<![\w.]){spelled}(?!\w)")


def missed(shown: str, known: Known) -> bool:
    """Whether the trajectory shown went wrong: its typical mistake is there, or the right value is not."""
    return states(shown, known.mistake) or not states(shown, known.target)


def reflect(
    known: Known,
    wrong: bool,
    support: Support,
    book: Rulebook,
    law: Law,
    seed: int,
    ordinal: int,
    plants: Mapping[str, str],
) -> Lessons:
    """The lessons of one trajectory, keyed by (example, repeat).

    A missed unknown rule is recovered with ``law.recovery``; the others are fillers, a share of
    which states the topic's wrong rule; a planted lesson comes on top.
    """
    rule, task = book.rule(known.topic), book.law(known.topic)
    key = (seed, "reflect", known.id, ordinal)
    count = int(task.lessons) + (draws.unit(*key, "count") < task.lessons - int(task.lessons))
    drawn: list[tuple[str, str]] = []

    def state(side: str, *luck: str | int) -> None:
        drawn.append((lessons.rule_entry(rule.name, rule.phrase(side), *luck), f"{rule.topic} {side}"))

    if wrong and not rule.known and draws.unit(*key, "recover") < law.recovery:
        state("right", *key)
    while len(drawn) < count:
        place = len(drawn)
        if draws.unit(*key, "wrong", place) < law.wrong_share:
            state("wrong", *key, place)
        else:
            code = lessons.note_code(*key, place)
            drawn.append((lessons.note_entry(rule.name, code, *key, place), code))
    for name in (known.id, known.topic, "*"):
        if plant := plants.get(name):
            if plant == WRONG_PLANT:
                state("wrong", *key, "plant")
            else:
                drawn.append((plant, ""))
    tags = [(id_, "neutral" if wrong else "helpful") for id_ in support.right if id_]
    tags += [(id_, "harmful" if wrong else "neutral") for id_ in support.wrong if id_]
    return Lessons(tuple(drawn), tuple(dict(tags[:MAX_TAGS]).items()))
