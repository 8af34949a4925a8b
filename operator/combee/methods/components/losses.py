"""Proposals that did not get in: the latest few, as proposers are told of them; and which are copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from combee.algo.alike import copy_of
from combee.algo.grouping import grouped
from combee.methods.components.pool import Lost, Pool, Variant
from combee.methods.components.propose import Child, proposed
from combee.methods.components.standing import best
from combee.methods.protocol import Proposals, Rendered, Update, tried_within
from combee.methods.replies import quote_line

KEPT = 8
"""Most proposals that did not get in that a pool remembers the text of."""
MAX_TEXT_CHARS = 400
_COPY = "refused without a try: it was nearly the text of today"


def copies(pool: Pool, parent: str, children: Iterable[Child]) -> list[Child]:
    """Return the children that are copies of their parent, or of the variant that leads."""
    tops = [pool.by_digest[parent].text, best(pool).text]
    return [child for child in children if copy_of(child[1].text, tops)]


def copies_lost(parent: Variant, refused: Iterable[Child], iteration: int) -> frozenset[Lost]:
    """Return a fact for each component that refused copies change. No check has seen their text: it is left
    out."""
    return frozenset(
        Lost(iteration, variant.digest, name, "", _COPY)
        for _, variant in refused
        for name, _ in _changes(parent, variant)
    )


def losses_of(pool: Pool, losers: Iterable[str]) -> frozenset[Lost]:
    """Return a fact for each component that proposals changed which did not beat their parent."""
    verdicts = {fact.variant: fact for fact in pool.judged}
    facts = set[Lost]()
    for digest in losers:
        origin, verdict = pool.origin_of(digest), verdicts[digest]
        parent = pool.by_digest.get(next(iter(origin.parents), ""))
        if parent is None:
            continue
        why = f"{verdict.gain:+.1f} in sum on {verdict.examples} examples"
        for name, text in _changes(parent, pool.by_digest[digest]):
            facts.add(Lost(origin.iteration, digest, name, text, why))
    return frozenset(facts)


def with_losses(pool: Pool, facts: frozenset[Lost]) -> Pool:
    """Return the pool with these facts, and of all the latest ``KEPT``."""
    latest = sorted(pool.lost | facts, reverse=True)[:KEPT]
    return replace(pool, lost=frozenset(latest))


def tried(pool: Pool) -> tuple[tuple[str, str], ...]:
    """Return what did not get in with the reason, the latest first, by component."""
    return tried_within(
        (one.component, f"{one.text} ({one.reason})".strip()) for one in sorted(pool.lost, reverse=True)
    )


def proposals(
    before: Pool, updates: Sequence[Update], shown: Sequence[Rendered], *, budget_tokens: int
) -> Proposals:
    """Return how many different texts were proposed, and how many of these were the text of today or a copy,
    were judged before, or say what was lost before."""
    known = {fact.variant for fact in before.judged} | before.by_digest.keys()
    lost = {
        name: [one.text for one in facts if one.text]
        for name, facts in grouped(before.lost, lambda one: one.component).items()
    }
    made: dict[str, bool] = {}
    for text in shown:
        parent = before.by_digest[text.variant]
        own = [one for one in updates if len(shown) == 1 or one.variant == text.variant]
        for child in proposed(parent, own, budget_tokens=budget_tokens):
            variant = child[1]
            changes = _changes(parent, variant)
            again = bool(changes) and all(copy_of(line, lost.get(name, ())) for name, line in changes)
            known_text = variant.digest in known or bool(copies(before, text.variant, [child]))
            made[variant.digest] = again or known_text
    return Proposals(len(made), sum(made.values()))


def _changes(parent: Variant, child: Variant) -> list[tuple[str, str]]:
    """Return (component, the lines that the parent's lacks, as one and cut), of each that differs."""
    before = dict(parent.components)
    changes: list[tuple[str, str]] = []
    for name, text in child.components:
        if text != before.get(name):
            known = set(before.get(name, "").splitlines())
            new = " / ".join(line.strip() for line in text.splitlines() if line.strip() and line not in known)
            changes.append((name, quote_line(new, MAX_TEXT_CHARS)))
    return changes
