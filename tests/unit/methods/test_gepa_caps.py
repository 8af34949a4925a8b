"""10,000 records: whatever was learned of them, no call is given more than its caps."""

from __future__ import annotations

import pytest
from gepa_makers import lesson

from combee.algo.tokens import estimate_tokens
from combee.methods.components.pool import MAIN
from combee.methods.gepa import GepaMethod, Terms
from combee.methods.gepa.method import LAST_CALL
from combee.methods.protocol import Rendered


@pytest.mark.parametrize(("fan_in", "max_tokens"), [(32, 24_000), (4, 24_000), (1000, 6_000)])
def test_the_last_call_is_within_fan_in_and_tokens(fan_in: int, max_tokens: int) -> None:
    method = GepaMethod(Terms(budget_tokens=2000))
    learned = [
        lesson(f"Rule {n}: multiply item R-{n:05d} by {n}.25 where the year is {1900 + n % 100}.", f"{n}@0")
        for n in range(10_000)
    ]
    grouping = method.group(learned, cap=fan_in, max_tokens=max_tokens)
    (cluster,) = grouping.clusters
    assert len(cluster) + len(grouping.passed) == len(learned)
    text = "x" * 4 * 1900
    asked = method.merge_prompt(Rendered(text, estimate_tokens(text), ids={"component": MAIN}), cluster)
    assert len(cluster) == min(fan_in, LAST_CALL)
    assert sum(estimate_tokens(message.content) for message in asked.messages) <= max_tokens
