"""The record of a run, as ``combee run`` leaves it in DIR and ``combee report`` fetches it from a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from combee.api.digests import manifest_digest
from combee.assembly.decided import read_clocks, read_plans
from combee.assembly.folder import read_clock
from combee.assembly.identity import RunIdentity, holds
from combee.clients.store.store import Store
from combee.errors import DamagedError, DataError, HeldOutMovedError, UserError
from combee.local.session import Prepared
from combee.names import LESSONS_FILE
from combee.plan.decide import Identity
from combee.plan.types import Clocks, IterationPlan, StepSummary
from combee.report.bundle import RESULT_FILE
from combee.report.result import Result, read_result
from combee.steps import kind_of
from combee.work.context import decoded_receipt
from combee.work.noted import LostCall, all_notes

_GOES_ON = ("Stopped", "Failed")


@dataclass(frozen=True, slots=True)
class Record:
    """What a run left: its folder, and its store."""

    who: Identity
    plans: Mapping[int, IterationPlan]
    clocks: Mapping[int, Clocks]
    """what the clocks showed at each decision, by iteration; nothing of earlier versions."""
    summaries: Mapping[str, StepSummary]
    store: Store
    result: Result | None
    """None where the run was killed and never gone on with."""
    files: Mapping[str, bytes]
    """prompt.md, prompt.json and lessons.md, those there are."""
    seconds: float
    """how long it took, as its clock says."""

    @property
    def stop_seconds(self) -> float:
        """How long it had taken when it stopped learning; 0 where it had not."""
        if self.result is None or self.result.outcome in _GOES_ON:
            return 0.0
        closing = (
            one.seconds.get("wall", 0.0) for one in self.summaries.values() if kind_of(one.kind).looks_at_gate
        )
        return max(0.0, self.seconds - sum(closing))

    def stopped_at(self, iteration: int) -> bool:
        """Return whether it was decided to stop learning instead of planning this iteration. A killed run may
        have left the clocks of a plan that it did not come to write."""
        over = self.result is not None and self.result.outcome not in _GOES_ON
        return over and iteration in self.clocks and iteration not in self.plans

    async def lost(self, paths: Sequence[str]) -> list[LostCall]:
        """Return the calls that a step lost; ``paths`` are of what its shards wrote last. Of a damaged file
        nothing is known: a call that was lost then is missing in the memo."""
        graphs = []
        for path in paths:
            left = decoded_receipt(await self.store.aget(path) or b"", path)
            digest = left.outputs.get("calls") if left else None
            with suppress(DamagedError):
                graphs += [await self.store.aget_blob(digest)] if digest else []
        return all_notes(graphs).lost


def read_record(folder: Path, store_uri: str, prepared: Prepared) -> Record:
    """Return the record in a folder of ``combee run`` or ``combee report``. ``store_uri``: the run's store;
    empty for the folder's own.

    Raises UserError where the folder is no run's or another run's, DataError where the data is not the run's.
    """
    digest, facts = manifest_digest(prepared.run), prepared.facts
    result = _result(folder)
    if (folder / "run.json").is_file():
        holds(folder, RunIdentity(prepared.run.name, digest, facts.digests))
    elif result is not None:
        _refuse_another(folder, result, digest, facts.digests)
    else:
        raise UserError(
            "not the folder of a run (neither run.json nor result.json)",
            where=str(folder),
            fix="Give the DIR of `combee run -o DIR` or `kubectl combee report RUN -o DIR`. Name a run on a "
            "cluster where no folder is called like it",
        )
    if not store_uri and not (folder / "store").is_dir():
        raise UserError(
            "the folder has no store, whose memo answers every call",
            where=str(folder),
            fix="Give the store of the run with --store: a copy of it, or its address; or name a run on a "
            "cluster: its answers are fetched with it",
        )
    summaries = _summaries(folder)
    return Record(
        who=Identity(prepared.run.name, _uid(summaries, digest)),
        plans=read_plans(folder / "plans"),
        clocks=read_clocks(folder),
        summaries=summaries,
        store=Store.open(store_uri or str(folder / "store")),
        result=result,
        files={
            name: path.read_bytes()
            for name in ("prompt.md", "prompt.json", LESSONS_FILE)
            if (path := folder / name).is_file()
        },
        seconds=_seconds(folder, result),
    )


def _result(folder: Path) -> Result | None:
    data = Store.open(str(folder)).get(RESULT_FILE)
    return None if data is None else read_result(data, where=str(folder / RESULT_FILE))


def _refuse_another(folder: Path, result: Result, digest: str, data: Mapping[str, str]) -> None:
    """Raise unless a fetched result is this manifest's, on this data."""
    if result.manifest_digest != digest:
        raise UserError(
            f"these are the results of another manifest ({result.manifest_digest[:12]}, this one is "
            f"{digest[:12]})",
            where=str(folder),
            fix="Give the manifest of that run with -f",
        )
    info = result.data
    splits = {"train": info.train, "heldOut": info.held_out, "test": info.test} if info is not None else {}
    pinned = {name: split.digest for name, split in splits.items() if split is not None and split.digest}
    moved = sorted(name for name in pinned if data.get(name) != pinned[name])
    if moved:
        kind = DataError if moved == ["train"] else HeldOutMovedError
        raise kind(
            f"the data of {', '.join(moved)} is not what the run had",
            where=str(folder),
            fix="Give the run's data with --data",
        )


def _summaries(folder: Path) -> dict[str, StepSummary]:
    """Return the recorded summaries by step. Raises DataError for one that cannot be read."""
    summaries = {}
    for path in sorted((folder / "steps").glob("*.json")):
        summary = StepSummary.decode(Store.open(str(folder)).get(f"steps/{path.name}") or b"")
        if summary is None:
            raise DataError(
                "the summary is damaged", where=str(path), fix="Take it from a copy of the folder"
            )
        summaries[summary.step] = summary
    return summaries


def _uid(summaries: Mapping[str, StepSummary], digest: str) -> str:
    """Return the uid in the steps' names: on a cluster it is the API server's."""
    for name, summary in summaries.items():
        match = re.search(rf"-([0-9a-f]{{8}})-i\d+-{summary.kind}-a\d+$", name)
        if kind_of(summary.kind).opens and match:
            return match[1]
    return digest[:8]


def _seconds(folder: Path, result: Result | None) -> float:
    if (clock := read_clock(Store.open(str(folder)))) is not None:
        return clock[0]
    return result.wall_seconds if result is not None else 0.0
