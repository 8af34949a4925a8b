"""Partial credit is averaged over all examples: failed ones are 0, and a task without any has none."""

from __future__ import annotations

import pytest

from combee.work.rollouts import mean_partial

CASES = [
    ([], None),
    ([None, None], None),
    ([0.0, 0.0], 0.0),
    ([0.75, 1.0], 0.875),
    ([0.5, None, 1.0], 0.5),
]


@pytest.mark.parametrize(("partials", "expected"), CASES)
def test_mean_partial(partials: list[float | None], expected: float | None) -> None:
    assert mean_partial(iter(partials)) == expected
