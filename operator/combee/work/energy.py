"""What the GPUs' counters show before and after each shard of each step, left beside its receipt."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict

from combee.algo.energy import Interval, Reading
from combee.clients.energy import UnreadableError
from combee.clients.store.store import Store
from combee.jsonread import read_json
from combee.plan.types import Step, StepSummary
from combee.steps import kind_of
from combee.work.context import WorkContext

FOLDER = "energy"


async def metered(
    context: WorkContext, step: Step, shard: int, work: Callable[[], Awaitable[StepSummary]]
) -> StepSummary:
    """Do the work, and leave what the counters showed before and after it. The work never waits for a page
    that cannot be read, nor fails by it."""
    before = await _reading(context, step)
    summary = await work()
    after = await _reading(context, step) if before is not None else None
    if before is not None and after is not None:
        data = json.dumps([asdict(before), asdict(after)], sort_keys=True).encode()
        await context.store.aput_new(f"{context.prefix}/{FOLDER}/{step.name}/{shard:05d}.json", data)
    return summary


async def _reading(context: WorkContext, step: Step) -> Reading | None:
    if context.energy is None or not kind_of(step.kind).asks_models:
        return None
    try:
        return await context.energy()
    except UnreadableError as error:
        context.progress.note(f"the page of spec.energy {error}: what it does not say is not shown")
        return None


async def intervals_of(store: Store, prefix: str) -> dict[str, list[Interval]]:
    """Return by step what its shards left; nothing of a run that named no page, nor of a damaged file."""
    kept: dict[str, list[Interval]] = {}
    for path in await store.alist(f"{prefix}/{FOLDER}"):
        step = path.rpartition("/")[0].rpartition("/")[2]
        with suppress(ValueError, TypeError):
            before, after = read_json(await store.aget(path) or b"")
            kept.setdefault(step, []).append((Reading(**before), Reading(**after)))
    return kept
