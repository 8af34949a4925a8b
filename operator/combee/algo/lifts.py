"""Weights by lift: how likely each of several kinds is drawn, by what those drawn before brought. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

FLOOR_SHARE = 0.3
"""Share of all draws that is dealt to the kinds alike, whatever they brought: none is given up."""
DOUBT_TRIES = 2
"""Tries without a lift that are added to each kind's own: one lucky try is no proof."""
DOUBT_LIFT = 0.01
"""Lift that is added to each kind's mean, so that small differences between kinds move little."""


def weights_of(lifts: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return a weight for each kind, by name in order; they sum up to 1. ``lifts``: kind -> what each try of
    it brought; one that brought less than nothing counts as nothing.

    Each weighs at least ``FLOOR_SHARE`` / their number. More lift of a try never lowers its kind's weight,
    nor raises another's; the order of tries does not matter; where none lifted all weigh the same.
    Source: the strategist's rule (raise the operator that lifts held-out the most). Cost: linear.

    >>> weights_of({"insert": [], "delete": []})
    {'delete': 0.5, 'insert': 0.5}
    >>> [round(one, 3) for one in weights_of({"insert": [0.2, 0.1], "delete": [0.0, -0.1]}).values()]
    [0.224, 0.776]
    """
    strengths = {kind: _strength(lifts[kind]) for kind in sorted(lifts)}
    whole = math.fsum(strengths.values())
    alike = FLOOR_SHARE / max(1, len(strengths))
    return {kind: alike + (1 - FLOOR_SHARE) * own / whole for kind, own in strengths.items()}


def _strength(lifts: Sequence[float]) -> float:
    total = math.fsum(max(0.0, lift) for lift in lifts)
    return DOUBT_LIFT + total / (len(lifts) + DOUBT_TRIES)
