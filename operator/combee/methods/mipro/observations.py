"""Observations of earlier iterations: every proposal is told again what several rows back (appendix C.3).

In the paper the data summary covers all of train before anything is proposed. Here each iteration sees a
batch, and what its proposals dropped would be lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from combee.algo.grouping import grouped as by_key
from combee.algo.tokens import estimate_tokens
from combee.methods.components.lessons import backers, grouped
from combee.methods.components.pool import Observed, Pool
from combee.methods.components.prompts import lesson_line
from combee.methods.content import leak_corpus, refusals_of
from combee.methods.protocol import Update

LEAST_ROWS = 2
"""Rows that must back an observation for it to be told again: what one row alone shows may be a slip."""
MOST_KEPT = 128
"""Observations of a component that a pool keeps."""
MOST_ALIKE = 64
"""Most wordings that are joined to one observation."""


def noted(pool: Pool, updates: Iterable[Update], iteration: int) -> Pool:
    """Return the pool with the observations of an iteration, joined to those that say the same; of each
    component those that most rows back, of equals the newer. Private things and orders are not remembered:
    a proposal that repeats them is refused."""
    fresh = {
        Observed(iteration, one.section, one.text, source)
        for one in updates
        if one.op == "ADD" and not refusals_of("", one.text, leak_corpus(()))
        for source in one.sources
    }
    facts = pool.observed | fresh
    seen = {fact.source: fact.iteration for fact in sorted(facts)}

    def rank(one: Update) -> tuple[int, int, str]:
        return -backers(one), -max(seen[source] for source in one.sources), one.text

    kept = {
        Observed(seen[source], component, one.text, source)
        for component, lessons in by_key(_joined(facts), lambda one: one.section).items()
        for one in sorted(lessons, key=rank)[:MOST_KEPT]
        for source in one.sources
    }
    return replace(pool, observed=frozenset(kept))


def told_again(pool: Pool, *, room_tokens: int) -> tuple[tuple[str, str], ...]:
    """Return (component, line) of what several rows back, those that most do first, as far as it fits into
    ``room_tokens`` of each component's prompt."""
    room: dict[str, int] = {}
    lines: list[tuple[str, str]] = []
    for one in _joined(pool.observed):
        line = lesson_line(one)
        left = room.get(one.section, room_tokens) - estimate_tokens(f"{line}\n")
        if backers(one) >= LEAST_ROWS and left >= 0:
            lines.append((one.section, line))
            room[one.section] = left
    return tuple(lines)


def _joined(facts: Iterable[Observed]) -> list[Update]:
    """Return one observation for each group of those that say the same, those that most rows back first."""
    sources = by_key(sorted(facts), lambda fact: (fact.component, fact.text))
    return grouped(
        [
            Update("ADD", component, text, frozenset(fact.source for fact in same))
            for (component, text), same in sources.items()
        ],
        cap=MOST_ALIKE,
    )
