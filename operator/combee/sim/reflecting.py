"""Reflects on a trajectory: draws its lessons, and votes on the bullets shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from combee.sim import draws, lessons
from combee.sim.keyfile import Question
from combee.sim.params import Law
from combee.sim.reading import Support
from combee.sim.rulebook import Rulebook

MAX_TAGS = 8
WRONG_PLANT = "@wrong"


@dataclass(frozen=True, slots=True)
class Lessons:
    """``entries`` are (short lesson, key of its longer version; '' = verbatim)."""

    entries: tuple[tuple[str, str], ...]
    tags: tuple[tuple[str, str], ...]
    """votes on bullets: (id, helpful | harmful | neutral)."""


def states(text: str, value: str) -> bool:
    """Return whether a text holds a value as a word of its own; a list may have blanks around its commas.

    >>> states("predicted 12.37.", "12.37"), states("112.37", "12.37")
    (True, False)
    >>> states("predicted: A, B", "A,B"), states("A,BC", "A,B")
    (True, False)
    """
    if "," in value:
        return _list_pattern(value).search(text) is not None
    position = text.find(value)
    while position >= 0:
        end = position + len(value)
        before, after = text[position - 1 : position], text[end : end + 2]
        if not re.match(r"[\w.]", before) and not re.match(r"\w|\.\d", after):
            return True
        position = text.find(value, position + 1)
    return False


@lru_cache(maxsize=4096)
def _list_pattern(value: str) -> re.Pattern[str]:
    """Return the pattern of a list of values; compiling it costs more than searching with it."""
    parts = r"\s*,\s*".join(re.escape(part) for part in value.split(","))
    return re.compile(rf"(?<![\w.]){parts}(?!\w)")


def missed(trajectory: str, question: Question) -> bool:
    """Return whether the trajectory went wrong: it has the typical mistake, or lacks the right value."""
    return states(trajectory, question.mistake) or not states(trajectory, question.target)


def reflect(
    question: Question,
    wrong: bool,
    support: Support,
    book: Rulebook,
    law: Law,
    seed: int,
    ordinal: int,
    plants: Mapping[str, str],
) -> Lessons:
    """Return the lessons of one trajectory, keyed by (example, repeat).

    A missed unknown rule is recovered with ``law.recovery``, a share of the rules always wrongly; the other
    lessons are fillers, a share of which states the topic's wrong rule; a planted lesson comes in addition.
    """
    rule, task = book.rule(question.topic), book.law(question.topic)
    key = (seed, "reflect", question.id, ordinal)
    count = int(task.lessons) + (draws.unit(*key, "count") < task.lessons - int(task.lessons))
    entries: list[tuple[str, str]] = []

    def state(side: str, *luck: str | int) -> None:
        entries.append((book.rule_entry(rule, side, *luck), f"{rule.topic} {side}"))

    if wrong and not rule.known and draws.unit(*key, "recover") < law.recovery:
        misled = draws.unit(seed, "misled", rule.topic) < law.misled_share
        state("wrong" if misled else "right", *key)
    while len(entries) < count:
        index = len(entries)
        if draws.unit(*key, "wrong", index) < law.wrong_share:
            state("wrong", *key, index)
        else:
            note = lessons.note(*key, index)
            entries.append((book.note_entry(rule.name, note, *key, index), note))
    for name in (question.id, question.topic, "*"):
        if plant := plants.get(name):
            if plant == WRONG_PLANT:
                state("wrong", *key, "plant")
            else:
                entries.append((plant, ""))
    tags = [(id_, "neutral" if wrong else "helpful") for id_ in support.right if id_]
    tags += [(id_, "harmful" if wrong else "neutral") for id_ in support.wrong if id_]
    return Lessons(tuple(entries), tuple(dict(tags[:MAX_TAGS]).items()))
