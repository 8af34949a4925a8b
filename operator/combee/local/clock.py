"""The wall-clock seconds of a run over all its sessions, killed ones included.

The time of the session under way is written down again and again, so that a kill takes a beat of it at most;
the next session counts that beat in full. So what is remembered is never less than what passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Protocol

from combee.errors import StoreError

BEAT_SECONDS = 1.0


class Ledger(Protocol):
    """Where the seconds are written down."""

    def seconds(self) -> tuple[float, bool]:
        """Return the seconds so far, and whether the session that wrote them ended by itself."""

    def keep_seconds(self, seconds: float, *, ended: bool) -> None:
        """Write them down."""


class RunClock:
    """Counts on from what earlier sessions left."""

    def __init__(self, ledger: Ledger, now: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._now, self._began = ledger, now, now()
        self._lock, self._ended = Lock(), False
        seconds, ended = ledger.seconds()
        self.earlier_seconds = seconds if ended else seconds + BEAT_SECONDS

    def __call__(self) -> float:
        """Return the seconds that the run has been at work."""
        return self.earlier_seconds + self._now() - self._began

    async def beat(self) -> None:
        """Write the seconds down again and again, until cancelled."""
        while True:
            await asyncio.to_thread(self._keep, ended=False)
            await asyncio.sleep(BEAT_SECONDS)

    def stop(self) -> None:
        """Write down that the session ends by itself, after which nothing is written any more."""
        self._keep(ended=True)

    def _keep(self, *, ended: bool) -> None:
        """Write the seconds down; a disk that takes none now may take the next ones."""
        with self._lock, suppress(StoreError):
            if not self._ended:
                self._ended = ended
                self._ledger.keep_seconds(self(), ended=ended)
