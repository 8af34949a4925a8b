"""The memo of model calls: each answer is stored durably under the key of its request.

Each call has one small file at ``memo/<2>/<key>``. The first writer wins, so two pods that answered
the same request agree on one answer. A damaged record counts as absent and is replaced. Errors are
never stored. Only the calls in flight are held in memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from combee.clients.model.wire import Answered, CanonicalRequest, Completion, canonical_json
from combee.clients.store.store import Store
from combee.errors import CombeeError

MEMO = "memo"
"""The folder of the records in a store."""


@dataclass(frozen=True, slots=True)
class _Failed:
    error: CombeeError


_Outcome = Completion | _Failed | None
"""The outcome of a flight; None when its owner was cancelled, so that another caller must make the call."""


class Memo:
    """Completions by request key, on a store that many runs may share."""

    def __init__(self, store: Store, folder: str = "", *, earlier: Store | None = None) -> None:
        """``folder``: the store's folder for the records; empty for the memo that all runs share.
        ``earlier``: another store, whose answers are taken over where they are asked for."""
        self._store = store
        self._earlier = earlier
        self._root = f"{folder}/" if folder else ""
        self._flights: dict[str, asyncio.Future[_Outcome]] = {}

    @staticmethod
    def key(request: CanonicalRequest) -> str:
        """Return the call's key: sha256 hex."""
        return request.key

    def path_of(self, key: str) -> str:
        """Return the path in the store of the answer to a call."""
        return f"{self._root}{MEMO}/{key[:2]}/{key}"

    async def get(self, key: str) -> Completion | None:
        """Return the recorded answer; None when there is none, or when its record is damaged."""
        data = await self._store.aget(self.path_of(key))
        if data is None and self._earlier is not None:
            data = await self._earlier.aget(self.path_of(key))
            completion = None if data is None else _decoded(key, data)
            return None if completion is None else await self.put(key, completion)
        return None if data is None else _decoded(key, data)

    async def put(self, key: str, completion: Completion) -> Completion:
        """Record an answer, and return the one that was recorded first."""
        data = _encoded(key, completion)
        if await self._store.aput_new(self.path_of(key), data):
            return completion
        winner = await self.get(key)
        if winner is not None:
            return winner
        await self._store.aput(self.path_of(key), data)
        return completion

    async def once(
        self,
        key: str,
        make: Callable[[], Awaitable[Completion]],
        *,
        slot: AbstractAsyncContextManager[None] | None = None,
    ) -> Answered:
        """Return the recorded answer, or the answer of ``make``, which is then recorded.

        ``slot`` is held from before the call until its answer is recorded, so a process that dies
        loses at most the calls in its slots.

        Equal requests at the same time make one call: the others wait for it and count as hits,
        or get its error. When the caller that makes it is cancelled, a waiting one takes over.
        """
        while (flight := self._flights.get(key)) is not None:
            outcome = await asyncio.shield(flight)
            if isinstance(outcome, _Failed):
                raise outcome.error
            if outcome is not None:
                return Answered(outcome, hit=True)
        own_flight: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
        self._flights[key] = own_flight
        outcome = None
        try:
            outcome = await self.get(key)
            if outcome is not None:
                return Answered(outcome, hit=True)
            async with slot or nullcontext():
                outcome = await self.put(key, await make())
            return Answered(outcome, hit=False)
        except CombeeError as error:
            outcome = _Failed(error)
            raise
        finally:
            del self._flights[key]
            own_flight.set_result(outcome)


def _checksum(key: str, completion: Completion) -> str:
    return hashlib.sha256(canonical_json([key, completion.to_json()])).hexdigest()


def _encoded(key: str, completion: Completion) -> bytes:
    return canonical_json(
        {"v": 1, "key": key, "completion": completion.to_json(), "checksum": _checksum(key, completion)}
    )


def _decoded(key: str, data: bytes) -> Completion | None:
    try:
        record = json.loads(data)
        completion = Completion.from_json(record["completion"])
        return completion if record["checksum"] == _checksum(key, completion) else None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
