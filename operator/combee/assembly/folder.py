"""DIR of ``combee run -o DIR``: its layout, its lock, and which run may continue in it.

DIR/run.json        name, digests of manifest and data: which run may be resumed here
DIR/lock            held (flock) while a run works here; freed by the kernel when it dies
DIR/plans/i000.json the frozen IterationPlans; i000.sha256 beside each the digest of its bytes
DIR/clocks/i000.json what the clocks showed when an iteration was planned, or learning stopped in its place
DIR/steps/*.json    summaries of finished steps
DIR/clock.json      the seconds that it took so far, over all sessions
DIR/store/          the artifact store, unless the manifest names another
DIR/SHA256SUMS      of the files below but reports, which `combee report` may write anew
DIR/result.json prompt.md prompt.json (of components) lessons.md report.md report.html rollouts.jsonl
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from combee.clients.store.folder import TEMPORARY
from combee.clients.store.store import DIGEST, Store
from combee.errors import DataError, HeldOutMovedError, StoreError, UserError
from combee.jsonread import MALFORMED, finite, read_json
from combee.plan.types import Clocks, IterationPlan, StepSummary
from combee.steps import LEADING

RUN_FILE_VERSION = 1
CLOCK = "clock.json"
SUMS = "SHA256SUMS"
_ANEW = (
    "Name another folder with -o. With this one's store/memo in it, nothing that was answered is asked again"
)
MIN_FREE_BYTES = 16 << 20
"""A disk with less free space counts as full: a run would fail in its first iteration."""


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


class RunFolder:
    """An open, locked DIR. ``open`` writes nothing unless this run may use the folder."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self.store = Store.open(str(path))

    @classmethod
    def open(cls, path: Path, identity: RunIdentity) -> RunFolder:
        """Create or continue a folder.

        Raises StoreError when it cannot be written or another run holds it, UserError when it belongs to
        another manifest, and DataError or HeldOutMovedError when the data has changed.
        """
        holds(path, identity)
        _refuse_disk(path)
        lock = _locked(path)
        folder = cls(path, lock)
        try:
            folder._claim(identity)
        except BaseException:
            folder.close()
            raise
        return folder

    def _claim(self, identity: RunIdentity) -> None:
        """Check again, now that nobody else can write, and make the folder this run's."""
        if holds(self.path, identity):
            return
        record = {
            "version": RUN_FILE_VERSION,
            "name": identity.name,
            "manifestDigest": identity.manifest_digest,
            "data": dict(sorted(identity.data.items())),
        }
        self.store.put_new("run.json", (json.dumps(record, indent=1) + "\n").encode())
        self.store.sweep()

    def plans(self) -> dict[int, IterationPlan]:
        """Return the frozen plans by iteration."""
        plans = read_plans(self.path / "plans")
        for iteration in plans:  # a session may have died between a plan and its digest
            self._note_digest(iteration)
        return plans

    def _note_digest(self, iteration: int) -> None:
        plan = f"plans/i{iteration:03d}"
        digest = _sha256(self.store.get(f"{plan}.json") or b"")
        self.store.put_new(f"{plan}.sha256", f"{digest}\n".encode())

    def freeze(self, plan: IterationPlan) -> IterationPlan:
        """Write a plan unless the iteration has one, and return the iteration's plan."""
        path = f"plans/i{plan.iteration:03d}.json"
        if self.store.put_new(path, plan.to_json()):
            self._note_digest(plan.iteration)
            return plan
        data = self.store.get(path) or b""
        return IterationPlan.from_json(data, where=f"{self.path}/{path}")

    def clocks(self, iteration: int, now: Clocks) -> Clocks:
        """Write what the clocks show at a decision unless an earlier session did, and return what counts."""
        path = clocks_file(iteration)
        if self.store.put_new(path, now.to_json()):
            return now
        return Clocks.from_json(self.store.get(path) or b"", where=f"{self.path}/{path}")

    def summaries(self) -> dict[str, StepSummary]:
        """Return the summaries of finished steps by name. A damaged one counts as missing."""
        summaries: dict[str, StepSummary] = {}
        for path in self.store.list("steps"):
            summary = StepSummary.decode(self.store.get(path) or b"")
            if summary is not None:
                summaries[summary.step] = summary
        return summaries

    def keep(self, summary: StepSummary) -> StepSummary:
        """Write the summary of a finished step, and return the one that counts: this one."""
        self.store.put(f"steps/{summary.step}.json", summary.encode())
        return summary

    def seconds(self) -> tuple[float, bool]:
        """Return how long the run was at work, and whether its last session ended by itself. Without a clock,
        which earlier versions did not keep, that is what finished steps took."""
        try:
            clock = read_json(self.store.get(CLOCK) or b"")
            return finite(clock["seconds"]), bool(clock["ended"])
        except MALFORMED:
            steps = [one for one in self.summaries().values() if one.kind not in LEADING]
            return sum(one.seconds.get("wall", 0.0) for one in steps), True

    def keep_seconds(self, seconds: float, *, ended: bool) -> None:
        """Write down how long the run was at work."""
        clock = {"seconds": round(seconds, 3), "ended": ended}
        self.store.put(CLOCK, (json.dumps(clock) + "\n").encode())

    def leave(self, files: Mapping[str, bytes]) -> list[str]:
        """Write what a session leaves, in order, and its digests, as ``sha256sum --check`` reads them. What
        somebody changed since the last session is kept as ``NAME.orig``; return these names."""
        others = {name: self.store.get(name) for name in changed(self.path) if name in files}
        edited = {name: data for name, data in others.items() if data and data != files[name]}
        for name, data in edited.items():
            self.store.put(f"{name}.orig", data)
        for name, data in files.items():
            self.store.put(name, data)
        kept = {name: data for name, data in files.items() if not name.startswith("report.")}
        self.store.put(SUMS, "".join(f"{_sha256(data)}  {name}\n" for name, data in kept.items()).encode())
        return sorted(edited)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def holds(path: Path, identity: RunIdentity) -> bool:
    """Return whether the folder holds this run already, without writing. Raises UserError when it holds
    anything else, DataError or HeldOutMovedError when the data has changed."""
    try:
        names = [entry.name for entry in path.iterdir() if not _may_lie_there(entry)] if path.exists() else []
    except OSError as error:
        raise _unusable(path, error) from None
    if "run.json" in names:
        _refuse_another(path, identity)
        return True
    if names:
        raise UserError(
            f"the folder holds files that are not a run's ({', '.join(sorted(names)[:3])})",
            where=str(path),
            fix="Name an empty or a new folder with -o",
        )
    return False


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
        record = read_json(Store.open(str(path)).get("run.json") or b"")
        digest, splits = str(record["manifestDigest"]), dict(record["data"])
    except MALFORMED:
        raise UserError("run.json is damaged", where=str(path), fix=_ANEW) from None
    if digest != identity.manifest_digest:
        raise UserError(
            "the folder holds a run of another manifest "
            f"({digest[:12]}, this one is {identity.manifest_digest[:12]})",
            where=str(path),
            fix="Name another folder with -o, or restore the manifest to go on with that run",
        )
    moved = sorted(
        split
        for split in splits.keys() | identity.data.keys()
        if splits.get(split) != identity.data.get(split)
    )
    if moved:
        kind = DataError if moved == ["train"] else HeldOutMovedError
        raise kind(
            f"HeldOutMoved: the data of {', '.join(moved)} is not what this run started with",
            where=str(path),
            fix="Restore the data, or start anew in another folder with -o",
        )


def _refuse_disk(path: Path) -> None:
    """Raise StoreError when the disk of ``path`` is read-only or full. ``path`` need not exist, and is not
    made."""
    existing = path.absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        free = os.statvfs(existing)
    except OSError as error:
        raise _unusable(path, error) from None
    if free.f_flag & os.ST_RDONLY:
        raise _unusable(path, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    if free.f_bavail * free.f_frsize < MIN_FREE_BYTES:
        raise StoreError(
            f"the disk is full: less than {MIN_FREE_BYTES >> 20} MiB free",
            where=str(path),
            fix="Free space, or name a folder on another disk with -o",
        )


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot be used as an output folder ({error.strerror})",
        where=str(path),
        fix="Name a folder that can be written with -o",
    )


def _locked(path: Path) -> int:
    """Return an open file descriptor that holds DIR's lock. Raises StoreError when another run holds it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise _unusable(path, error) from None
        raise StoreError(
            "another run is working in this folder",
            where=str(path),
            fix="Wait for it, or name another folder with -o",
        ) from None
    return lock


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold a folder's lock meanwhile, so that no run works in it."""
    lock = _locked(path)
    try:
        yield
    finally:
        os.close(lock)


def changed(path: Path) -> list[str]:
    """Return the files of SHA256SUMS that are not what was written; itself where it cannot be read. An
    earlier version wrote none, and without its store a run could not write them again."""
    sums = path / SUMS
    if not sums.is_file() or not (path / "store").is_dir():
        return []
    lines = [line.partition("  ") for line in sums.read_text(errors="replace").splitlines()]
    files = [(digest, Path(path, Path(name).name)) for digest, _, name in lines]
    return [
        one.name for digest, one in files if not one.is_file() or _sha256(one.read_bytes()) != digest
    ] or ([] if files else [SUMS])


def read_plans(folder: Path) -> dict[int, IterationPlan]:
    """Return the plans ``i*.json`` of a folder by iteration. Raises UserError when one cannot be read."""
    plans: dict[int, IterationPlan] = {}
    for path in sorted(folder.glob("i*.json")):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"cannot be read ({error.strerror})",
                where=str(path),
                fix="Give the folder `plans` of an earlier run",
            ) from None
        plan = IterationPlan.from_json(data, where=str(path))
        if _sha256(data) != _stated(path, data):
            raise UserError(
                "not the plan that was frozen: its bytes have another digest",
                where=str(path),
                fix=f"Take it from a copy of the folder; if you changed it, remove {path.stem}.sha256",
            )
        plans[plan.iteration] = plan
    return plans


def _stated(path: Path, data: bytes) -> str:
    """Return the digest that stands beside a plan; that of ``data`` where none does: an earlier version left
    none, and one that is damaged is none."""
    beside = path.with_suffix(".sha256")
    stated = beside.read_text(errors="replace").strip() if beside.is_file() else ""
    return stated if DIGEST.fullmatch(stated) else _sha256(data)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def clocks_file(iteration: int) -> str:
    """Return the path, in a run's folder, of what the clocks showed before an iteration."""
    return f"clocks/i{iteration:03d}.json"


def read_clocks(folder: Path) -> dict[int, Clocks]:
    """Return what the clocks showed at each decision, by iteration; nothing of earlier versions. Raises
    UserError when one cannot be read."""
    return {
        int(path.stem.removeprefix("i")): Clocks.from_json(path.read_bytes(), where=str(path))
        for path in sorted((folder / "clocks").glob("i*.json"))
    }


def given_plans(folder: Path) -> dict[int, IterationPlan]:
    """Return the plans of ``--plans`` by iteration. Raises UserError when there is none, or one is missing in
    between."""
    plans = read_plans(folder)
    if not plans:
        raise UserError(
            "no iteration plans (i000.json, ...) in it",
            where=str(folder),
            fix="Give the folder `plans` of an earlier run",
        )
    gap = next((number for number in range(len(plans)) if number not in plans), None)
    if gap is not None:
        raise UserError(f"i{gap:03d}.json is missing", where=str(folder), fix="Give all plans of that run")
    return plans
