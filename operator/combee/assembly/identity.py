"""Which run a folder of ``combee run`` holds: what its run.json says, and what its steps bear out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from combee.assembly.context import run_prefix
from combee.clients.store.folder import TEMPORARY
from combee.clients.store.store import Store
from combee.errors import DamagedError, DataError, HeldOutMovedError, StoreError, UserError
from combee.jsonread import MALFORMED, read_json
from combee.names import step_name
from combee.plan.types import StepSummary
from combee.steps import PROFILE
from combee.work.context import decoded_receipt

RUN = "run.json"
RUN_FILE_VERSION = 1
_LEFT = frozenset({RUN, "lock", "clock.json", "plans", "clocks", "steps", "store"})
"""What lies in the folder of a run that was killed."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The values that must be equal for a folder to be continued."""

    name: str
    manifest_digest: str
    data: Mapping[str, str]
    """The split -> its content digest."""

    @property
    def uid(self) -> str:
        """A stand-in for the uid of Kubernetes, derived from the manifest."""
        return self.manifest_digest[:8]

    def to_json(self) -> bytes:
        """Return the bytes of run.json."""
        record = {
            "version": RUN_FILE_VERSION,
            "name": self.name,
            "manifestDigest": self.manifest_digest,
            "data": dict(sorted(self.data.items())),
        }
        return (json.dumps(record, indent=1) + "\n").encode()


def anew(path: Path) -> str:
    """Return what to do about a folder that no run can go on in."""
    names = (f"{path}-anew{number or ''}" for number in count())
    new = next(one for name in names if not (one := Path(name)).exists())
    if not (path / "store" / "memo").is_dir():
        return f"Start it anew: the same command with `-o {shlex.quote(str(new))}`"
    old, store = (shlex.quote(str(one)) for one in (path / "store" / "memo", new / "store"))
    return (
        f"Start it anew with its answers: `mkdir -p {store} && cp -r {old} {store}`, then the same command "
        f"with `-o {shlex.quote(str(new))}`; nothing that was answered is asked again"
    )


def holds(path: Path, identity: RunIdentity) -> bool:
    """Return whether the folder holds this run already, without writing. Raises UserError when it holds
    anything else, DataError or HeldOutMovedError when the data has changed, and DamagedError where all but
    run.json says that it is this run."""
    try:
        names = (
            {entry.name for entry in path.iterdir() if not _may_lie_there(entry)} if path.exists() else set()
        )
    except OSError as error:
        raise unusable(path, error) from None
    if RUN in names:
        _refuse_another(path, identity)
        return True
    if names and is_left_by(path, identity):
        raise DamagedError("the file is missing", where=str(path / RUN), fix=anew(path))
    if names:
        raise UserError(
            f"the folder holds files that are not a run's ({', '.join(sorted(names)[:3])})",
            where=str(path),
            fix="Name an empty or a new folder with -o",
        )
    return False


def unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot be used as an output folder ({error.strerror})",
        where=str(path),
        fix="Name a folder that can be written with -o",
    )


def _may_lie_there(entry: Path) -> bool:
    """Return whether a run that died at its start left the entry, its empty lock or a temporary file; or
    whether it is a store with nothing but a memo, whose answers a new run is given."""
    if entry.name == "lock":
        return entry.is_file() and entry.stat().st_size == 0
    if entry.name == "store":
        return entry.is_dir() and {inner.name for inner in entry.iterdir()} <= {"memo"}
    return entry.name.startswith(TEMPORARY)


def _refuse_another(path: Path, identity: RunIdentity) -> None:
    """Raise unless run.json belongs to this manifest and this data."""
    try:
        record = read_json(Store.open(str(path)).get(RUN) or b"")
        digest, splits = str(record["manifestDigest"]), dict(record["data"])
    except MALFORMED:
        raise DamagedError("the file is damaged", where=str(path / RUN), fix=anew(path)) from None
    moved = sorted(
        split
        for split in splits.keys() | identity.data.keys()
        if splits.get(split) != identity.data.get(split)
    )
    if (digest != identity.manifest_digest or moved) and is_left_by(path, identity):
        raise DamagedError(
            "the file is not that of the run whose steps lie there", where=str(path / RUN), fix=anew(path)
        )
    if digest != identity.manifest_digest:
        raise UserError(
            "the folder holds a run of another manifest "
            f"({digest[:12]}, this one is {identity.manifest_digest[:12]})",
            where=str(path),
            fix="Name another folder with -o, or restore the manifest to go on with that run",
        )
    if moved:
        kind = DataError if moved == ["train"] else HeldOutMovedError
        raise kind(
            f"HeldOutMoved: the data of {', '.join(moved)} is not what this run started with",
            where=str(path),
            fix="Restore the data, or start anew in another folder with -o",
        )


def is_left_by(path: Path, identity: RunIdentity) -> bool:
    """Return whether the steps that lie in a folder are this run's, on this data: their names bear the digest
    of the manifest, and profile, which comes before all others, notes the digests of the splits.

    Where no step is finished answers of models must lie there, and nothing that is no run's or another's.
    """
    profile = step_name(identity.name, identity.uid, 0, PROFILE.name)
    head = profile.removesuffix(f"000-{PROFILE.name}-a0")
    names = set(_steps_in(path, run_prefix(identity.name, identity.uid)))
    if not all(name.startswith(head) for name in names):
        return False
    summary = _profiled(path, run_prefix(identity.name, identity.uid), profile)
    if summary is None:
        others = {entry.name for entry in path.iterdir() if not entry.name.startswith(TEMPORARY)} - _LEFT
        begun = names - {profile} or list((path / "plans").glob("i*.json"))
        return (path / "store" / "memo").is_dir() and not others and not begun
    return all(summary.outputs.get(split) == digest for split, digest in identity.data.items())


def _steps_in(path: Path, prefix: str) -> Iterator[str]:
    """Yield the names of all steps that left something in a folder, those of other runs included."""
    for file in (path / "steps").glob("*.json"):
        yield file.stem
    for run in (path / "store" / "runs").glob("*"):
        if run.name != prefix.rpartition("/")[2]:
            yield run.name
        yield from (step.name for step in (run / "steps").glob("*"))


def _profiled(path: Path, prefix: str, profile: str) -> StepSummary | None:
    store, last = Store.open(str(path)), f"{prefix}/steps/{profile}/00000.manifest.json"
    summary = StepSummary.decode(store.get(f"steps/{profile}.json") or b"")
    if summary is not None and summary.step == profile:
        return summary
    return decoded_receipt(store.get(f"store/{last}") or b"", last)
