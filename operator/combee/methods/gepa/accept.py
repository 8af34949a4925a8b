"""Whether a child may join the pool: on the very minibatch that it was proposed from, it must beat its parent."""

from __future__ import annotations

import math
from collections.abc import Mapping

from combee.methods.gepa.pool import Judged

LEAST_SHARE = 0.5
"""Share of the minibatch that both must have answered for a verdict."""

Answers = Mapping[str, float | None]
"""Score by example; None: the answer was lost, so nothing is known."""


def judge(child: str, before: Answers, after: Answers) -> Judged | None:
    """The verdict: accepted when the sum over the examples that both answered is strictly higher.

    None when fewer than half of the examples of ``before`` were answered by both: a bad day is no verdict.
    Sums are exact (``math.fsum``), so the order of examples cannot matter.

    >>> judge("c", {"1": 0.0, "2": 1.0}, {"1": 1.0, "2": 1.0})
    Judged(variant='c', accepted=True, gain=1.0, examples=2)
    >>> judge("c", {"1": 0.0, "2": 1.0}, {"1": None, "2": 1.0})
    Judged(variant='c', accepted=False, gain=0.0, examples=1)
    """
    pairs = [
        (known, seen)
        for example, known in before.items()
        if known is not None and (seen := after.get(example)) is not None
    ]
    if not pairs or len(pairs) < LEAST_SHARE * len(before):
        return None
    gain = math.fsum(seen for _, seen in pairs) - math.fsum(known for known, _ in pairs)
    return Judged(child, gain > 0, gain, len(pairs))


def holds_up(child: Mapping[str, float], *others: Mapping[str, float]) -> tuple[bool, float, int]:
    """(whether ``child`` scores at least what the best of ``others`` does, by how much in sum, on how many examples),
    all on the examples that every one of them has a score for. False where there is none.

    >>> holds_up({"1": 1.0, "2": 0.0}, {"1": 1.0}, {"1": 0.0, "2": 1.0})
    (True, 0.0, 1)
    """
    common = sorted(set(child).intersection(*others))
    if not common:
        return False, 0.0, 0
    sums = [math.fsum(one[example] for example in common) for one in (child, *others)]
    gain = sums[0] - max(sums[1:])
    return gain >= 0, gain, len(common)
