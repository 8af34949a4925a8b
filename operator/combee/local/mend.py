"""A run's folder of which a file was damaged: what the step left that wrote it is made again from the memo.

Nobody is asked. The whole run is replayed into a store of its own, and compared with what is recorded; where
nothing differs, what is damaged in the folder is taken from there. So a mended run is the run that it was, or
it is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from combee.assembly.folder import hold
from combee.clients.store.store import DIGEST, Store
from combee.errors import CombeeError, DamagedError
from combee.local.meter import Listener
from combee.local.record import read_record
from combee.local.replay import replay
from combee.local.session import Prepared, run_session
from combee.plan.types import StepSummary
from combee.report.result import Result
from combee.work.context import decoded_receipt, encoded_receipt

BLOBS, RUNS = "blobs", "runs"


async def run_mended(prepared: Prepared, out: Path, listener: Listener) -> Result:
    """Do as ``run_session`` does, and mend what it finds damaged, each file once.

    Raises also DamagedError for what the memo cannot make again.
    """
    met: set[str] = set()
    while True:
        try:
            return await run_session(prepared, out, listener)
        except DamagedError as damaged:
            if damaged.where in met:
                raise
            met.add(damaged.where)
            listener.note(
                f"{damaged.where}: {damaged.what}; it is made again from the memo, which asks nobody"
            )
            await _mend(prepared, out, damaged)


async def _mend(prepared: Prepared, out: Path, damaged: DamagedError) -> None:
    with hold(out), tempfile.TemporaryDirectory(prefix="combee-mend-") as scratch:
        try:
            record = read_record(out, "", prepared)
            again = await replay(replace(prepared, recorded=True), record, Path(scratch))
        except CombeeError as error:
            raise _lost(damaged, str(error)) from error
        if again.differences:
            first = again.differences[0]
            raise _lost(damaged, f"{first.field} of {first.step} comes out otherwise")
        made, store, folder = (Store.open(str(one)) for one in (scratch, out / "store", out))
        try:
            for path in _damaged_blobs(made, store):
                store.put(path, made.get(path) or b"")
            for path, step, receipt in _receipts(made, store):
                summary = record.summaries.get(step)
                if summary is not None and summary.outputs:  # it says what the step left, as its receipt does
                    receipt = replace(summary, outputs=receipt.outputs)
                    folder.put(f"steps/{step}.json", receipt.encode())
                store.put(path, encoded_receipt(receipt))
        finally:
            for one in (made, store, folder):
                one.close()


def _damaged_blobs(made: Store, store: Store) -> Iterator[str]:
    for path in made.list(BLOBS):
        if not _has(store, path.rpartition("/")[2]):
            yield path


def _has(store: Store, digest: str) -> bool:
    """Return whether what a step left under a name is there and whole; some names are of no file."""
    try:
        return DIGEST.fullmatch(digest) is not None and store.get_blob(digest) is not None
    except DamagedError:
        return False


def _receipts(made: Store, store: Store) -> Iterator[tuple[str, str, StepSummary]]:
    """Yield path, step and what was made anew of receipts that are damaged, or that name a file which is: one
    that says what clocks showed comes out under another digest."""
    for path in made.list(RUNS):
        now = decoded_receipt(made.get(path) or b"") if path.endswith(".manifest.json") else None
        if now is None:
            continue
        before = decoded_receipt(store.get(path) or b"")
        if before is None or any(
            _has(made, digest) and not _has(store, before.outputs.get(name, ""))
            for name, digest in now.outputs.items()
        ):
            yield path, path.split("/")[-2], now


def _lost(damaged: DamagedError, why: str) -> DamagedError:
    what = f"{damaged.what}, and it cannot be made again from the memo ({why})"
    return DamagedError(what, where=damaged.where, fix=damaged.fix)
