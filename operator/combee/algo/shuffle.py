"""The augmented shuffle: deal every reflection to several different leaves of the reduce tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from combee.algo.seeds import permutation
from combee.errors import BugError


def augmented_shuffle(
    n: int, *, copies: int, leaves: int, rng: np.random.Generator
) -> tuple[tuple[int, ...], ...]:
    """``leaves`` tuples of indices 0..n-1: each index in exactly min(copies, leaves) different leaves.

    Leaf sizes differ by at most one, no leaf holds two copies of a reflection, and which leaves
    share reflections is random (a round robin would make twins of neighbouring leaves). It deals
    what a heap keyed by (load, random) deals: each copy to a least-loaded leaf that the reflection
    is not in yet. n = 0 gives ``leaves`` empty tuples. ``copies`` or ``leaves`` < 1 and n < 0 raise
    ``BugError``. Deterministic in ``rng``'s state. Source: Combee section 3 (augmented shuffle),
    DESIGN section 5. Cost: O(p n log n); 0.1 s at n = 100,000, p = 2.

    >>> from combee.algo.seeds import rng
    >>> dealt = augmented_shuffle(4, copies=2, leaves=3, rng=rng(7, "shuffle"))
    >>> sorted(i for leaf in dealt for i in leaf)
    [0, 0, 1, 1, 2, 2, 3, 3]
    >>> sorted(len(set(leaf)) for leaf in dealt)
    [2, 3, 3]
    """
    if n < 0 or copies < 1 or leaves < 1:
        raise BugError(f"n={n}, copies={copies}, leaves={leaves} make no shuffle", where="augmented_shuffle")
    if n == 0:
        return ((),) * leaves
    p = min(copies, leaves)
    order = permutation(n, rng)
    leaf_of_slot = _deal(n * p, p, leaves, rng)
    reflection_of_slot = np.repeat(order, p)
    by_leaf = np.argsort(leaf_of_slot, kind="stable")
    members = reflection_of_slot[by_leaf].tolist()
    ends = np.cumsum(np.bincount(leaf_of_slot, minlength=leaves)).tolist()
    return tuple(tuple(members[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True))


def _deal(slots: int, p: int, leaves: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the leaf of each slot, shape (slots,); slots come in groups of ``p``, one group per reflection.

    A layer raises every leaf's load by one, in a random order. Only a group that straddles two layers can
    meet a leaf twice; the second layer is then reordered to start with leaves that the group has not met.
    """
    layers = -(-slots // leaves)
    draws = np.asarray(rng.bit_generator.random_raw(layers * leaves), dtype=np.uint64)
    order = np.argsort(draws.reshape(layers, leaves), axis=1, kind="stable").astype(np.int64)
    if leaves % p:
        for layer in range(1, layers):
            begun = (layer * leaves) % p
            if begun:
                met = order[layer - 1, leaves - begun :]
                order[layer] = _start_with_new(order[layer], met, p - begun)
    return order.reshape(-1)[:slots]


def _start_with_new(row: NDArray[np.int64], met: NDArray[np.int64], needed: int) -> NDArray[np.int64]:
    """Return ``row`` with its first ``needed`` values not in ``met`` moved to the front, else in order."""
    fresh = np.flatnonzero(~np.isin(row, met))[:needed]
    return np.concatenate([row[fresh], np.delete(row, fresh)])
