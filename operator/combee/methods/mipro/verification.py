"""The search of an iteration (the paper's section 4.3): combinations are tried on minibatches of select, and
those that did best in the mean are scored on all of it.

1. The start is scored on select: what a minibatch shows is by how much it is beaten there, row by row.
2. What was proposed, and no check refused, is on offer from now on. What was refused is forgotten.
3. Combinations are tried, five at a time, each on rows of its own.
4. Of five the best is scored on all of select, and gets in where it beats the text that leads.

A lost answer is no evidence: a combination that half of its rows say nothing of was not tried.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from combee.algo.seeds import permutation, rng
from combee.algo.tokens import estimate_tokens
from combee.methods.components.pool import Pool, Probe, Variant
from combee.methods.components.standing import best, given, members, pending, scores
from combee.methods.components.trying import (
    LEAST_SHARE,
    Asking,
    acceptance,
    dropped,
    scored,
    swept,
    verified,
    with_children,
)
from combee.methods.mipro.search import (
    Combination,
    bounded,
    chosen,
    combination_of,
    combined,
    offered,
    space_of,
    stands,
)
from combee.methods.verification import Page, Rollout, Round, Verifying

AT_ONCE = 5
"""Combinations that are tried side by side, and of which one is scored on all of select."""


@dataclass(frozen=True, slots=True)
class Budget:
    """``probes`` of an iteration, of ``minibatch`` rows each; ``tokens`` that a text may take."""

    probes: int
    minibatch: int
    tokens: int


def leaders_of(probes: int) -> int:
    """Return how many combinations are scored on all of select after so many probes."""
    return max(1, probes // AT_ONCE)


def verification(pool: Pool, budget: Budget) -> Verifying[Pool]:
    """Settle what an iteration proposed."""
    before, waiting = pool, pending(pool)
    iteration = max((pool.origin_of(digest).iteration for digest in waiting), default=-1)
    pool = yield from scored(pool)
    pool = dropped(_without_refused(offered(pool, waiting)))
    tried = 0
    if waiting and scores(pool).get(given(pool).digest):
        for first in range(0, budget.probes, AT_ONCE):
            pool = yield from _probed(pool, min(AT_ONCE, budget.probes - first), budget)
        leading = _leading(pool, leaders_of(budget.probes))
        tried = len(leading)
        pool = yield from _settled(pool, leading, iteration)
    return verified(bounded(dropped(pool)), before, tried, budget_tokens=budget.tokens)


def _without_refused(pool: Pool) -> Pool:
    """Return the pool without the texts of what was refused: a demonstration may be refused for private
    things, and the pool is published."""
    gone = {refusal.entry_digest for refusal in pool.refusals} - {given(pool).digest}
    return replace(
        pool,
        variants=frozenset(one for one in pool.variants if one.digest not in gone),
        origins=frozenset(one for one in pool.origins if one.variant not in gone),
    )


def _probed(pool: Pool, count: int, budget: Budget) -> Asking:
    """Try combinations side by side, each on a minibatch of its own."""
    space, start = space_of(pool), scores(pool)[given(pool).digest]
    base = best(pool).text
    rows = sorted(start)
    tried: list[tuple[int, Combination, Page, list[str]]] = []
    for combination in chosen(pool, count):
        number = pool.drawn
        pool = replace(pool, drawn=number + 1)
        variant = combined(space, combination)
        if estimate_tokens(variant.text) > budget.tokens:
            continue
        drawn = permutation(len(rows), rng(pool.seed, "minibatch", number))[: budget.minibatch]
        page = Page.of(variant.text, base, variant.components)
        tried.append((number, combination, page, [rows[place] for place in drawn]))
    rollouts = tuple(Rollout(row, page, of="select") for _, _, page, minibatch in tried for row in minibatch)
    if not rollouts:
        return pool
    answers = iter((yield Round("minibatches of select", rollouts)))
    probes = set[Probe]()
    for number, combination, _, minibatch in tried:
        own = [next(answers) for _ in minibatch]
        after = {one.example_id: one.score for one in own if not one.error}
        probes |= _probe(number, combination, {row: start[row] for row in minibatch}, after)
    return replace(pool, probes=pool.probes | probes)


def _probe(
    number: int, combination: Combination, start: Mapping[str, float], after: Mapping[str, float]
) -> set[Probe]:
    """Return the probe that these answers are; nothing where too few of the rows were answered."""
    both = sorted(start.keys() & after.keys())
    if not both or len(both) < LEAST_SHARE * len(start):
        return set()
    gain = math.fsum(after[row] - start[row] for row in both) / len(both)
    return {Probe(number, combination, gain, len(both))}


def _leading(pool: Pool, count: int) -> list[Variant]:
    """Return the combinations that did best in the mean and were not scored on all of select yet."""
    space, known = space_of(pool), {fact.variant for fact in pool.judged} | set(members(pool))
    gains: dict[Combination, list[float]] = defaultdict(list)
    for probe in sorted(pool.probes):
        if stands(space, probe.combination):
            gains[probe.combination].append(probe.gain)
    order = sorted(gains, key=lambda one: (-math.fsum(gains[one]) / len(gains[one]), one))
    variants = (combined(space, one) for one in order)
    return [one for one in variants if one.digest not in known][:count]


def _settled(pool: Pool, leading: Sequence[Variant], iteration: int) -> Asking:
    """Score combinations on select; those are in that beat the text that leads. What they scored is a probe,
    too."""
    if not leading:
        return pool
    parent = best(pool)
    grown = with_children(pool, parent.digest, [("rewrite", one) for one in leading], iteration)
    grown = yield from swept(grown, leading, "select of the best")
    known, start = scores(grown), scores(grown)[given(grown).digest]
    for variant in leading:
        after = known.get(variant.digest, {})
        verdict = acceptance(variant.digest, known.get(parent.digest, {}), after)
        if verdict is None:
            continue
        probes = _probe(grown.drawn, combination_of(variant), start, after)
        grown = replace(
            grown, judged=grown.judged | {verdict}, probes=grown.probes | probes, drawn=grown.drawn + 1
        )
    return grown
