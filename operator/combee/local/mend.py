"""A run's folder of which a file was damaged: it is made again from the others, and nobody is asked.

What a step left is made again from the memo: the whole run is replayed into a store of its own and compared
with what is recorded; where nothing differs, what is damaged in the folder is taken from there. Plans and
clocks are made again in ``redecide``. So a mended run is the run that it was, or it is refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from combee.api.digests import manifest_digest
from combee.assembly.decided import CLOCKS, PLANS
from combee.assembly.folder import hold
from combee.assembly.identity import RUN, RunIdentity, anew, is_left_by
from combee.clients.store.folder import BLOBS
from combee.clients.store.store import DIGEST, Store
from combee.errors import CombeeError, DamagedError
from combee.local.meter import Listener
from combee.local.record import read_record
from combee.local.redecide import clocks_again, plan_again
from combee.local.replay import FILES, replay
from combee.local.session import Prepared, run_session
from combee.plan.types import StepSummary
from combee.report.result import Result
from combee.work.context import decoded_receipt, encoded_receipt

RUNS = "runs"
_MADE_FROM = {
    RUN: "the manifest and the data, which the steps bear out",
    PLANS: "what was known when it was decided",
    CLOCKS: "the seconds of the steps, by which the same is decided",
}


async def run_mended(prepared: Prepared, out: Path, listener: Listener) -> Result:
    """Do as ``run_session`` does, and mend what it finds damaged, each file once.

    Raises also DamagedError for what cannot be made again.
    """
    met: set[str] = set()
    while True:
        try:
            return await run_session(prepared, out, listener)
        except DamagedError as damaged:
            kind = _kind(damaged, out)
            if damaged.where in met or not kind:
                raise
            met.add(damaged.where)
            source = _MADE_FROM.get(kind, "the memo")
            listener.note(
                f"{damaged.where}: {damaged.what}; it is made again from {source}, which asks nobody"
            )
            try:
                with hold(out):
                    await _mend(prepared, out, kind, damaged)
            except CombeeError as error:
                raise _lost(damaged, out, str(error)) from error


def _kind(damaged: DamagedError, out: Path) -> str:
    """Return what a damaged file of a folder is, by the first part of its path; empty for one elsewhere."""
    file, folder = Path(damaged.where).absolute(), out.absolute()
    return file.relative_to(folder).parts[0] if file.is_relative_to(folder) else ""


async def _mend(prepared: Prepared, out: Path, kind: str, damaged: DamagedError) -> None:
    """Make a damaged file again. Raises CombeeError where that cannot be."""
    if kind == PLANS:
        plan_again(prepared, out, Path(damaged.where))
    elif kind == CLOCKS:
        clocks_again(prepared, out, Path(damaged.where))
    elif kind == RUN:
        identity = RunIdentity(prepared.run.name, manifest_digest(prepared.run), prepared.facts.digests)
        if not is_left_by(out, identity):
            raise DamagedError("its steps are of another manifest or other data", where=str(out))
        Store.open(str(out)).put(RUN, identity.to_json())
    else:
        await _what_steps_left(prepared, out)


async def _what_steps_left(prepared: Prepared, out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="combee-mend-") as scratch:
        record = read_record(out, "", prepared)
        again = await replay(replace(prepared, recorded=True), record, Path(scratch))
        # What people read is written again from the rest, whatever became of it.
        if differing := [one for one in again.differences if one.step != FILES]:
            first = differing[0]
            raise DamagedError(f"{first.field} of {first.step} comes out otherwise")
        made, store, folder = (Store.open(str(one)) for one in (scratch, out / "store", out))
        try:
            for path in made.list(BLOBS):
                if not _has(store, path.rpartition("/")[2]):
                    store.put(path, made.get(path) or b"")
            for path, step, receipt in _receipts(made, store):
                summary = record.summaries.get(step)
                if summary is not None and summary.outputs:  # it says what the step left, as its receipt does
                    receipt = replace(summary, outputs=receipt.outputs)
                    folder.put(f"steps/{step}.json", receipt.encode())
                store.put(path, encoded_receipt(receipt, path))
        finally:
            for one in (made, store, folder):
                one.close()


def _has(store: Store, name: str) -> bool:
    """Return whether what a step left under a name is there and whole; some names are of no file."""
    return DIGEST.fullmatch(name) is not None and store.has_blob(name)


def _receipts(made: Store, store: Store) -> Iterator[tuple[str, str, StepSummary]]:
    """Yield path, step and what was made anew of receipts that are damaged, or that name a file which is: one
    that says what clocks showed comes out under another digest."""
    for path in made.list(RUNS):
        now = decoded_receipt(made.get(path) or b"", path) if path.endswith(".manifest.json") else None
        if now is None:
            continue
        before = decoded_receipt(store.get(path) or b"", path)
        if before is None or any(
            _has(made, digest) and not _has(store, before.outputs.get(name, ""))
            for name, digest in now.outputs.items()
        ):
            yield path, path.split("/")[-2], now


def _lost(damaged: DamagedError, out: Path, why: str) -> DamagedError:
    what = f"{damaged.what}, and it cannot be made again ({why})"
    return DamagedError(what, where=damaged.where, fix=f"Restore it from a copy of the folder. {anew(out)}")
