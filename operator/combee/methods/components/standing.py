"""What a pool's facts amount to: who is in, how each scores, who leads.

Pure functions of the set of facts, so the order in which they came cannot matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from combee.algo.tokens import BYTES_PER_TOKEN, estimate_tokens
from combee.errors import BugError
from combee.methods.components.pool import VALUE, Pool, Variant
from combee.methods.protocol import OVER_BUDGET, VARIANT, LeftOut, Rendered, VariantView


def members(pool: Pool) -> list[str]:
    """Return the digests of the variants that are in: those given or better than their parent; oldest first.

    A refused one is never in, whatever it scored, and neither is one that two facts disagree about.
    """
    refused = {refusal.entry_digest for refusal in pool.refusals}
    lost = {fact.variant for fact in pool.judged if not fact.accepted}
    won = {fact.variant for fact in pool.judged if fact.accepted} - lost
    age: dict[str, int] = {}
    for origin in pool.origins:
        age[origin.variant] = min(origin.iteration, age.get(origin.variant, origin.iteration))
    given = {origin.variant for origin in pool.origins if origin.kind == "start"}
    standing = ((given - refused) or given) | (won - refused)
    return sorted(standing & set(pool.by_digest), key=lambda digest: (age.get(digest, 0), digest))


def pending(pool: Pool) -> list[str]:
    """Return the digests of proposals that nobody has judged yet, and that no check refused; by digest."""
    decided = {fact.variant for fact in pool.judged} | {refusal.entry_digest for refusal in pool.refusals}
    given = {origin.variant for origin in pool.origins if origin.kind == "start"}
    return [digest for digest in pool.by_digest if digest not in decided and digest not in given]


def scores(pool: Pool, objective: str = VALUE) -> dict[str, dict[str, float]]:
    """Return variant -> example -> score. Of two that disagree the lower one counts: it can be relied on."""
    by_variant: dict[str, dict[str, float]] = defaultdict(dict)
    for fact in sorted(pool.scores, reverse=True):
        if fact.objective == objective:
            by_variant[fact.variant][fact.example] = fact.value
    return dict(by_variant)


def objectives(pool: Pool) -> list[str]:
    """Return the objectives that anything was scored by, besides the score itself."""
    return sorted({fact.objective for fact in pool.scores} - {VALUE})


def mean_score(by_example: Mapping[str, float] | None) -> float:
    """Return the mean over the examples that have a score; 0 for none."""
    return sum(by_example.values()) / len(by_example) if by_example else 0.0


def ranked(pool: Pool) -> list[str]:
    """Return the members, best first: by mean score, then the older one."""
    known = scores(pool)
    order = members(pool)
    if not order:
        raise BugError("a pool without a start", where="pool")
    return sorted(order, key=lambda digest: (-mean_score(known.get(digest)), order.index(digest)))


def given(pool: Pool) -> Variant:
    """Return the variant that the run started from; the first by digest where several were given."""
    return pool.by_digest[min(one.variant for one in pool.origins if one.kind == "start")]


def best(pool: Pool) -> Variant:
    """Return the variant that leads."""
    return pool.by_digest[ranked(pool)[0]]


def worked_with(pool: Pool, ids: Mapping[str, str] | None) -> str:
    """Return the digest of the variant that an iteration worked with: the one that leads, where ``ids`` name
    none."""
    return (ids or {}).get(VARIANT) or best(pool).digest


def render(pool: Pool, *, budget_tokens: int) -> Rendered:
    """Render the best member that fits into the budget; where none does, as many lines of the best as do."""
    order = ranked(pool)
    left: list[LeftOut] = []
    for digest in order:
        rendered = rendered_variant(pool.by_digest[digest])
        if rendered.tokens <= budget_tokens:
            return replace(rendered, left_out=tuple(left))
        left.append(LeftOut(digest, OVER_BUDGET))
    text = _cut(pool.by_digest[order[0]].text, budget_tokens)
    return Rendered(text, estimate_tokens(text), (), tuple(left), {VARIANT: order[0]})


def rendered_variant(variant: Variant) -> Rendered:
    """Return one variant as a model reads it."""
    text = variant.text
    ids = {VARIANT: variant.digest}
    return Rendered(text, estimate_tokens(text), (variant.digest,), (), ids, variant.components)


def _cut(text: str, budget_tokens: int) -> str:
    room, kept = budget_tokens * BYTES_PER_TOKEN, list[str]()
    for line in text.splitlines():
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join(kept)


def variants(pool: Pool, shown: str) -> list[VariantView]:
    """Return the members, best first. ``shown`` is the digest of the one that is rendered."""
    known = scores(pool)
    verdicts = {fact.variant: fact for fact in sorted(pool.judged)}
    views = []
    for digest in ranked(pool):
        origin = pool.origin_of(digest)
        verdict, own = verdicts.get(digest), known.get(digest, {})
        views.append(
            VariantView(
                digest=digest,
                kind=origin.kind,
                parents=origin.parents,
                iteration=origin.iteration,
                changed=_changed(pool, digest, origin.parents),
                gain=verdict.gain if verdict else None,
                examples=verdict.examples if verdict else 0,
                score=mean_score(own) if own else None,
                scored=len(own),
                leads=digest == shown,
            )
        )
    return views


def _changed(pool: Pool, digest: str, parents: tuple[str, ...]) -> tuple[str, ...]:
    before = pool.by_digest.get(parents[0]) if parents else None
    if before is None:
        return ()
    old = dict(before.components)
    return tuple(name for name, text in pool.by_digest[digest].components if old.get(name) != text)
