"""Who answers which piece of a shard: its owner, or a pod that is done and helps.

A piece is claimed in the store before it is begun, so that no call is made by two pods. A claim is no
lock: the owner of a shard waits for a helper as long as such work takes, and then does the piece itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from combee.work.context import WorkContext

PATIENCE = 3.0
"""An owner waits for a helper this many times as long as the slowest example took so far."""
LEAST_PATIENCE_SECONDS = 5.0
LOOK_SECONDS = 0.25
LEFT = ".left"


def pieces(positions: list[int], size: int) -> list[list[int]]:
    """Cut the positions into pieces, from their far end.

    >>> pieces([1, 2, 3, 4, 5], 2)
    [[5, 4], [3, 2], [1]]
    """
    backwards = positions[::-1]
    return [backwards[start : start + size] for start in range(0, len(backwards), size)]


@dataclass(slots=True)
class Claims:
    """The claims of one shard, as the pod of shard ``me`` sees them."""

    context: WorkContext
    step: str
    shard: int
    me: int
    slowest_seconds: float = 0.0
    """how long the slowest example took so far."""
    _settled: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    async def take(self, piece: int) -> bool:
        """Claim a piece; return whether it is ours. A pod that was started again finds its own claims."""
        store, claim, path = self.context.store, str(self.me).encode(), self._path(piece)
        return await store.aput_new(path, claim) or await store.aget(path) == claim

    async def leave(self, piece: int, given: bytes = b"") -> None:
        """Say that this pod works on a piece no more: it has answered it, or never will. ``given``: what it
        leaves to those who wait."""
        await self.context.store.aput_new(f"{self._path(piece)}{LEFT}", given)

    async def settled(self, piece: int) -> None:
        """Wait until the owner may begin a piece. What a helper answered is in the memo by then."""
        if piece not in self._settled:
            self._settled[piece] = asyncio.ensure_future(self._settle(piece))
        await asyncio.shield(self._settled[piece])

    async def _settle(self, piece: int) -> None:
        if not await self.take(piece):
            await self.left(piece)

    async def left(self, piece: int) -> bytes:
        """Wait until the pod that claimed a piece works on it no more, and return what it left; nothing where
        it takes too long."""
        clock, path = self.context.clock, f"{self._path(piece)}{LEFT}"
        until = clock() + max(LEAST_PATIENCE_SECONDS, PATIENCE * self.slowest_seconds)
        while (given := await self.context.store.aget(path)) is None and clock() < until:  # noqa: ASYNC110 - another pod writes it
            await asyncio.sleep(LOOK_SECONDS)
        return given or b""

    def _path(self, piece: int) -> str:
        return f"{claims_path(self.context.prefix, self.step)}/{self.shard:05d}-{piece:05d}"


def claims_path(prefix: str, step: str) -> str:
    """Return the folder of the claims of a step."""
    return f"{prefix}/claims/{step}"
