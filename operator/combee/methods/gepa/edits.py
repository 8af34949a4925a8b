"""Kinds of edits: what a proposal is asked to change, drawn by weights, and what each kind has lifted.

| kind | changes |
|---|---|
| rephrase | the words, not what they say |
| reorder | the order |
| examples | the worked examples |
| channel | how the assistant is addressed: its role, its steps, the form of its answer |
| insert | adds what is lacking, and leaves the rest |
| delete | takes out what nothing bears out, and leaves the rest |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from combee.algo.lifts import weights_of
from combee.methods.components.pool import Edited, Pool, Variant
from combee.methods.components.standing import mean_score, scores
from combee.methods.gepa.draws import Draws

EDIT = "edit"
"""The key of ``Rendered.ids`` for the kind of edit that is asked for."""
EDITS: Mapping[str, str] = {
    "rephrase": "say every rule in other, plainer words that are harder to misread; change no fact",
    "reorder": "put the rules into another order, those that decide most answers first; change no wording",
    "examples": "put other worked examples in place of those that are there, or two or three short ones "
    "where there are none; keep the rules",
    "channel": "change how the assistant is addressed: its role, the steps to take in order, the form of the "
    "answer; keep the rules",
    "insert": "add what is lacking; leave every line that is there word for word",
    "delete": "take out what nothing bears out or what is said twice; leave the other lines word for word",
}
"""Kind of edit -> what the proposer is asked to do."""


def drawn_edits(pool: Pool, weights: Sequence[tuple[str, float]], count: int) -> list[str]:
    """Return a kind of edit for each of ``count`` proposals; unknown kinds are passed over. The draws are
    named by the pool's own, and leave these as they are."""
    known = {name: weight for name, weight in weights if name in EDITS}
    names = sorted(EDITS)
    likely = [known.get(name, 0.0) for name in names]
    chosen: list[str] = []
    for place in range(count):
        draws = Draws(pool.seed, pool.drawn + place, "gepa edit")
        chosen.append(draws.weighted(names, likely))
    return chosen


def with_edit(request: str, name: str) -> str:
    """Return a request for a new text that asks for one kind of edit; the request itself without any."""
    change = EDITS.get(name)
    return f"{request}\n\nThis time make one kind of change only: {change}." if change else request


def edited(pool: Pool, before: Pool, name: str) -> Pool:
    """Return the pool with the fact that what it has over ``before`` are edits of a kind."""
    if name not in EDITS:
        return pool
    new = pool.by_digest.keys() - before.by_digest.keys()
    return replace(pool, edits=pool.edits | {Edited(digest, name) for digest in new})


def edit_of(pool: Pool, variants: Iterable[str]) -> str:
    """Return the kind of edit that variants of one proposal were asked for as; empty where none was."""
    kinds = {fact.variant: fact.edit for fact in pool.edits}
    return next((kinds[digest] for digest in variants if digest in kinds), "")


def lifts(pool: Pool) -> dict[str, list[float]]:
    """Return, by kind of edit, what each proposal that was judged lifted: its mean score on select over its
    parent's, on the rows that both have a score for. One that did not get in lifted nothing."""
    verdicts, known = {fact.variant: fact.accepted for fact in pool.judged}, scores(pool)
    by_kind: dict[str, list[float]] = {name: [] for name in EDITS}
    for fact in sorted(pool.edits):
        if fact.variant in verdicts and fact.edit in by_kind:
            in_ = verdicts[fact.variant] and fact.variant in pool.by_digest
            by_kind[fact.edit].append(_lift(pool, pool.by_digest[fact.variant], known) if in_ else 0.0)
    return by_kind


def _lift(pool: Pool, child: Variant, known: Mapping[str, Mapping[str, float]]) -> float:
    own = known.get(child.digest, {})
    parents = pool.origin_of(child.digest).parents
    before = known.get(parents[0], {}) if parents else {}
    common = own.keys() & before.keys()
    return mean_score({row: own[row] for row in sorted(common)}) - mean_score(
        {row: before[row] for row in sorted(common)}
    )


def edit_weights(pool: Pool) -> dict[str, float]:
    """Return how likely each kind is to be drawn, by what its proposals lifted."""
    return weights_of(lifts(pool))
