"""Runs and Playbooks as a list shows them, compared with the list before.

A watch may miss a change without a word: after a cluster came back from a snapshot, whose versions are lower
than the one that the watch goes on from, the API server sends nothing until they have grown past it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from combee.clients.kubernetes.kube import Kube
from combee.errors import ClusterError
from combee.operator.tick import Key

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Census:
    """Wakes what a list shows and the list before did not, by version. ``wake``: for each kind."""

    kube: Kube
    namespaces: Collection[str]
    """those that are served; none: all."""
    wake: Mapping[str, Callable[[Key], None]]
    _versions: dict[tuple[str, Key], str] = field(default_factory=dict)

    async def keep(self, every_seconds: float) -> None:
        """Look until cancelled. Where a list fails, the next look finds what it missed."""
        while True:
            await asyncio.sleep(every_seconds)
            try:
                await self.look()
            except ClusterError as error:
                log.warning("objects could not be listed", extra={"error": str(error)})

    async def look(self) -> None:
        """List once, and wake what changed. Raises the ClusterErrors of ``Kube.list``."""
        versions: dict[tuple[str, Key], str] = {}
        for kind in self.wake:
            for namespace in self.namespaces or ("",):
                for one in await self.kube.list(kind, namespace, bare=True):
                    meta = one["metadata"]
                    versions[kind, (meta["namespace"], meta["name"])] = meta["resourceVersion"]
        for (kind, key), version in versions.items():
            if self._versions.get((kind, key)) != version:
                self.wake[kind](key)
        self._versions = versions
