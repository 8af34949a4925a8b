"""Writes sampled traffic to the artifact store: lines of JSON, in objects that are written whole.

Each process numbers its records under its own stream name, so that readers see each line once. An object's
name says when it was written. Any gateway deletes it once its retention is over, even when traffic is no
longer recorded. A killed process loses at most FLUSH_SECONDS of lines.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from combee.api.common import uri_scheme
from combee.api.gateway import Capture
from combee.assembly.crash import bug_text
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
from combee.errors import CombeeError
from combee.names import captured_folder, traffic_folder
from combee.work.traffic import sweeping

log = logging.getLogger(__name__)
FLUSH_SECONDS, SWEEP_SECONDS = 5.0, 300.0
MOST_BYTES = 16 * 1024 * 1024
"""most bytes held for all folders while a store cannot be written; beyond it the folder that holds most drops
its oldest lines."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one Playbook's traffic is kept."""

    uri: str
    """an address, or a folder in the pod."""
    secret: tuple[tuple[str, str], ...] = ()
    """keys and values of the store's Secret."""
    retention_seconds: float = Capture().retention_seconds

    def __repr__(self) -> str:
        return f"Place({self.uri!r})"


@dataclass(slots=True)
class _Heap:
    """Lines of one folder that wait to be written."""

    playbook: str
    place: Place
    lines: list[bytes] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class Spool:
    """Queues and writes records: ``keep`` returns at once; ``run`` writes and deletes in the background."""

    lost: Callable[[str, int], None] = lambda playbook, lines: None
    """called with a Playbook and the number of its lines that were dropped."""
    clock: Callable[[], float] = time.time
    stream: str = field(default_factory=lambda: f"{int(time.time()):08x}-{secrets.token_hex(4)}")
    """the name of this process's numbering. Streams of later processes sort after it."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _heaps: dict[str, _Heap] = field(default_factory=dict)
    _stores: dict[Place, Store] = field(default_factory=dict)
    _retentions: dict[str, Place] = field(default_factory=dict)
    _written: int = 0
    _last_error: str = ""

    def keep(self, playbook: str, comparison: str, place: Place, record: Mapping[str, Any]) -> None:
        """Queue a record: of a comparison's pair, or of a captured request where ``comparison`` is empty."""
        folder = traffic_folder(playbook, comparison) if comparison else captured_folder(playbook)
        number = self._numbers.get(folder, 0)
        self._numbers[folder] = number + 1
        line = json.dumps({"stream": self.stream, "number": number, **record}, ensure_ascii=False).encode()
        heap = self._heaps.setdefault(folder, _Heap(playbook, place))
        heap.place = place
        heap.lines.append(line)
        heap.size += len(line) + 1
        while sum(waiting.size for waiting in self._heaps.values()) > MOST_BYTES:
            fullest = max(self._heaps.values(), key=lambda waiting: waiting.size)
            fullest.size -= len(fullest.lines.pop(0)) + 1
            self.lost(fullest.playbook, 1)

    async def run(self, places: Callable[[], Mapping[str, Place]]) -> None:
        """Write queued records and delete expired objects until cancelled. ``places``: of all Playbooks,
        now."""
        last_sweep = self.clock()
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                try:
                    await self.flush()
                    if self.clock() - last_sweep >= SWEEP_SECONDS:
                        last_sweep = self.clock()
                        for playbook, place in places().items():
                            await self.sweep(playbook, place)
                except Exception as error:  # recording traffic must never stop serving it
                    log.error(bug_text(error), extra={"part": "spool"})
        finally:
            await self.flush()
            for store in self._stores.values():
                store.close()

    async def flush(self) -> None:
        """Write all queued lines. When a store fails, its lines stay queued and the failure is logged
        once."""
        for folder, heap in list(self._heaps.items()):  # records arrive during a write
            lines, heap.lines, heap.size = heap.lines, [], 0
            if not lines:
                continue
            name = f"{int(self.clock())}-{self.stream}-{self._written:06d}.jsonl"
            self._written += 1
            try:
                await self._state_retention(heap)
                await self._store(heap.place).aput_new(f"{folder}/{name}", b"\n".join(lines) + b"\n")
                self._last_error = ""
            except CombeeError as error:
                heap.lines = [*lines, *heap.lines]
                heap.size = sum(len(line) + 1 for line in heap.lines)
                self._warn(error)

    async def sweep(self, playbook: str, place: Place) -> int:
        """Delete expired objects of any process in a Playbook's place and return how many were deleted."""
        try:
            return await sweeping.sweep(self._store(place), {playbook: place.retention_seconds}, self.clock())
        except CombeeError as error:
            self._warn(error)
        return 0

    async def _state_retention(self, heap: _Heap) -> None:
        """Write the Playbook's retention to the store, once and when it changes: a sweeper may not know it
        otherwise."""
        if self._retentions.get(heap.playbook) != heap.place:
            await sweeping.state(self._store(heap.place), heap.playbook, heap.place.retention_seconds)
            self._retentions[heap.playbook] = heap.place

    def _store(self, place: Place) -> Store:
        if place not in self._stores:
            options = s3_options(dict(place.secret)) if uri_scheme(place.uri) == "s3" else None
            self._stores[place] = Store.open(place.uri, options=options)
        return self._stores[place]

    def _warn(self, error: CombeeError) -> None:
        if str(error) != self._last_error:
            self._last_error = str(error)
            log.warning("traffic cannot be kept", extra={"error": self._last_error})
