"""Which items a call is given when it cannot be given all: the strategy ``TopK``. Pure.

Similarity is computed in whole numbers, so that it depends neither on the order of the items nor on how a
machine adds up floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from combee.errors import BugError

_SCALE = 1 << 20
"""Parts that a unit vector's coordinates are counted in; 100,000 sums of products of two fit 64 bits."""
_ROWS = 4096
"""Rows at a time, so that memory does not grow by eight bytes a coordinate."""


def central_first(vectors: NDArray[np.float32], keys: Sequence[str]) -> list[int]:
    """Return the indices 0..n-1, the item most like all the others first.

    ``vectors``: shape (n, d), finite; ``keys``: n different names of the items. Similarity is the cosine to
    the centre of the items, the sum of their unit vectors; it is compared in parts of 2**-20, equal ones by
    ``keys``, so the result does not depend on the order of the items. A vector of zeros has similarity 0. No
    items give []. ``BugError`` when shapes or keys do not fit, or for a value that is not finite. Source:
    DESIGN section 5 (``TopK``). Cost: O(n d + n log n).

    >>> central_first(np.array([[1, 0], [0, 1], [1, 0.1]], dtype=np.float32), ["a", "b", "c"])
    [2, 0, 1]
    """
    n = len(keys)
    if vectors.ndim != 2 or len(vectors) != n or len(set(keys)) != n:
        raise BugError(f"{vectors.shape} vectors for {n} keys", where="central_first")
    if not np.isfinite(vectors).all():
        raise BugError("a vector is not finite", where="central_first")
    parts = [_counted(vectors[start : start + _ROWS]) for start in range(0, n, _ROWS)]
    centre = sum((part.sum(axis=0) for part in parts), start=np.zeros(vectors.shape[1], dtype=np.int64))
    likeness = [int(value) for part in parts for value in part @ centre]
    return sorted(range(n), key=lambda index: (-likeness[index], keys[index]))


def _counted(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the unit vectors in whole parts of ``_SCALE``."""
    wide = vectors.astype(np.float64)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = np.divide(wide, largest, out=np.zeros_like(wide), where=largest > 0)
    length = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    unit = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0)
    whole: NDArray[np.float64] = np.rint(unit * _SCALE)
    return whole.astype(np.int64)


def first_that_fit(order: Sequence[int], tokens: Sequence[int], *, most: int, room: int) -> tuple[int, ...]:
    """Return at most ``most`` items, in ``order``, whose tokens together are within ``room``; ascending.

    ``order``: indices into ``tokens``, the best one first. An item that does not fit beside those before it
    is skipped. The first item is always taken, as ``tree.pack`` gives an input over the cap a call of its
    own, which the caller flags. Empty ``order`` gives (). ``BugError`` for ``most`` < 1 or negative tokens.
    Source: DESIGN section 5 (caps of a call). Cost: O(n).

    >>> first_that_fit([2, 0, 1, 3], [50, 60, 10, 30], most=3, room=95)
    (0, 2, 3)
    >>> first_that_fit([1, 0], [10, 500], most=3, room=95)
    (1,)
    """
    if most < 1 or any(tokens[index] < 0 for index in order):
        raise BugError(f"at most {most} items, or negative tokens", where="first_that_fit")
    selected: list[int] = []
    load = 0
    for index in order:
        if len(selected) == most:
            break
        if not selected or load + tokens[index] <= room:
            selected.append(index)
            load += tokens[index]
    return tuple(sorted(selected))
