"""Bullet ids: a section's letters and the head of the entry's digest, no two alike in one ledger."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from combee.methods.ace.entries import section_slug
from combee.methods.ace.facts import facts_of
from combee.methods.ace.ledger import Ledger
from combee.methods.ace.resolve import resolve

SHORTEST = 6
"""Fewest hex digits of a digest in an id; more where entries would clash."""


@lru_cache(maxsize=2)
def _lengths(ledger: Ledger) -> dict[str, int]:
    """Return how many hex digits tell each entry from all others of the ledger."""
    digests = list(ledger.texts)
    shared = [_common(a, b) for a, b in pairwise(digests)]
    around = zip([0, *shared], [*shared, 0], strict=True)
    return {d: max(SHORTEST, left + 1, right + 1) for d, (left, right) in zip(digests, around, strict=False)}


def _common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@lru_cache(maxsize=2)
def bullet_ids(ledger: Ledger) -> dict[str, str]:
    """Return each entry's bullet id by digest. Entries of the user's playbook keep their ids."""
    facts, standings = facts_of(ledger), resolve(ledger, "Off").standings
    taken = {line.id for line in facts.lines if line.kind == "bullet"}
    lengths = _lengths(ledger)
    ids = {}
    for digest in ledger.texts:
        if facts.trusted(digest):
            ids[digest] = facts.bullets[digest].id
            continue
        slug, length = section_slug(standings[digest].section), lengths[digest]
        while f"{slug}-{digest[:length]}" in taken and length < len(digest):
            length += 1
        ids[digest] = f"{slug}-{digest[:length]}"
    return ids


def known_ids(ledger: Ledger) -> dict[str, str]:
    """Return digests by bullet id, the inverse of ``bullet_ids``, with every id of the user's playbook."""
    ids = {bullet: digest for digest, bullet in bullet_ids(ledger).items()}
    return ids | {line.id: line.digest for line in facts_of(ledger).lines if line.kind == "bullet"}
