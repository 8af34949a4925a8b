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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from combee.algo.grouping import grouped
from combee.api.method_gepa import Frontier
from combee.methods.components.pool import Acceptance, Merged, Origin, Pool
from combee.methods.components.propose import parts
from combee.methods.components.standing import pending, scores
from combee.methods.components.trying import (
    Asking,
    acceptance,
    dropped,
    scored,
    swept,
    verified,
    with_children,
)
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.edits import edit_of, edited
from combee.methods.gepa.merge import choose, merged
from combee.methods.verification import Page, Rollout, Round, Verifying
from combee.records import Trajectory


@dataclass(frozen=True, slots=True)
class Rules:
    """How a pool is run. ``merges`` is the most merges of lineages in a run."""

    frontier: Frontier = "Instance"
    merges: int = 5


def verification(
    pool: Pool, *, trajectories: Mapping[str, Trajectory], rules: Rules, budget_tokens: int
) -> Verifying[Pool]:
    """Settle what ``with_children`` added."""
    minibatches, before = _minibatches(trajectories.values()), pool
    waiting = pending(pool)
    if waiting:
        pool = yield from _tried(pool, waiting, minibatches, "minibatch")
        pool, retried = _retried(pool, _of_losing_parents(pool, waiting))
        if retried:
            pool = yield from _tried(pool, retried, minibatches, "minibatch by component")
            waiting += retried
    pool = yield from scored(dropped(pool))
    if any(fact.accepted for fact in pool.judged - before.judged):
        pool = yield from _merged(pool, rules)
    return verified(pool, before, len(waiting), budget_tokens=budget_tokens)


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


def _tried(pool: Pool, children: Sequence[str], before: _Minibatches, stage: str) -> Asking:
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


def _merged(pool: Pool, rules: Rules) -> Asking:
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
    grown = yield from swept(grown, [child], "select of a merge")
    known = scores(grown)
    one, other = known.get(lineages.one, {}), known.get(lineages.other, {})
    accepted, gain, count = holds_up(known.get(child.digest, {}), one, other)
    if count * 2 < min(len(one), len(other)):
        return pool
    verdict = Acceptance(child.digest, accepted, gain, count)
    return replace(grown if accepted else pool, judged=pool.judged | {verdict})


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
