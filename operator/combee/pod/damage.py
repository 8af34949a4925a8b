"""A damaged file in the store: which step wrote it, and a shard of that step done again from the memo."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from combee.clients.model.recorded import Recorded
from combee.clients.store.store import RESTORE, Store
from combee.errors import CombeeError, DamagedError, StoreError
from combee.plan.types import DAMAGED_FILE, STEP_LEFT, WRITER, Step, StepSummary
from combee.work.context import decoded_receipt
from combee.work.noted import decode_notes, errors_of


async def written_by(store: Store, prefix: str, damaged: DamagedError) -> dict[str, str]:
    """Return the path of a damaged file in the store and the step that wrote it, by the receipt that names
    it; nothing where none does."""
    path = damaged.where.removeprefix(f"{store.uri}/")
    if path.endswith(STEP_LEFT):
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


async def answers_before(store: Store, before: StepSummary) -> Recorded:
    """Return the memo of a shard that is done again: the calls that it lost are lost again, as far as its
    call graph is whole."""
    memo, digest = Recorded(store), before.outputs.get("calls")
    with suppress(DamagedError):
        memo.lost = errors_of(decode_notes(await store.aget_blob(digest)).lost) if digest else {}
    return memo


def not_made_again(store: Store, file: str, error: CombeeError) -> StoreError:
    """Return the error of a damaged file that is not made again because of another."""
    why = f"{error.where}: {error.what}" if error.where else error.what
    what = f"the file is damaged, and it cannot be made again ({why})"
    return StoreError(what, where=f"{store.uri}/{file}", fix=RESTORE)
