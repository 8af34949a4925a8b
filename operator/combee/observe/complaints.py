"""The Warning events of a namespace, read once for all runs that wait in it.

The API server keeps no events in its cache: each list of them, however narrow, reads and decodes all events
of the namespace. Reading them for each late pod would keep the server from answering anything else.
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
"""Reading a namespace's events takes at most a twentieth of the time: a slow reading is used for longer."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One reading of a namespace's events, used ``until`` that moment of the clock."""

    until: float
    by_uid: Mapping[str, list[Object]]
    all: list[Object]


@dataclass(slots=True)
class Complaints:
    """Reads all Warning events of a namespace at once, and uses them for some seconds."""

    kube: Kube
    clock: Callable[[], float] = time.monotonic
    _readings: dict[str, _Reading] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def about(self, target: Mapping[str, Any]) -> list[Object]:
        """Return the events about one object. Raises the ClusterErrors of ``Kube.list``."""
        meta = target["metadata"]
        return (await self._of(meta["namespace"])).by_uid.get(meta["uid"], [])

    async def about_kind(self, namespace: str, kind: str) -> list[Object]:
        """Return the events about all objects of a kind."""
        events = (await self._of(namespace)).all
        return [event for event in events if event["involvedObject"].get("kind") == kind]

    async def _of(self, namespace: str) -> _Reading:
        async with self._locks[namespace]:
            reading = self._readings.get(namespace)
            if reading is None or self.clock() >= reading.until:
                self._forget()
                reading = self._readings[namespace] = await self._list_events(namespace)
            return reading

    async def _list_events(self, namespace: str) -> _Reading:
        started_at = self.clock()
        events = await self.kube.list("Event", namespace, fields="type=Warning")
        ended_at = self.clock()
        by_uid: dict[str, list[Object]] = defaultdict(list)
        for event in events:
            by_uid[event["involvedObject"].get("uid", "")].append(event)
        lifetime = min(max(FRESH_SECONDS, SHARE * (ended_at - started_at)), LONGEST_SECONDS)
        return _Reading(ended_at + lifetime, dict(by_uid), events)

    def _forget(self) -> None:
        """Forget the readings that are out of date, also of namespaces that nobody asks about any more."""
        now = self.clock()
        for namespace in [name for name, reading in self._readings.items() if now >= reading.until]:
            del self._readings[namespace]
            if not self._locks[namespace].locked():
                del self._locks[namespace]
