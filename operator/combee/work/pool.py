"""A bounded worker pool: many items, few coroutines, results in the order of the items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from combee.algo.lengths import longest_first

Item = TypeVar("Item")
Result = TypeVar("Result")

_MISSING = object()


async def pooled(
    items: Sequence[Item],
    work: Callable[[Item], Awaitable[Result]],
    *,
    width: int,
    lengths: Sequence[int] | None = None,
) -> list[Result]:
    """Return ``[await work(item) for item in items]``, at most ``width`` at once, started in order, or by
    their ``lengths`` where these are given (``algo.lengths.longest_first``).

    ``width`` coroutines take items from one queue, so memory grows with ``width`` and not with the
    number of items. The first exception cancels the rest and is raised.
    """
    results: list[object] = [_MISSING] * len(items)
    queue = iter(range(len(items)) if lengths is None else longest_first(lengths))

    async def worker() -> None:
        for index in queue:
            results[index] = await work(items[index])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(width, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from None
    return cast("list[Result]", results)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one exception that a caller can decide on: the first leaf of the group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
