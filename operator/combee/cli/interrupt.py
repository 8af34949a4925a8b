"""Ctrl-C and SIGTERM for commands that keep what they have finished."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns. Ctrl-C and SIGTERM cancel it, and KeyboardInterrupt is raised."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
