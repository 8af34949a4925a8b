"""Waiting for what happens elsewhere: as long as it takes, and never longer than a test may."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 240.0
"""Long enough for the slowest machine: whoever waits so long waits for what will never come."""


async def until(condition: Callable[[], object]) -> None:
    """Give other tasks their turns until the condition holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], object]) -> None:
    """Let other threads and processes go on until the condition holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "what is waited for does not come"
        time.sleep(0.01)
