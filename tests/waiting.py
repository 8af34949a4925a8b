"""Waiting for what happens elsewhere: as long as it takes, and never longer than a test may."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from warm import Program

Value = TypeVar("Value")
PATIENCE_SECONDS = 240.0
"""Long enough for the slowest machine: whoever waits so long waits for what will never come."""


async def until(condition: Callable[[], object]) -> None:
    """Give other tasks their turns until the condition holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)


def wait_until(
    what: str, condition: Callable[[], Value], process: Popen[Any] | Program | None = None
) -> Value:
    """Return the first true value of the condition.

    Fails, naming ``what`` is waited for, when it does not come, or when the ``process`` that it should come
    from has ended without it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        ended = process is not None and process.poll() is not None
        if ended and (value := condition()):
            break
        assert not ended, f"the process ended, and {what} did not come"
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)
    return value


@contextmanager
def looking(look: Callable[[], None], every_seconds: float) -> Iterator[None]:
    """Look again and again beside what is done meanwhile."""
    stop = threading.Event()

    def keep() -> None:
        while not stop.wait(every_seconds):
            look()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
