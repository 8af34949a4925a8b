"""Scores by cluster: rows that belong together (one customer's, one repository's) are one observation.

Rows of one cluster rise and fall together, so that an interval over rows is too narrow. Here a cluster's
score is the mean of its rows', and what follows (means, paired differences, tests, power) is over clusters.
A cluster counts once, however many rows it has; where all have one row nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def by_cluster(scores: Mapping[str, float], clusters: Mapping[str, str]) -> dict[str, float]:
    """Return the mean score of each cluster; ``clusters``: the cluster of an example by the example's id. One
    that has none stands for itself.

    >>> by_cluster({"1": 1.0, "2": 0.0, "3": 1.0}, {"1": "a", "2": "a", "3": "b"})
    {'a': 0.5, 'b': 1.0}
    """
    members: dict[str, list[float]] = {}
    for example, score in scores.items():
        members.setdefault(clusters.get(example, example), []).append(score)
    return {name: math.fsum(values) / len(values) for name, values in members.items()}


def whole_share(scores: Mapping[str, float], clusters: Mapping[str, str]) -> float | None:
    """Return the share of clusters whose rows all score 1; None without clusters. Over scenarios it is
    AppWorld's scenario goal completion (Trivedi et al. 2024).

    >>> whole_share({"1": 1.0, "2": 0.0, "3": 1.0}, {"1": "a", "2": "a", "3": "b"})
    0.5
    """
    if not clusters:
        return None
    broken = {clusters.get(example, example) for example, score in scores.items() if score < 1}
    every = {clusters.get(example, example) for example in scores}
    return 1 - len(broken) / len(every)


def sides_by_cluster(kept: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return ``baseline`` and ``best`` by cluster, of what a look keeps: both by example and, where rows have
    them, ``clusters``.

    >>> sides_by_cluster({"baseline": {"1": 0.0, "2": 1.0}, "best": {"1": 1.0, "2": 1.0}})
    {'baseline': {'1': 0.0, '2': 1.0}, 'best': {'1': 1.0, '2': 1.0}}
    """
    clusters = kept.get("clusters", {})
    return {side: by_cluster(kept[side], clusters) for side in ("baseline", "best")}
