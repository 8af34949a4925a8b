"""Deletes kept traffic when its time is over: whoever has the store deletes it, whoever wrote it.

Each Playbook's folder says itself how long its content is kept, since the Playbook may be gone by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from combee.names import traffic_folder

_ROOT, _STATED, _MEMO = "traffic", "retention", "memo"


class TrafficStore(Protocol):
    """The part of a store that is needed here."""

    async def alist(self, prefix: str = "") -> Sequence[str]: ...

    async def aget(self, path: str) -> bytes | None: ...

    async def aput(self, path: str, data: bytes) -> None: ...

    def delete(self, path: str) -> None: ...


def memo_folder(playbook: str, comparison: str, since: int) -> str:
    """Return the folder of what a comparison's judge was told. ``since``: its start, seconds since 1970."""
    return f"{traffic_folder(playbook)}/{_MEMO}/{since}-{comparison}"


async def state(store: TrafficStore, playbook: str, seconds: float) -> None:
    """Say in a Playbook's folder how long its content is kept. Raises StoreError."""
    path, statement = f"{traffic_folder(playbook)}/{_STATED}", f"{seconds:.0f}".encode()
    if await store.aget(path) != statement:
        await store.aput(path, statement)


async def sweep(
    store: TrafficStore, stated: Mapping[str, float], now: float, *, ending: Collection[str] = ()
) -> int:
    """Delete what is older than its retention and return how many objects that were. Raises StoreError.

    ``stated``: the retention of known Playbooks, in seconds. For others their folder's own statement counts,
    and a folder without one is left alone. ``ending``: Playbooks of which no more comes: their statement goes
    with the last of their content. That of others stays, since a writer states it only once.
    """
    folders: dict[str, list[str]] = {}
    for path in await store.alist(_ROOT):
        folders.setdefault(path.split("/")[1], []).append(path)
    deleted = 0
    for playbook, paths in folders.items():
        own = f"{traffic_folder(playbook)}/{_STATED}"
        seconds = stated.get(playbook, _number(await store.aget(own)))
        if seconds is None:
            continue
        over = [path for path in paths if (at := written(path)) is not None and at + seconds < now]
        if playbook in ending and len(over) == len(paths) - 1 and own in paths:
            over.append(own)
        for path in over:
            await asyncio.to_thread(store.delete, path)
        deleted += len(over)
    return deleted


def written(path: str) -> float | None:
    """Return when an object was written, by its name, in seconds since 1970; of the memo when its comparison
    began.

    >>> written("traffic/formula/pairs/t-1/1000-ab-000001.jsonl")
    1000.0
    >>> written("traffic/formula/memo/900-t-1/memo/ab/abcd")
    900.0
    """
    parts = path.split("/")
    name = parts[3] if len(parts) > 4 and parts[2] == _MEMO else parts[-1]
    head = name.partition("-")[0]
    return float(head) if head.isascii() and head.isdigit() else None


def _number(data: bytes | None) -> float | None:
    return float(data) if data is not None and data.isdigit() else None
