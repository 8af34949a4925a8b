"""Where sampled traffic is kept: lines of JSON in the artifact store, in objects that are written whole.

Each process numbers what it keeps under a name of its own, so that whoever reads knows each line once. An
object's name says when it was written; it is deleted after the retention, by whoever comes by, also when nothing more
is kept.
At most FLUSH_SECONDS of lines are lost when a process is killed.
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
from combee.assembly.crash import bug_text
from combee.clients.store.s3 import s3_options
from combee.clients.store.store import Store
from combee.errors import CombeeError
from combee.names import captured_folder, traffic_folder
from combee.work.traffic import sweeping

log = logging.getLogger(__name__)
FLUSH_SECONDS, SWEEP_SECONDS = 5.0, 300.0
MOST_BYTES = 16 * 1024 * 1024
"""held of all folders together while a store cannot be written; beyond it the fullest gives up its oldest lines."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one Playbook's traffic is kept."""

    uri: str
    """an address, or a folder of the pod's."""
    secret: tuple[tuple[str, str], ...] = ()
    """keys and values of its Secret."""
    retention_seconds: float = 604_800.0

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
    """``keep`` takes a record at once; ``run`` writes and deletes."""

    lost: Callable[[str, int], None] = lambda playbook, lines: None
    """told of lines that were given up."""
    clock: Callable[[], float] = time.time
    stream: str = field(default_factory=lambda: f"{int(time.time()):08x}-{secrets.token_hex(4)}")
    """who numbers: this process. Later ones sort after it."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _heaps: dict[str, _Heap] = field(default_factory=dict)
    _stores: dict[Place, Store] = field(default_factory=dict)
    _stated: dict[str, Place] = field(default_factory=dict)
    _written: int = 0
    _failed: str = ""

    def keep(self, playbook: str, test: str, place: Place, record: Mapping[str, Any]) -> None:
        """Keep a record of a test's pair; of a captured request where ``test`` is empty."""
        folder = traffic_folder(playbook, test) if test else captured_folder(playbook)
        number = self._numbers.get(folder, 0)
        self._numbers[folder] = number + 1
        line = json.dumps({"stream": self.stream, "number": number, **record}, ensure_ascii=False).encode()
        heap = self._heaps.setdefault(folder, _Heap(playbook, place))
        heap.place = place
        heap.lines.append(line)
        heap.size += len(line) + 1
        while sum(one.size for one in self._heaps.values()) > MOST_BYTES:
            fullest = max(self._heaps.values(), key=lambda one: one.size)
            fullest.size -= len(fullest.lines.pop(0)) + 1
            self.lost(fullest.playbook, 1)

    async def run(self, places: Callable[[], Mapping[str, Place]]) -> None:
        """For ever: write what came, delete what is too old. ``places``: of all Playbooks, as they are."""
        swept = self.clock()
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                try:
                    await self.flush()
                    if self.clock() - swept >= SWEEP_SECONDS:
                        swept = self.clock()
                        for playbook, place in places().items():
                            await self.sweep(playbook, place)
                except Exception as error:  # what keeps traffic must never end what serves it
                    log.error(bug_text(error), extra={"part": "spool"})
        finally:
            await self.flush()
            for store in self._stores.values():
                store.close()

    async def flush(self) -> None:
        """Write every line that waits. A store that fails keeps its lines waiting, and is logged once."""
        for folder, heap in list(self._heaps.items()):  # others come while one is written
            lines, heap.lines, heap.size = heap.lines, [], 0
            if not lines:
                continue
            name = f"{int(self.clock())}-{self.stream}-{self._written:06d}.jsonl"
            self._written += 1
            try:
                await self._state(heap)
                await self._store(heap.place).aput_new(f"{folder}/{name}", b"\n".join(lines) + b"\n")
                self._failed = ""
            except CombeeError as error:
                heap.lines = [*lines, *heap.lines]
                heap.size = sum(len(line) + 1 for line in heap.lines)
                self._warn(error)

    async def sweep(self, playbook: str, place: Place) -> int:
        """Delete what is older than its retention in a Playbook's place, whosever it was; how many objects."""
        try:
            return await sweeping.sweep(self._store(place), {playbook: place.retention_seconds}, self.clock())
        except CombeeError as error:
            self._warn(error)
        return 0

    async def _state(self, heap: _Heap) -> None:
        """Once, and when it changes: how long it is kept. Whoever sweeps may know nothing else of the Playbook."""
        if self._stated.get(heap.playbook) != heap.place:
            await sweeping.state(self._store(heap.place), heap.playbook, heap.place.retention_seconds)
            self._stated[heap.playbook] = heap.place

    def _store(self, place: Place) -> Store:
        if place not in self._stores:
            options = s3_options(dict(place.secret)) if uri_scheme(place.uri) == "s3" else None
            self._stores[place] = Store.open(place.uri, options=options)
        return self._stores[place]

    def _warn(self, error: CombeeError) -> None:
        if str(error) != self._failed:
            self._failed = str(error)
            log.warning("traffic cannot be kept", extra={"error": self._failed})
