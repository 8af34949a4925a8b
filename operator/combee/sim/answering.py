"""Answers a question: a rule that is known or read makes the answer right, a wrong one may be obeyed."""

from __future__ import annotations

from dataclasses import dataclass

from combee.sim import draws
from combee.sim.keyfile import Question
from combee.sim.params import Law
from combee.sim.reading import Support
from combee.sim.rulebook import Rulebook

MAX_CITED = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's answer to a question. ``cited``: ids of the lines that it followed."""

    text: str
    right: bool
    reasoning: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the prompt says about the question's rule."""

    support: Support
    tokens: int
    """tokens of the artifact: of the whole prompt but the question."""
    digest: str


def chance(question: Question, seen: Seen, book: Rulebook, law: Law, *key: str | int) -> tuple[float, str]:
    """Return (probability of a right answer, side followed: 'right', 'wrong' or '')."""
    rule, task = book.rule(question.topic), book.law(question.topic)
    base = task.top if rule.known else task.guess
    right, wrong = len(seen.support.right), len(seen.support.wrong)
    if not right and not wrong:
        return base, ""
    if draws.unit(*key, "read", question.topic) >= 1 / (1 + (seen.tokens / law.reading_length) ** 2):
        return base, ""
    if right > wrong or (right == wrong and draws.unit(*key, "coin") < 0.5):
        return task.top, "right"
    obeyed = not rule.known or draws.unit(*key, "obey") < law.obedience
    return (0.0, "wrong") if obeyed else (base, "")


def answer(question: Question, seen: Seen, book: Rulebook, law: Law, seed: int, ordinal: int) -> Answer:
    """Return the answer to one question; its luck is keyed by (example, repeat), and partly by the
    artifact."""
    key = (seed, "answer", question.id, ordinal)
    probability, side = chance(question, seen, book, law, *key)
    shared = draws.unit(*key, "share") >= law.slip_share
    luck = draws.unit(*key, "luck") if shared else draws.unit(*key, "luck", seen.digest)
    right = luck < probability
    lines = {"right": seen.support.right, "wrong": seen.support.wrong}.get(side, ())
    cited = tuple(dict.fromkeys(id_ for id_ in lines if id_))[:MAX_CITED]
    rule_name = book.rule(question.topic).name
    note = f" A note on {rule_name} was taken into account." if side else ""
    reasoning = f"The question comes down to {rule_name}: set the given figures in and work it out.{note}"
    return Answer(question.target if right else question.mistake, right, reasoning, cited)


def verdict(right: bool, lenient: bool, law: Law, *key: str | int) -> bool:
    """Return whether the judge says 'right'. A lenient judge accepts more wrong answers."""
    flip = law.judge_flip + (law.judge_leniency if lenient and not right else 0.0)
    return right != (draws.unit(*key) < flip)
