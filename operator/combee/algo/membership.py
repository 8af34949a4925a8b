"""Which examples belong where: the order of an epoch, a batch, a pod's shard, heldOut's halves.

An IterationPlan holds parameters and a seed, never lists of ids (DESIGN section 4); these functions compute
the lists from it.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence

from combee.algo.grouping import grouped
from combee.algo.seeds import canonical_json, permutation, rng
from combee.errors import BugError


def epoch_order(ids: Sequence[str], seed: int, epoch: int, *, in_order: bool = False) -> list[str]:
    """Every id once, in the order in which ``epoch`` visits them.

    A permutation of the *sorted* ids drawn from (seed, epoch), so it does not depend on the order of
    the rows; ``in_order=True`` keeps the data's order (the strategy ``Sequential``). Empty ids give
    an empty list; repeated ids raise ``BugError`` (``tasks`` has merged or refused them).
    Source: DESIGN section 4. Cost: O(n log n).

    >>> sorted(epoch_order(["3", "1", "2"], 7, 0))
    ['1', '2', '3']
    >>> epoch_order(["3", "1", "2"], 7, 0, in_order=True)
    ['3', '1', '2']
    """
    if len(set(ids)) != len(ids):
        raise BugError("example ids repeat", where="epoch_order", fix="Merge equal rows before planning.")
    if in_order:
        return list(ids)
    ordered = sorted(ids)
    return [ordered[i] for i in permutation(len(ordered), rng(seed, "epoch", epoch)).tolist()]


def batch(
    ids: Sequence[str], seed: int, epoch: int, offset: int, size: int, *, in_order: bool = False
) -> list[str]:
    """The ids at ``offset .. offset + size`` of the epoch's order: the examples of one iteration.

    Shorter at the end of the epoch, empty beyond it. Batches of any sizes laid end to end partition
    the epoch, which is what lets the batch size change in the middle of it. Negative ``offset`` or
    ``size`` raise ``BugError``. Source: DESIGN section 4. Cost: that of ``epoch_order``.

    >>> ids = ["a", "b", "c"]
    >>> batch(ids, 1, 0, 0, 2) + batch(ids, 1, 0, 2, 2) == epoch_order(ids, 1, 0)
    True
    """
    if offset < 0 or size < 0:
        raise BugError(f"offset {offset} and size {size} must not be negative", where="batch")
    return epoch_order(ids, seed, epoch, in_order=in_order)[offset : offset + size]


def shards(token_counts: Sequence[int], shards: int) -> list[list[int]]:
    """Indices dealt over ``shards`` pods so that their expected tokens are balanced.

    Returns exactly ``shards`` lists (shard w is pod w's), each ascending; some are empty when there
    are fewer items than shards. Longest processing time first (Graham 1969: the largest load is at
    most 4/3 - 1/(3 shards) of the best), ties by count, then by shard. ``shards`` < 1 raises
    ``BugError``; negative counts are taken as 0. Source: DESIGN section 5 (Map).
    Cost: O(n log n).

    >>> shards([5, 1, 1, 1, 1, 1], 2)
    [[0], [1, 2, 3, 4, 5]]
    """
    if shards < 1:
        raise BugError(f"shards must be at least 1, not {shards}", where="shards")
    assigned: list[list[int]] = [[] for _ in range(shards)]
    heap = [(0, 0, w) for w in range(shards)]
    for i in sorted(range(len(token_counts)), key=lambda i: (-token_counts[i], i)):
        load, count, w = heapq.heappop(heap)
        assigned[w].append(i)
        heapq.heappush(heap, (load + max(0, token_counts[i]), count + 1, w))
    return [sorted(members) for members in assigned]


def split_select_gate(
    ids: Sequence[str], digest: str, clusters: Mapping[str, str] | None = None
) -> tuple[list[str], list[str]]:
    """heldOut's two halves: ``select`` (search may look often) and ``gate`` (one look a promotion).

    Ids are sorted by SHA-256 of (digest, id) and cut in the middle; ``select`` gets the odd one. The
    split follows the data's digest, so nobody can choose it by seed. Both lists are in hash order,
    independent of the order given. Empty ids give two empty lists. Where ids have ``clusters``, it is
    clusters that are sorted and cut, and none lies on both sides. Source: DESIGN section 5 (heldOut).
    Cost: O(n log n).

    >>> select, gate = split_select_gate(["1", "2", "3"], "d")
    >>> len(select), len(gate), sorted(select + gate)
    (2, 1, ['1', '2', '3'])
    """
    members = grouped(sorted(ids), lambda i: (clusters or {}).get(i, i))
    hashed = sorted((hashlib.sha256(canonical_json([digest, name])).hexdigest(), name) for name in members)
    middle = (len(hashed) + 1) // 2
    select, gate = (
        [i for _, name in half for i in members[name]] for half in (hashed[:middle], hashed[middle:])
    )
    return select, gate
