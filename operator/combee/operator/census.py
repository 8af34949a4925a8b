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
    _versions: dict[tuple[str, str], dict[Key, str]] = field(default_factory=dict)
    """(kind, namespace) -> what its last list showed."""

    async def keep(self, every_seconds: float) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(every_seconds)
            await self.look()

    async def look(self) -> None:
        """List once, and wake what changed. Where a list fails, the next look finds what it missed, and what
        the other lists show is woken all the same."""
        for kind in self.wake:
            for namespace in self.namespaces or ("",):
                try:
                    listed = await self.kube.list(kind, namespace, bare=True)
                except ClusterError as error:
                    log.warning("objects could not be listed", extra={"error": str(error)})
                    continue
                metas = [one["metadata"] for one in listed]
                versions = {(meta["namespace"], meta["name"]): meta["resourceVersion"] for meta in metas}
                before = self._versions.get((kind, namespace), {})
                self._versions[kind, namespace] = versions
                for key, version in versions.items():
                    if before.get(key) != version:
                        self.wake[kind](key)
