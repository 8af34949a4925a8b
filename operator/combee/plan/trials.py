"""Trial iterations: sizes worth measuring, learned from and charged like any other iteration."""

from __future__ import annotations

from collections.abc import Sequence

from combee.algo.drift import SPREAD

EPOCH_SHARE = 0.2
"""All trials of an epoch together take at most this share of its examples."""


def allowance(train_rows: int) -> int:
    """Examples that the trials of an epoch may take.

    >>> allowance(250)
    50
    """
    return int(EPOCH_SHARE * train_rows + 1e-9)


def trial_order(sizes: Sequence[int], examples: int) -> tuple[int, ...]:
    """The candidates to try with ``examples`` to spend: the largest that leaves room for the smallest,
    the smallest, the largest of the rest, and so on, so that size and time of day are not confounded.

    Nothing where not even two fit: one size tells no slope.

    >>> trial_order((5, 10, 25, 50, 100), 200)
    (100, 5, 50, 10, 25)
    >>> trial_order((5, 10, 25, 50, 100), 50)
    (25, 5, 10)
    >>> trial_order((5, 10, 25), 14)
    ()
    """
    left, rest = examples, sorted(set(sizes))
    order: list[int] = []
    while rest:
        if len(order) % 2:
            pick = rest[0]
        else:
            room = left - (rest[0] if not order else 0)
            pick = max((size for size in rest if size <= room and (order or size > rest[0])), default=0)
        if not pick or pick > left:
            break
        order.append(pick)
        rest.remove(pick)
        left -= pick
    return tuple(order) if len(order) > 1 else ()


def next_trial(
    sizes: Sequence[int], *, seen: Sequence[int], train_rows: int, spent: int, at_most: float
) -> int | None:
    """The next size to try, or None when nothing is left to try or to spend.

    ``seen``: sizes observed (a candidate within a factor of 1.5 of one counts as observed); ``spent``:
    examples of trials in this epoch; ``at_most``: what the caps and the epoch leave.

    >>> next_trial((5, 10, 25, 50), seen=[25], train_rows=250, spent=25, at_most=64)
    5
    """
    room = min(at_most, allowance(train_rows) - spent)
    for size in trial_order([size for size in sizes if size <= at_most], allowance(train_rows)):
        if size <= room and not any(max(size, one) < SPREAD * min(size, one) for one in seen):
            return size
    return None
