"""Acceptance and scoring: what a pool needs to know before its proposals are members.

1. Joint children are asked the minibatch that they were proposed from, and must beat their parent there: of
   several parents in flight each has a minibatch of its own. All of them are asked side by side.
2. Where all of a parent fail and they changed several components, each component is tried by itself.
3. What is in is scored on select, example by example: that is what fronts are made of.
4. After a success two lineages may be merged; the child must hold up to both on select.

A lost answer is no evidence: a child that too few examples speak for or against is no longer proposed, and
not judged either, so that it may come again; an example without a score is asked again the next time.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice

from combee.algo.grouping import grouped
from combee.api.method_gepa import Frontier
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.edits import edit_of, edited
from combee.methods.gepa.losses import losses_of, with_losses
from combee.methods.gepa.merge import choose, merged
from combee.methods.gepa.pool import VALUE, Acceptance, Merged, Origin, Pool, Scored, Variant
from combee.methods.gepa.propose import Child, parts
from combee.methods.gepa.standing import members, pending, render, scores
from combee.methods.verification import Known, Page, Rollout, Round, Verified, Verifying
from combee.records import Trajectory

PARTIAL = "partial"
"""The objective that is a task's partial credit."""
_Asking = Generator[Round, Sequence[Trajectory], Pool]


@dataclass(frozen=True, slots=True)
class Rules:
    """How a pool is run. ``merges`` is the most merges of lineages in a run."""

    frontier: Frontier = "Instance"
    merges: int = 5


def with_children(pool: Pool, parent: str, children: Iterable[Child], iteration: int) -> Pool:
    """Return the pool with proposals that it neither has nor has judged before; they wait to be judged."""
    known = {fact.variant for fact in pool.judged} | pool.by_digest.keys()
    new = [(kind, variant) for kind, variant in children if variant.digest not in known]
    return replace(
        pool,
        variants=pool.variants | {variant for _, variant in new},
        origins=pool.origins | {Origin(variant.digest, kind, (parent,), iteration) for kind, variant in new},
    )


def verification(
    pool: Pool, *, trajectories: Mapping[str, Trajectory], rules: Rules, budget_tokens: int
) -> Verifying[Pool]:
    """Settle what ``with_children`` added."""
    before = _minibatches(trajectories.values())
    known = pool.judged
    waiting = pending(pool)
    if waiting:
        pool = yield from _tried(pool, waiting, before, "minibatch")
        pool, retried = _retried(pool, _of_losing_parents(pool, waiting))
        if retried:
            pool = yield from _tried(pool, retried, before, "minibatch by component")
            waiting += retried
    lost = {fact.variant for fact in pool.judged if not fact.accepted}
    losses = losses_of(pool, sorted(lost & pool.by_digest.keys()))
    pool = with_losses(_without(pool, lost | set(pending(pool))), losses)
    pool = yield from _scored(pool)
    if any(fact.accepted for fact in pool.judged - known):
        pool = yield from _merged(pool, rules)
    fresh = pool.judged - known
    won = sum(fact.accepted for fact in fresh)
    seen = _seen(pool, render(pool, budget_tokens=budget_tokens).included)
    return Verified(pool, max(len(waiting), len(fresh)), len(fresh), won, seen)


def _seen(pool: Pool, whole: Sequence[str]) -> Mapping[str, Known]:
    """Return what the variant that is rendered ``whole`` scored on select; nothing of one that is cut."""
    partial = scores(pool, PARTIAL)
    return {
        example: (value, partial.get(digest, {}).get(example))
        for digest in whole
        for example, value in scores(pool).get(digest, {}).items()
    }


_Minibatches = Mapping[str, Mapping[str, float | None]]
"""parent -> example -> what it scored; where one parent was worked with, its name is empty."""


def _minibatches(trajectories: Iterable[Trajectory]) -> _Minibatches:
    return {
        parent: {one.example_id: None if one.error else one.score for one in own}
        for parent, own in grouped(trajectories, lambda one: one.variant).items()
    }


def _of_losing_parents(pool: Pool, children: Sequence[str]) -> list[str]:
    """Return those of ``children`` whose parent none of them beat."""
    won = {fact.variant for fact in pool.judged if fact.accepted}
    parent = {digest: pool.origin_of(digest).parents[0] for digest in children}
    beaten = {parent[digest] for digest in children if digest in won}
    return [digest for digest in children if parent[digest] not in beaten]


def _tried(pool: Pool, children: Sequence[str], before: _Minibatches, stage: str) -> _Asking:
    rollouts: list[Rollout] = []
    tried: list[tuple[str, Mapping[str, float | None], int]] = []
    for digest in children:
        parent, child = pool.by_digest[pool.origin_of(digest).parents[0]], pool.by_digest[digest]
        page = Page.of(child.text, parent.text, child.components)
        minibatch = before.get(parent.digest, before.get("", {}))
        examples = sorted(example for example, score in minibatch.items() if score is not None)
        rollouts += [Rollout(example, page) for example in examples]
        tried.append((digest, minibatch, len(examples)))
    answers = iter((yield Round(stage, tuple(rollouts))))
    verdicts = set[Acceptance]()
    for digest, minibatch, count in tried:
        own = islice(answers, count)
        after = {one.example_id: None if one.error else one.score for one in own}
        if (verdict := acceptance(digest, minibatch, after)) is not None:
            verdicts.add(verdict)
    return replace(pool, judged=pool.judged | verdicts)


def _retried(pool: Pool, failed: Sequence[str]) -> tuple[Pool, list[str]]:
    """Add each changed component of the failed children by itself; return these proposals' digests, too."""
    by_parent = grouped(map(pool.origin_of, failed), lambda origin: origin.parents[0])
    added: list[str] = []
    for parent, origins in sorted(by_parent.items()):
        children = [(origin.kind, pool.by_digest[origin.variant]) for origin in origins]
        new = parts(pool.by_digest[parent], children)
        iteration = max(origin.iteration for origin in origins)
        grown = with_children(pool, parent, new, iteration)
        added += [digest for digest in grown.by_digest if digest not in pool.by_digest]
        # Children of one parent were asked for as one kind of edit, and so were their parts.
        pool = edited(grown, pool, edit_of(pool, (origin.variant for origin in origins)))
    return pool, added


def _without(pool: Pool, gone: Set[str]) -> Pool:
    """Return the pool without these texts, which would only lengthen it; verdicts on judged ones stay."""
    return replace(
        pool,
        variants=frozenset(one for one in pool.variants if one.digest not in gone),
        origins=frozenset(one for one in pool.origins if one.variant not in gone),
    )


def _scored(pool: Pool) -> _Asking:
    """Score the members on select that lack an example which another has a score for, or any."""
    known = scores(pool)
    every = set().union(*(known.get(digest, {}) for digest in members(pool)))
    lacking = [digest for digest in members(pool) if not every or not every <= known.get(digest, {}).keys()]
    if not lacking:
        return pool
    return (yield from _swept(pool, [pool.by_digest[digest] for digest in lacking], "select of variants"))


def _swept(pool: Pool, variants: Sequence[Variant], stage: str) -> _Asking:
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


def _merged(pool: Pool, rules: Rules) -> _Asking:
    """Merge two lineages, where a merge is left to do and there are two to merge."""
    if len(pool.merged) >= rules.merges:
        return pool
    draws = Draws(pool.seed, pool.drawn)
    lineages = choose(pool, rules.frontier, draws)
    pool = replace(pool, drawn=draws.drawn)
    if lineages is None:
        return pool
    done = Merged(lineages.one, lineages.other, lineages.ancestor)
    child = merged(pool, lineages)
    pool = replace(pool, merged=pool.merged | {done})
    if child.digest in pool.by_digest or any(fact.variant == child.digest for fact in pool.judged):
        return pool
    iteration = max(origin.iteration for origin in pool.origins)
    origin = Origin(child.digest, "merge", (lineages.one, lineages.other), iteration)
    grown = replace(pool, variants=pool.variants | {child}, origins=pool.origins | {origin})
    grown = yield from _swept(grown, [child], "select of a merge")
    known = scores(grown)
    one, other = known.get(lineages.one, {}), known.get(lineages.other, {})
    accepted, gain, count = holds_up(known.get(child.digest, {}), one, other)
    if count * 2 < min(len(one), len(other)):
        return pool
    verdict = Acceptance(child.digest, accepted, gain, count)
    return replace(grown if accepted else pool, judged=pool.judged | {verdict})


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


def holds_up(child: Mapping[str, float], *others: Mapping[str, float]) -> tuple[bool, float, int]:
    """Return (whether ``child`` scores at least what the best of ``others`` does, by how much in sum, on how
    many examples), all on the examples that every one of them has a score for. Without any it is False.

    >>> holds_up({"1": 1.0, "2": 0.0}, {"1": 1.0}, {"1": 0.0, "2": 1.0})
    (True, 0.0, 1)
    """
    common = sorted(set(child).intersection(*others))
    if not common:
        return False, 0.0, 0
    sums = [math.fsum(one[example] for example in common) for one in (child, *others)]
    gain = sums[0] - max(sums[1:])
    return gain >= 0, gain, len(common)
