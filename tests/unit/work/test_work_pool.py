"""A bounded pool of workers."""

from __future__ import annotations

import pytest

from combee.work.pool import pooled


@pytest.mark.parametrize(
    ("lengths", "order"), [(None, [5, 900, 6, 1000]), ([5, 900, 6, 1000], [900, 1000, 5, 6])]
)
async def test_a_pool_begins_with_the_longest_and_keeps_the_order_of_the_results(
    lengths: list[int] | None, order: list[int]
) -> None:
    begun: list[int] = []

    async def work(item: int) -> int:
        begun.append(item)
        return item

    items = [5, 900, 6, 1000]
    assert await pooled(items, work, width=1, lengths=lengths) == items
    assert begun == order
