"""Merging lineages: bringing together two variants of one ancestor, component by component.

A component that only one of them changed is taken from the one that changed it. So what two proposals found
about different components need not be found again. All draws are the pool's own, in a fixed order.
"""

from __future__ import annotations

from dataclasses import dataclass

from combee.algo.graph import closure
from combee.api.method_gepa import Frontier
from combee.methods.components.pool import Pool, Variant
from combee.methods.components.standing import mean_score, scores
from combee.methods.gepa.draws import Draws
from combee.methods.gepa.pareto import undominated


@dataclass(frozen=True, slots=True)
class Lineages:
    """Two variants and an ancestor of both, by digest; ``one`` < ``other``."""

    one: str
    other: str
    ancestor: str


def ancestors(pool: Pool) -> dict[str, frozenset[str]]:
    """Return, by variant, everything that it came out of, over any number of generations."""
    parents: dict[str, set[str]] = {digest: set() for digest in pool.by_digest}
    for origin in pool.origins:
        parents.setdefault(origin.variant, set()).update(origin.parents)
    return {digest: frozenset(closure(near, parents) - {digest}) for digest, near in parents.items()}


def mergeable(pool: Pool, kind: Frontier) -> list[Lineages]:
    """Return what could be merged, in a fixed order: undominated variants, neither out of the other, with an
    ancestor that scores no more than either, where just one changed some component; not merged before."""
    lines, means = ancestors(pool), {digest: mean_score(of) for digest, of in scores(pool).items()}
    done = {(fact.one, fact.other, fact.ancestor) for fact in pool.merged}
    leading = sorted(undominated(pool, kind))
    pairs = []
    for place, one in enumerate(leading):
        for other in leading[place + 1 :]:
            if one in lines[other] or other in lines[one]:
                continue
            for ancestor in sorted(lines[one] & lines[other] & set(pool.by_digest)):
                low = means.get(ancestor, 0.0)
                fits = low <= min(means.get(one, 0.0), means.get(other, 0.0))
                if fits and (one, other, ancestor) not in done and _complementary(pool, one, other, ancestor):
                    pairs.append(Lineages(one, other, ancestor))
    return pairs


def _complementary(pool: Pool, one: str, other: str, ancestor: str) -> bool:
    first, second, base = (dict(pool.by_digest[digest].components) for digest in (one, other, ancestor))
    if not first.keys() == second.keys() == base.keys():
        return False
    return any(first[name] != second[name] and base[name] in (first[name], second[name]) for name in base)


def choose(pool: Pool, kind: Frontier, draws: Draws) -> Lineages | None:
    """Return one possible merge, likelier the more its ancestor scores; None, and no draw, if none is."""
    choices = mergeable(pool, kind)
    if not choices:
        return None
    means = {digest: mean_score(of) for digest, of in scores(pool).items()}
    return draws.weighted(choices, [means.get(lineages.ancestor, 0.0) for lineages in choices])


def merged(pool: Pool, lineages: Lineages) -> Variant:
    """Return the child. Each component has the text of the one that changed it; where both did, that of the
    better variant, or of ``one`` where they are equally good."""
    means = {digest: mean_score(of) for digest, of in scores(pool).items()}
    first, second, base = (
        dict(pool.by_digest[digest].components)
        for digest in (lineages.one, lineages.other, lineages.ancestor)
    )
    second_leads = means.get(lineages.other, 0.0) > means.get(lineages.one, 0.0)
    texts = {}
    for name, text in base.items():
        if first[name] == text:
            texts[name] = second[name]
        elif second[name] == text or not second_leads:
            texts[name] = first[name]
        else:
            texts[name] = second[name]
    return Variant.of(texts)
