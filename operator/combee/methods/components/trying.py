"""Judging proposals of new texts: how they join a pool, how texts are scored on select, what a verdict is.

A lost answer is no evidence: an example without a score is asked again the next time, and a text that too few
examples speak for or against has no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace

from combee.methods.components.losses import copies, copies_lost, losses_of, with_losses
from combee.methods.components.pool import VALUE, Acceptance, Origin, Pool, Scored, Variant
from combee.methods.components.propose import Child
from combee.methods.components.standing import members, pending, render, scores
from combee.methods.verification import Known, Page, Round, Verified
from combee.records import Trajectory

PARTIAL = "partial"
"""The objective that is a task's partial credit."""
Asking = Generator[Round, Sequence[Trajectory], Pool]
"""Rounds of rollouts that end with what the pool became."""


def with_children(pool: Pool, parent: str, children: Iterable[Child], iteration: int) -> Pool:
    """Return the pool with proposals that it neither has nor has judged before; they wait to be judged."""
    known = {fact.variant for fact in pool.judged} | pool.by_digest.keys()
    new = [(kind, variant) for kind, variant in children if variant.digest not in known]
    return replace(
        pool,
        variants=pool.variants | {variant for _, variant in new},
        origins=pool.origins | {Origin(variant.digest, kind, (parent,), iteration) for kind, variant in new},
    )


def with_proposals(pool: Pool, parent: str, offspring: Sequence[Child], iteration: int) -> Pool:
    """Return the pool with new texts for ``parent``, which wait to be judged. Copies of it or of the variant
    that leads are refused."""
    refused = copies(pool, parent, offspring)
    noted = with_losses(pool, copies_lost(pool.by_digest[parent], refused, iteration))
    return with_children(noted, parent, [one for one in offspring if one not in refused], iteration)


def dropped(pool: Pool) -> Pool:
    """Return the pool without the texts of proposals that lost or have no verdict, which would only lengthen
    it. Verdicts stay, and so does what the latest that lost would have changed."""
    lost = {fact.variant for fact in pool.judged if not fact.accepted}
    losses = losses_of(pool, sorted(lost & pool.by_digest.keys()))
    gone = lost | set(pending(pool))
    kept = replace(
        pool,
        variants=frozenset(one for one in pool.variants if one.digest not in gone),
        origins=frozenset(one for one in pool.origins if one.variant not in gone),
        scores=frozenset(one for one in pool.scores if one.variant not in gone),
    )
    return with_losses(kept, losses)


def verified(pool: Pool, before: Pool, waiting: int, *, budget_tokens: int) -> Verified[Pool]:
    """Return what a verification settled that began with the pool ``before`` and ``waiting`` proposals."""
    fresh = pool.judged - before.judged
    won = sum(fact.accepted for fact in fresh)
    known = _seen(pool, render(pool, budget_tokens=budget_tokens).included)
    return Verified(pool, max(waiting, len(fresh)), len(fresh), won, known)


def _seen(pool: Pool, whole: Sequence[str]) -> Mapping[str, Known]:
    """Return what the variant that is rendered ``whole`` scored on select; nothing of one that is cut."""
    partial = scores(pool, PARTIAL)
    return {
        example: (value, partial.get(digest, {}).get(example))
        for digest in whole
        for example, value in scores(pool).get(digest, {}).items()
    }


def scored(pool: Pool, also: Sequence[str] = ()) -> Asking:
    """Score the members on select that lack an example which another has a score for, or any; and ``also``
    texts that are not in."""
    known = scores(pool)
    every = set().union(*(known.get(digest, {}) for digest in members(pool)))
    lacking = [digest for digest in members(pool) if not every or not every <= known.get(digest, {}).keys()]
    texts = [pool.by_digest[digest] for digest in (*lacking, *also)]
    return (yield from swept(pool, texts, "select of variants")) if texts else pool


def swept(pool: Pool, variants: Sequence[Variant], stage: str) -> Asking:
    """Score texts on every row of select; a row that was lost leaves no score."""
    answers = yield Round(
        stage, sweep=tuple(Page.of(one.text, variants[0].text, one.components) for one in variants)
    )
    each = len(answers) // len(variants)
    facts = set[Scored]()
    for place, variant in enumerate(variants):
        for one in answers[place * each : (place + 1) * each]:
            if one.error:
                continue
            facts.add(Scored(variant.digest, one.example_id, VALUE, one.score))
            if one.partial is not None:
                facts.add(Scored(variant.digest, one.example_id, PARTIAL, one.partial))
            facts |= {Scored(variant.digest, one.example_id, name, value) for name, value in one.objectives}
    return replace(pool, scores=pool.scores | facts)


LEAST_SHARE = 0.5
"""Share of the minibatch that both must have answered for a verdict."""

Answers = Mapping[str, float | None]
"""Score by example; None: the answer was lost, so nothing is known."""


def acceptance(child: str, before: Answers, after: Answers) -> Acceptance | None:
    """Return the verdict: accepted when the sum over the examples that both answered is strictly higher.

    Return None when both answered fewer than half of the examples of ``before``: a bad day is no verdict.
    Sums are exact (``math.fsum``), so the order of examples cannot matter.

    >>> acceptance("c", {"1": 0.0, "2": 1.0}, {"1": 1.0, "2": 1.0})
    Acceptance(variant='c', accepted=True, gain=1.0, examples=2)
    >>> acceptance("c", {"1": 0.0, "2": 1.0}, {"1": None, "2": 1.0})
    Acceptance(variant='c', accepted=False, gain=0.0, examples=1)
    """
    pairs = [
        (known, seen)
        for example, known in before.items()
        if known is not None and (seen := after.get(example)) is not None
    ]
    if not pairs or len(pairs) < LEAST_SHARE * len(before):
        return None
    gain = math.fsum(seen for _, seen in pairs) - math.fsum(known for known, _ in pairs)
    return Acceptance(child, gain > 0, gain, len(pairs))
