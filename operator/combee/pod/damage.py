"""A damaged file in the store: which step wrote it, and a shard of that step done again from the memo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from combee.clients.store.store import RESTORE, Store
from combee.errors import DamagedError, StoreError
from combee.plan.types import DAMAGED_FILE, WRITER, Step, StepSummary
from combee.work.context import OBSERVED, WorkContext, decoded_receipt, encoded_receipt, receipt_path

RECEIPT = ".manifest.json"


async def written_by(store: Store, prefix: str, damaged: DamagedError) -> dict[str, str]:
    """Return the path of a damaged file in the store and the step that wrote it, by the receipt that names
    it; nothing where none does."""
    path = damaged.where.removeprefix(f"{store.uri}/")
    if path.endswith(RECEIPT):
        return {DAMAGED_FILE: path, WRITER: path.split("/")[-2]}
    digest = path.rpartition("/")[2]
    for receipt in await store.alist(f"{prefix}/steps"):
        left = decoded_receipt(await store.aget(receipt) or b"", receipt)
        if left is not None and digest in left.outputs.values():
            return {DAMAGED_FILE: path, WRITER: left.step}
    return {}


def mends(left: Mapping[str, str]) -> str:
    """Return the sentence that follows an error where the file will be made again."""
    return f" It is made again from the memo: {left[WRITER]} has another attempt" if left else ""


def is_to_be_mended(done: StepSummary, step: Step) -> bool:
    """Return whether what a shard left names the file that its step is done again for, or says that it met
    one."""
    digest = str(step.params.get(DAMAGED_FILE) or "").rpartition("/")[2]
    return bool(digest) and (digest in done.outputs.values() or done.error == DamagedError.code)


async def made_again(
    context: WorkContext, before: StepSummary, shard: int, work: Callable[[], Awaitable[StepSummary]]
) -> StepSummary:
    """Do a shard again, and return what it left before with the files that are there now. Raises StoreError
    where anything else comes out: the memo lacks a call, say."""
    path = receipt_path(context, before.step, shard)
    await asyncio.to_thread(context.store.delete, path)
    made = await work()
    if before.error or made.error:
        return made
    compared = before.outputs.keys() - OBSERVED
    if other := sorted(name for name in compared if made.outputs.get(name) != before.outputs[name]):
        await asyncio.to_thread(context.store.delete, path)
        raise StoreError(
            f"a file of {before.step} is damaged and cannot be made again: {other[0]} comes out otherwise",
            where=f"{context.store.uri}/{path}",
            fix=RESTORE,
        )
    whole = replace(before, outputs={**before.outputs, **made.outputs})
    await context.store.aput(path, encoded_receipt(whole, path))
    return whole
