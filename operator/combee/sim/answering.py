"""Answering a question: known or read rules make the answer right, wrong ones are obeyed."""

from __future__ import annotations

from dataclasses import dataclass

from combee.sim import draws
from combee.sim.keyfile import Known
from combee.sim.params import Law
from combee.sim.reading import Support
from combee.sim.rulebook import Rulebook

MAX_CITED = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model says to a question. ``cited`` are ids of the lines that it went by."""

    text: str
    right: bool
    reasoning: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the prompt told about the question's rule."""

    support: Support
    tokens: int
    """of the artifact: the whole prompt but the question."""
    digest: str


def chance(known: Known, seen: Seen, book: Rulebook, law: Law, *key: str | int) -> tuple[float, str]:
    """(probability of a right answer, side heeded: 'right', 'wrong' or '').

    Read with 1/(1+(L/L0)^2); right against wrong: more lines win, a tie is a coin; the wrong anchor
    is obeyed always where the rule is unknown, else with ``law.obedience``.
    """
    rule, task = book.rule(known.topic), book.law(known.topic)
    base = task.top if rule.known else task.guess
    right, wrong = len(seen.support.right), len(seen.support.wrong)
    if not right and not wrong:
        return base, ""
    if draws.unit(*key, "read", known.topic) >= 1 / (1 + (seen.tokens / law.reading_length) ** 2):
        return base, ""
    if right > wrong or (right == wrong and draws.unit(*key, "coin") < 0.5):
        return task.top, "right"
    obeyed = not rule.known or draws.unit(*key, "obey") < law.obedience
    return (0.0, "wrong") if obeyed else (base, "")


def answer(known: Known, seen: Seen, book: Rulebook, law: Law, seed: int, ordinal: int) -> Answer:
    """The answer to one question; its luck is keyed by (example, repeat), and a share by the artifact too."""
    key = (seed, "answer", known.id, ordinal)
    likely, side = chance(known, seen, book, law, *key)
    shared = draws.unit(*key, "share") >= law.slip_share
    luck = draws.unit(*key, "luck") if shared else draws.unit(*key, "luck", seen.digest)
    right = luck < likely
    lines = {"right": seen.support.right, "wrong": seen.support.wrong}.get(side, ())
    cited = tuple(dict.fromkeys(id_ for id_ in lines if id_))[:MAX_CITED]
    named = book.rule(known.topic).name
    heeded = f" A note on {named} was taken into account." if side else ""
    reasoning = f"The question comes down to {named}: set the given figures in and work it out.{heeded}"
    return Answer(known.target if right else known.mistake, right, reasoning, cited)
