"""Momentum: the criticism of the latest steps, which the optimiser is shown again (the paper's appendix B).

A step's criticism is a fact of the pool; what became of its rewrite is the verdict on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from combee.algo.tokens import estimate_tokens
from combee.methods.components.lessons import ranked
from combee.methods.components.pool import Gradient, Pool
from combee.methods.components.prompts import record_of
from combee.methods.components.reduction import EARLIER_TOKENS
from combee.methods.protocol import Update
from combee.methods.replies import quote_line
from combee.records import Reflection

MAX_TEXT_CHARS = 600


def noted(
    pool: Pool,
    updates: Sequence[Update],
    reflections: Sequence[Reflection],
    *,
    names: Iterable[str],
    variant: str,
    iteration: int,
    momentum: int,
) -> Pool:
    """Return the pool with the criticism of a step, and of all steps that of the latest ``momentum``.

    It is the lessons that were made of it, those that most examples back first, or the reflections
    themselves where a call was given these. ``variant``: the digest of the rewrite that came of it.
    """
    facts = set(pool.gradients)
    for name in names:
        lessons = ranked(one for one in updates if one.op == "ADD" and one.section == name)
        texts = [one.text for one in lessons] or [record_of(one, name) for one in reflections]
        room = EARLIER_TOKENS
        for place, text in enumerate(dict.fromkeys(filter(None, texts))):
            line = quote_line(text, MAX_TEXT_CHARS)
            room -= estimate_tokens(line)
            if room < 0:
                break
            facts.add(Gradient(iteration, name, place, line, variant))
    latest = sorted({fact.iteration for fact in facts}, reverse=True)[:momentum]
    return replace(pool, gradients=frozenset(fact for fact in facts if fact.iteration in latest))


def earlier(pool: Pool, *, room_tokens: int = EARLIER_TOKENS) -> tuple[tuple[str, str], ...]:
    """Return (component, line) of the criticism of earlier steps with what became of them, the latest first,
    as far as it fits into ``room_tokens`` of each component's prompt."""
    room: dict[str, int] = {}
    lines: list[tuple[str, str]] = []
    for fact in sorted(pool.gradients, key=lambda one: (-one.iteration, one.component, one)):
        line = f"{fact.text} (iteration {fact.iteration}, {_outcome(pool, fact.variant)})"
        left = room.get(fact.component, room_tokens) - estimate_tokens(f"- {line}\n")
        if left >= 0:
            lines.append((fact.component, line))
            room[fact.component] = left
    return tuple(lines)


def _outcome(pool: Pool, variant: str) -> str:
    verdict = next((one for one in sorted(pool.judged) if one.variant == variant), None)
    if verdict is None:
        return "not tried"
    return f"{'kept' if verdict.accepted else 'not kept'}: {verdict.gain:+.1f} on {verdict.examples} examples"
