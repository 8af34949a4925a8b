"""The lineages of a pool: who came out of whom, and how each stands."""

from __future__ import annotations

from combee.methods.gepa.pool import Pool
from combee.methods.gepa.standing import mean_score, ranked, scores
from combee.methods.lineage import VariantView


def variants(pool: Pool, shown: str) -> list[VariantView]:
    """The members, best first. ``shown``: the digest of the one that is rendered."""
    found = scores(pool)
    judged = {fact.variant: fact for fact in sorted(pool.judged)}
    views = []
    for digest in ranked(pool):
        origin = min(one for one in pool.origins if one.variant == digest)
        verdict, own = judged.get(digest), found.get(digest, {})
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
