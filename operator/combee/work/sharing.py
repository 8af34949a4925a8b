"""Several pods reduce one batch: who makes which aggregator calls, and how each learns what all of them gave.

Every pod does the whole reduce, and so knows each stage: shuffle and grouping are pure functions of what the
stage before gave. Only the calls of a stage are divided. They are cut into pieces. A pod claims a piece in
the store before it makes its calls, and leaves there what they gave. Once nothing is left to claim, each pod
reads what the others left. So all of them go on from the same bytes, and the first one that is through writes
the receipt of the step.

No pod is needed by the others: a piece that is not done in time is claimed anew by one of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from combee.algo.seeds import digest_of
from combee.errors import DamagedError
from combee.methods.protocol import Update
from combee.plan.types import RoleUsage, Step, Usage, add_usage
from combee.records import Reflection
from combee.work.asker import Asker, Fate, decode_rows
from combee.work.context import WorkContext, line_of
from combee.work.decode import update_of
from combee.work.noted import decode_notes
from combee.work.pieces import LEFT, Claims, claims_path
from combee.work.pool import pooled

if TYPE_CHECKING:
    from combee.work.reduction import Reduction

PIECE_CALLS = 16
"""The most calls of a piece: enough that a stage's files are few beside its calls in the memo."""
TURNS = 4
"""Pieces of each pod at least, so that none is long idle at the end of a stage."""
Inputs = TypeVar("Inputs", bound="Sequence[Reflection] | Sequence[Update]")
Call = Callable[["Reduction", str, int, Inputs], Awaitable[list[Update]]]
"""Makes one call of a stage over an item, whose place is its chain."""


@dataclass(slots=True)
class Sharing:
    """The place of one pod among those that reduce a part of a batch together."""

    step: Step
    shard: int
    part: str
    """which part it is of the texts that the batch is for."""
    slowest_seconds: float = 0.0
    """how long the slowest piece took so far."""


def pieces_of(calls: int, pods: int) -> list[range]:
    """Cut the calls of a stage into pieces, the same in every pod.

    >>> pieces_of(3, 2), len(pieces_of(12_500, 2))
    ([range(0, 1), range(1, 2), range(2, 3)], 782)
    """
    size = max(1, min(PIECE_CALLS, calls // (TURNS * pods)))
    return [range(start, min(start + size, calls)) for start in range(0, calls, size)]


def order_of(pieces: int, pods: int, shard: int) -> list[int]:
    """Return the order in which a pod claims pieces: its own part, then those of the others from their far
    ends.

    >>> [order_of(6, 3, shard) for shard in range(3)]
    [[0, 1, 3, 2, 5, 4], [2, 3, 5, 4, 1, 0], [4, 5, 1, 0, 3, 2]]
    """
    parts = [list(range(pieces * pod // pods, pieces * (pod + 1) // pods)) for pod in range(pods)]
    others = [parts[(shard + ahead) % pods][::-1] for ahead in range(1, pods)]
    return [piece for part in (parts[shard], *others) for piece in part]


async def made_together(
    reduction: Reduction, sharing: Sharing, stage: str, items: Sequence[Inputs], call: Call[Inputs]
) -> list[list[Update]]:
    """Return what each call of a stage gave, in whichever pod it was made."""
    of = _Stage(reduction, sharing, stage, items, call)
    reduction.context.progress.begin(stage, len(items))
    cut = pieces_of(len(items), sharing.step.shards)
    order = order_of(len(cut), sharing.step.shards, sharing.shard)
    width = 1 + -(-reduction.context.concurrency // max(1, len(cut[0]))) if cut else 1
    await pooled(order, lambda piece: of.make(piece, cut[piece]), width=width)
    given = await pooled(range(len(cut)), lambda piece: of.given(piece, cut[piece]), width=width)
    return [updates for piece in given for updates in of.take_in(piece)]


@dataclass(slots=True)
class _Stage(Generic[Inputs]):
    """One stage of a part, as one pod sees it."""

    reduction: Reduction
    sharing: Sharing
    name: str
    items: Sequence[Inputs]
    call: Call[Inputs]
    folder: str = ""

    def __post_init__(self) -> None:
        """Name the stage by what its calls are over, so that what another pod left is of the same calls."""
        over = [
            [one.id if isinstance(one, Reflection) else line_of(one).decode() for one in item]
            for item in self.items
        ]
        key = digest_of([self.sharing.step.shards, self.sharing.part, self.name, over])[:16]
        self.folder = f"{self.sharing.step.name}/{key}"

    def _claims(self, turn: int) -> Claims:
        slowest = self.sharing.slowest_seconds
        return Claims(self.reduction.context, self.folder, turn, self.sharing.shard, slowest)

    async def make(self, piece: int, places: range, turn: int = 0) -> bool:
        """Make the calls of a piece, if this pod may claim it; return whether it did."""
        claims, context = self._claims(turn), self.reduction.context
        if not await claims.take(piece):
            return False
        began, digest = context.clock(), ""
        try:
            digest = await context.store.aput_blob(await self._made(places))
        finally:
            await claims.leave(piece, digest.encode())
        self.sharing.slowest_seconds = max(self.sharing.slowest_seconds, context.clock() - began)
        return True

    async def _made(self, places: range) -> bytes:
        """Make the calls of a piece, and return all that they gave and used."""
        whole = self.reduction
        asker = whole.context.asker(whole.plan)
        part = replace(whole, asker=asker, sharing=None, lost_calls=0, unknown_ids=0)
        called = await pooled(
            list(places),
            lambda place: self.call(part, self.name, place, self.items[place]),
            width=len(places),
        )
        whole.context.progress.advance(len(places))
        counts = {
            "shard": self.sharing.shard,
            "lostCalls": part.lost_calls,
            "unknownIds": part.unknown_ids,
            "repaired": asker.repaired,
            "lost": dict(asker.lost),
            "unanswered": asker.unanswered,
            "given": [[json.loads(line_of(update)) for update in updates] for updates in called],
        }
        return json.dumps(counts, sort_keys=True, ensure_ascii=False).encode() + b"\n" + asker.encode()

    async def given(self, piece: int, places: range) -> bytes:
        """Return what the calls of a piece gave: wait for the pod that makes them, and make them where it
        leaves nothing."""
        store = self.reduction.context.store
        for turn in count():
            digest = await self._claims(turn).left(piece)
            with suppress(DamagedError):
                if digest:
                    return await store.aget_blob(digest.decode())
            await self.make(piece, places, turn + 1)
        raise AssertionError

    def take_in(self, data: bytes) -> list[list[Update]]:
        """Add what a piece used to the whole, and return what each of its calls gave."""
        counts, asker = _read(self.reduction.context, data)
        self.reduction.asker.take_in(asker, 0)
        self.reduction.lost_calls += counts["lostCalls"]
        self.reduction.unknown_ids += counts["unknownIds"]
        return [[update_of(row) for row in rows] for rows in counts["given"]]


def _read(context: WorkContext, data: bytes) -> tuple[dict[str, Any], Asker]:
    head, _, graph = data.partition(b"\n")
    counts: dict[str, Any] = json.loads(head)
    asker = context.asker()
    asker.rows, asker.notes = decode_rows(graph), decode_notes(graph)
    asker.stages = list(dict.fromkeys(row.stage for row in asker.rows))
    asker.repaired = counts["repaired"]
    asker.lost = Counter({Fate(fate): times for fate, times in counts["lost"].items()})
    asker.unanswered = [(role, most) for role, most in counts["unanswered"]]
    return counts, asker


async def used_by_others(context: WorkContext, step: Step, shard: int) -> dict[str, RoleUsage]:
    """Return what the calls of a step used that other pods left: a pod whose error ends the step charges
    it."""
    used: list[Usage] = []
    for path in await context.store.alist(claims_path(context.prefix, step.name)):
        digest = await context.store.aget(path) if path.endswith(LEFT) else b""
        with suppress(DamagedError):
            if digest:
                counts, asker = _read(context, await context.store.aget_blob(digest.decode()))
                used += [] if counts["shard"] == shard else [asker.usage()]
    return add_usage(*used)
