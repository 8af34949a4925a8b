"""The plot of a comparison: what is drawn as an interval, and labels that cover nobody else's point."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from combee.algo.stats import mean_interval
from combee.compare.labels import Box, place
from combee.compare.plot import drawn_interval


def boxes(anchors: list[Box]) -> tuple[list[Box], list[Box]]:
    points = [Box(one.x, one.y, 7, 7) for one in anchors]
    moved = place(anchors, points)
    return points, [
        Box(a.x + right, a.y + up, a.width, a.height) for a, (right, up) in zip(anchors, moved, strict=True)
    ]


@pytest.mark.parametrize("apart", [0.0, 3.0, 12.0])
def test_labels_of_a_crowd_cover_no_point_and_no_other_label(apart: float) -> None:
    anchors = [Box(100 + apart * n, 50 + apart * (n % 2), 8, 10) for n in range(5)]
    points, labels = boxes(anchors)
    assert all(label.shared(point) == 0 for label in labels for point in points)
    assert all(one.shared(other) == 0 for one, other in combinations(labels, 2))


def test_where_no_place_is_free_a_label_covers_the_least() -> None:
    (moved,) = place([Box(0, 0, 8, 10)], [Box(0, 0, 500, 500), Box(50, 50, 100, 100)])
    assert moved[0] < 0 or moved[1] < 0


@pytest.mark.parametrize(
    ("scores", "drawn"),
    [
        ([0.6], (0.6, 0.6)),
        ([0.5, 0.7], (0.6, 0.6)),
        ([0.99, 0.8, 1.0], (pytest.approx(0.651, abs=1e-3), 1.0)),
        ([0.0, 0.1, 0.0], (0.0, pytest.approx(0.177, abs=1e-3))),
    ],
    ids=["one seed", "two seeds agree by luck", "never beyond one", "never below zero"],
)
def test_an_interval_is_drawn_from_three_seeds_on_and_within_what_a_score_can_be(
    scores: list[float], drawn: tuple[Any, Any]
) -> None:
    row: Any = SimpleNamespace(score=mean_interval(scores))
    assert drawn_interval(row) == drawn
