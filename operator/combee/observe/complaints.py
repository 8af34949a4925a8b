"""What a namespace's Warning events say, read once for all runs that wait in it.

The API server keeps no events in its cache: each list of them, however narrow, reads and decodes all of the namespace's.
Asked for every pod that is late, they alone would keep it from answering anything else.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from combee.clients.kubernetes.kube import Kube, Object

FRESH_SECONDS, LONGEST_SECONDS = 3.0, 60.0
SHARE = 20.0
"""A namespace's events are read at most a twentieth of the time: the longer a reading takes, the longer it is believed."""


@dataclass(frozen=True, slots=True)
class _Read:
    """One reading of a namespace."""

    until: float
    by_uid: Mapping[str, list[Object]]
    all: list[Object]


@dataclass(slots=True)
class Complaints:
    """Reads Warning events, a namespace's at once, and believes them for some seconds."""

    kube: Kube
    clock: Callable[[], float] = time.monotonic
    _read: dict[str, _Read] = field(default_factory=dict)
    _reading: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def about(self, what: Mapping[str, Any]) -> list[Object]:
        """The events about one object. ClusterError as of ``Kube.list``."""
        meta = what["metadata"]
        return (await self._of(meta["namespace"])).by_uid.get(meta["uid"], [])

    async def about_kind(self, namespace: str, kind: str) -> list[Object]:
        """The events about all objects of a kind."""
        found = (await self._of(namespace)).all
        return [event for event in found if event["involvedObject"].get("kind") == kind]

    async def _of(self, namespace: str) -> _Read:
        async with self._reading[namespace]:
            known = self._read.get(namespace)
            if known is None or self.clock() >= known.until:
                self._forget()
                known = self._read[namespace] = await self._anew(namespace)
            return known

    async def _anew(self, namespace: str) -> _Read:
        began = self.clock()
        found = await self.kube.list("Event", namespace, fields="type=Warning")
        ended = self.clock()
        by_uid: dict[str, list[Object]] = defaultdict(list)
        for event in found:
            by_uid[event["involvedObject"].get("uid", "")].append(event)
        believed = min(max(FRESH_SECONDS, SHARE * (ended - began)), LONGEST_SECONDS)
        return _Read(ended + believed, dict(by_uid), found)

    def _forget(self) -> None:
        """What nobody asked about in time is not kept for ever."""
        now = self.clock()
        for namespace in [name for name, known in self._read.items() if now >= known.until]:
            del self._read[namespace]
            if not self._reading[namespace].locked():
                del self._reading[namespace]
