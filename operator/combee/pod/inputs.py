"""Reads what the earlier steps left, waits for those that still run, and passes their errors on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from combee.clients.store.store import RESTORE, Store
from combee.errors import BudgetExhaustedError, DamagedError
from combee.plan.types import IterationPlan, Step, StepSummary
from combee.steps import KINDS
from combee.work.context import WorkContext, read_receipt, receipt_path

GRACE_SECONDS = 10.0
"""A file that another pod wrote may be seen a little later on a network file system."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 1.0
PAUSE_SHARE = 0.1
"""A pause is this share of the time waited so far, so that inputs are seen late by no more than that."""


def wanted(step: Step, plan: IterationPlan) -> list[tuple[str, int]]:
    """Return (step, shard) of each receipt that a step reads: the map's shards first."""
    return [
        (step.inputs[name], shard)
        for name in KINDS[step.kind].waits_for
        for shard in range(plan.shards if KINDS[name].sharded else 1)
    ]


async def read_inputs(
    context: WorkContext,
    step: Step,
    plan: IterationPlan,
    *,
    wait_seconds: float | None,
    sleep: Callable[[float], Awaitable[None]],
) -> list[StepSummary] | None:
    """Return the receipts of a step's inputs, or those so far as soon as one of them has an error. Where that
    is the end of a budget, the other shards' are waited for: what they spent is charged, too.

    Returns None when they are not all there after ``wait_seconds``: the pod yields its place. Where that is
    None, their steps are done. Raises DamagedError for one that is then missing, or cannot be read.
    """
    missing, receipts = wanted(step, plan), list[StepSummary]()
    since = context.clock()
    until = since + (GRACE_SECONDS if wait_seconds is None else wait_seconds)
    while True:
        new = {key: await read_receipt(context, *key) for key in await _present(context, missing)}
        receipts += [receipt for receipt in new.values() if receipt is not None]
        missing = [key for key in missing if new.get(key) is None]
        waited = {name for name, _ in missing}
        if not missing or any(_ends(receipt, waited) for receipt in receipts):
            return receipts
        now = context.clock()
        if now >= until:
            break
        pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, PAUSE_SHARE * (now - since)))
        await sleep(min(pause, until - now))
    # Of the last round: what is there only since may be whole.
    damaged = [key for key, receipt in new.items() if receipt is None]
    if not damaged and wait_seconds is not None:
        return None
    what = "damaged" if damaged else "missing"
    where = f"{context.store.uri}/{receipt_path(context, *(damaged or missing)[0])}"
    raise DamagedError(f"the receipt of a finished step is {what}", where=where, fix=RESTORE)


def _ends(receipt: StepSummary, waited: Collection[str]) -> bool:
    """Return whether a receipt ends the wait for others. ``waited``: the steps of which some are missing."""
    if receipt.error == BudgetExhaustedError.code:
        return receipt.step not in waited
    return bool(receipt.error)


async def others_done(store: Store, prefix: str, step: str, shards: int) -> bool:
    """Return whether every shard of a step has left its receipt."""
    return len(await store.alist(f"{prefix}/steps/{step}")) >= shards


async def _present(context: WorkContext, missing: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return which of the receipts are there, with one listing for each step, however many its shards."""
    present: list[tuple[str, int]] = []
    for name in dict.fromkeys(name for name, _ in missing):
        listed = await context.store.alist(f"{context.prefix}/steps/{name}")
        files = {path.rpartition("/")[2] for path in listed}
        present += [
            (step, shard) for step, shard in missing if step == name and f"{shard:05d}.manifest.json" in files
        ]
    return present
