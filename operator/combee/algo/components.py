"""Groups of similar texts: the group-by of ``merge: Structured``, without a model.

Two texts are similar when their numbers and identifiers are equal and the Jaccard similarity of
their token sets reaches a threshold; groups are the connected components. The join is exact: texts
are blocked by anchors, and within a block prefix and length filters (Bayardo et al. 2007, "All
pairs"; Xiao et al. 2008) only drop pairs that cannot reach the threshold. A block whose texts share
few words, where filters drop little, is joined by matrix products instead: the same partition.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from combee.algo.text import anchors, jaccard, token_set
from combee.errors import BugError

DEFAULT_THRESHOLD = 0.6
_SLACK = 1e-9
_TILE = 1024
_SECONDS_PER_CANDIDATE = 3e-7
_SECONDS_PER_CELL = 3e-9
_SECONDS_PER_PRODUCT = 4e-11

_Row = tuple[list[int], frozenset[str], int]
"""Token ranks (rare first), the token set, the index of a text that has it."""


class _Unions:
    """Union-find with path halving; the smaller index becomes the root."""

    def __init__(self, n: int) -> None:
        self.size = n
        self._parent = list(range(n))

    def find(self, i: int) -> int:
        parent = self._parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        a, b = self.find(i), self.find(j)
        self._parent[max(a, b)] = min(a, b)

    def roots(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        """``find`` of every member at once."""
        parent = np.array(self._parent, dtype=np.int64)
        roots = parent[members]
        while not np.array_equal(roots, parent[roots]):
            roots = parent[roots]
        return roots


def similarity_components(
    texts: Sequence[str], *, threshold: float = DEFAULT_THRESHOLD, cap: int
) -> list[list[int]]:
    """Indices of ``texts`` in groups of at most ``cap``; every index once, singletons included.

    A group is a connected component of the similarity above; one larger than ``cap`` is split into
    the fewest even parts in canonical order (by text, then index), which keeps near-equal texts
    together. Groups, and the members of a group, come in canonical order too, so the partition of
    the texts does not depend on the order in which they were given. Empty input gives []. Raises
    ``BugError`` for cap < 1 or a threshold outside (0, 1]. Source: DESIGN section 5 (group-by),
    section 6 (no model). Cost: near-linear for texts that differ, 3 s for
    20,000 short texts; quadratic, with a small constant (10 s), when all share the same few words.

    >>> texts = ["add cost of 5", "use ROI", "Add the cost of 5", "add cost of 6"]
    >>> similarity_components(texts, cap=8)
    [[2, 0], [3], [1]]
    """
    if cap < 1:
        raise BugError(f"cap must be at least 1, not {cap}", where="similarity_components")
    members: dict[int, list[int]] = defaultdict(list)
    labels = similarity_labels(texts, threshold=threshold)
    for i in sorted(range(len(texts)), key=lambda i: (texts[i], i)):
        members[labels[i]].append(i)
    groups: list[list[int]] = []
    for component in members.values():
        parts = -(-len(component) // cap)
        bounds = [len(component) * k // parts for k in range(parts + 1)]
        groups.extend(component[bounds[k] : bounds[k + 1]] for k in range(parts))
    return groups


def similarity_labels(
    texts: Sequence[str], *, threshold: float = DEFAULT_THRESHOLD, same_condition: bool = False
) -> list[int]:
    """Component number of each text: 0, 1, ... in order of first appearance, shape (len(texts),).

    Equal numbers where texts are connected by pairs of equal numbers and identifiers (with
    ``same_condition`` an equal condition as well) and a token-set Jaccard >= ``threshold``. Empty
    gives []. ``BugError`` for a threshold outside (0, 1]. Source and cost as
    ``similarity_components``.

    >>> similarity_labels(["use ROI", "add cost of 5", "Use ROI!"])
    [0, 1, 0]
    """
    if not 0 < threshold <= 1:
        raise BugError(f"threshold must be in (0, 1], not {threshold}", where="similarity_labels")
    unions = _Unions(len(texts))
    blocks: dict[tuple[frozenset[str], ...], dict[frozenset[str], int]] = defaultdict(dict)
    for i, text in enumerate(texts):
        text_anchors = anchors(text)
        key = (
            text_anchors.numbers,
            text_anchors.identifiers,
            text_anchors.condition if same_condition else frozenset(),
        )
        first = blocks[key].setdefault(token_set(text), i)
        unions.join(first, i)
    for block in blocks.values():
        if len(block) > 1:
            _join_block(block, threshold, unions)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(unions.find(i), len(numbers)) for i in range(len(texts))]


def _join_block(block: dict[frozenset[str], int], threshold: float, unions: _Unions) -> None:
    """Join all pairs of distinct token sets in a block whose Jaccard reaches the threshold.

    By prefix filter or by matrix products, whichever is estimated to be faster; both are exact.
    """
    frequency = Counter(token for tokens in block for token in tokens)
    rank = {token: k for k, (token, _) in enumerate(sorted(frequency.items(), key=lambda tc: (tc[1], tc[0])))}
    rows: list[_Row] = [(sorted(rank[token] for token in tokens), tokens, i) for tokens, i in block.items()]
    rows.sort(key=lambda row: (len(row[0]), row[0]))
    lonely = sum(count == 1 for count in frequency.values())
    pairs = len(rows) ** 2 / 2
    prefixes = Counter(k for ranks, _, _ in rows for k in ranks[: _prefix(len(ranks), threshold)])
    filtered = sum(count**2 / 2 for count in prefixes.values()) * _SECONDS_PER_CANDIDATE
    products = pairs * (_SECONDS_PER_CELL + (len(rank) - lonely) * _SECONDS_PER_PRODUCT)
    if filtered <= max(products, 0.01):
        _join_by_filter(rows, threshold, unions)
    else:
        _join_by_products(rows, lonely, len(rank), threshold, unions)


def _prefix(size: int, share: float) -> int:
    """Return how many of the rarest tokens must meet a set that shares at least ``share`` of ``size``
    tokens."""
    return size - math.ceil(share * size - _SLACK) + 1


def _join_by_filter(rows: Sequence[_Row], threshold: float, unions: _Unions) -> None:
    """Join similar texts by prefix and length filters; rows are sorted from small to large.

    With tokens ordered from rare to common, sets x, y with |y| <= |x| can only reach the threshold t when the
    first |x| - ceil(t |x|) + 1 tokens of x meet the first |y| - ceil(2t / (1 + t) |y|) + 1 of y, and when |y|
    >= t |x|.
    """
    index: dict[int, list[tuple[int, frozenset[str], int]]] = defaultdict(list)
    indexed = 2 * threshold / (1 + threshold)
    for ranks, tokens, i in rows:
        size = len(ranks)
        shortest = threshold * size - _SLACK
        seen: set[int] = set()
        for k in ranks[: _prefix(size, threshold)]:
            postings = index[k]
            if postings and postings[0][0] < shortest:
                del postings[
                    : next((at for at, row in enumerate(postings) if row[0] >= shortest), len(postings))
                ]
            for _, other, j in postings:
                if j in seen:
                    continue
                seen.add(j)
                if unions.find(i) != unions.find(j) and jaccard(tokens, other) >= threshold:
                    unions.join(i, j)
        for k in ranks[: _prefix(size, indexed)]:
            index[k].append((size, tokens, i))


def _join_by_products(
    rows: Sequence[_Row], lonely: int, words: int, threshold: float, unions: _Unions
) -> None:
    """Join similar texts by their intersections, tile by tile, as products of 0/1 matrices.

    The products are exact in float32. Ranks below ``lonely`` occur in one row only and are left out.
    """
    sizes = np.array([len(ranks) for ranks, _, _ in rows], dtype=np.int64)
    members = np.array([i for _, _, i in rows], dtype=np.int64)
    starts = range(0, len(rows), _TILE)
    for a in starts:
        incidence = _incidence(rows[a : a + _TILE], lonely, words)
        for b in starts[: a // _TILE + 1]:
            if sizes[min(b + _TILE, len(rows)) - 1] < threshold * sizes[a] - _SLACK:
                continue
            root_x, root_y = unions.roots(members[a : a + _TILE]), unions.roots(members[b : b + _TILE])
            if np.all(root_x == root_y[0]) and np.all(root_y == root_y[0]):
                continue
            shared = incidence @ _incidence(rows[b : b + _TILE], lonely, words).T
            either = np.maximum(sizes[a : a + _TILE, None] + sizes[None, b : b + _TILE] - shared, 1)
            similar = (shared / either >= threshold) & (root_x[:, None] != root_y[None, :])
            x, y = np.nonzero(similar)
            for pair in np.unique(root_x[x] * unions.size + root_y[y]).tolist():
                unions.join(*divmod(pair, unions.size))


def _incidence(rows: Sequence[_Row], lonely: int, words: int) -> NDArray[np.float32]:
    matrix = np.zeros((len(rows), words - lonely), dtype=np.float32)
    for position, (ranks, _, _) in enumerate(rows):
        matrix[position, [k - lonely for k in ranks if k >= lonely]] = 1.0
    return matrix
