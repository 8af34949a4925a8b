"""DIR of ``combee run -o DIR``: its layout, its lock, and which run may continue in it.

DIR/run.json        name, digests of manifest and data: which run may be resumed here
DIR/lock            held (flock) while a run works here; freed by the kernel when it dies
DIR/plans/i000.json the frozen IterationPlans; i000.sha256 beside each the digest of its bytes
DIR/clocks/i000.json what the clocks showed when an iteration was planned, or learning stopped in its place;
                    i000.sha256 as for plans
DIR/steps/*.json    summaries of finished steps
DIR/clock.json      the seconds that it took so far, over all sessions
DIR/store/          the artifact store, unless the manifest names another
DIR/SHA256SUMS      of the files below but reports, which `combee report` may write anew
DIR/result.json prompt.md prompt.json (of components) artifact.json lessons.md report.md report.html
DIR/rollouts.jsonl
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from combee.assembly.decided import (
    PLANS,
    clocks_file,
    digest_file,
    plan_file,
    read_clocks,
    read_plans,
    stated_digest,
)
from combee.assembly.identity import RUN, RunIdentity, holds, unusable
from combee.clients.store.folder import MAX_BLOB_BYTES
from combee.clients.store.store import Store
from combee.errors import DamagedError, StoreError
from combee.jsonread import MALFORMED, finite, read_json
from combee.plan.types import Clocks, IterationPlan, StepSummary
from combee.steps import LEADING

CLOCK = "clock.json"
SUMS = "SHA256SUMS"
MIN_FREE_BYTES = 16 << 20
"""A disk with less free space counts as full: a run would fail in its first iteration."""


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
        self.store.put_new(RUN, identity.to_json())
        self.store.sweep()

    def plans(self) -> dict[int, IterationPlan]:
        """Return the frozen plans by iteration."""
        plans = read_plans(self.path / PLANS)
        for iteration in plans:  # a session may have died between a plan and its digest
            path = plan_file(iteration)
            note_digest(self.store, path, self.store.get(path) or b"")
        return plans

    def freeze(self, plan: IterationPlan) -> IterationPlan:
        """Write a plan unless the iteration has one, and return the iteration's plan."""
        path, data = plan_file(plan.iteration), plan.to_json()
        self._refuse_gone(path, data)
        if self.store.put_new(path, data):
            note_digest(self.store, path, data)
            return plan
        return IterationPlan.from_json(self.store.get(path) or b"", where=f"{self.path}/{path}")

    def _refuse_gone(self, path: str, data: bytes) -> None:
        """Raise DamagedError where a frozen file is gone that was another, by the digest beside it."""
        if not self.store.exists(path) and stated_digest(self.path / path) not in ("", _sha256(data)):
            raise DamagedError("the file is missing", where=f"{self.path}/{path}")

    def clocks(self, iteration: int, now: Clocks) -> Clocks:
        """Write what the clocks show at a decision unless an earlier session did, and return what counts."""
        if (known := read_clocks(self.path).get(iteration)) is not None:
            return known
        path, data = clocks_file(iteration), now.to_json()
        self._refuse_gone(path, data)
        self.store.put_new(path, data)
        note_digest(self.store, path, data)
        return now

    def summaries(self) -> dict[str, StepSummary]:
        """Return the summaries of finished steps by name. A damaged one counts as missing."""
        return read_summaries(self.store)

    def keep(self, summary: StepSummary) -> StepSummary:
        """Write the summary of a finished step, and return the one that counts: this one."""
        self.store.put(f"steps/{summary.step}.json", summary.encode())
        return summary

    def seconds(self) -> tuple[float, bool]:
        """Return how long the run was at work, and whether its last session ended by itself. Without a clock,
        which earlier versions did not keep, that is what finished steps took."""
        return read_clock(self.store) or (worked_seconds(self.summaries().values()), True)

    def keep_seconds(self, seconds: float, *, ended: bool) -> None:
        """Write down how long the run was at work."""
        clock = {"seconds": round(seconds, 3), "ended": ended}
        whole = {**clock, "checksum": _checksum(clock)}
        self.store.put(CLOCK, (json.dumps(whole) + "\n").encode())

    def leave(self, files: Mapping[str, bytes]) -> list[str]:
        """Write what a session leaves, in order, and its digests, as ``sha256sum --check`` reads them. What
        somebody changed since the last session is kept as ``NAME.orig``; return these names."""
        edited = [
            name
            for name in changed(self.path)
            if name in files and _digest_of(self.path / name) not in ("", _sha256(b""), _sha256(files[name]))
        ]
        for name in edited:
            try:
                (self.path / name).replace(self.path / f"{name}.orig")
            except OSError as error:
                raise unusable(self.path, error) from None
        for name, data in files.items():
            self.store.put(name, data)
        kept = {name: data for name, data in files.items() if not name.startswith("report.")}
        self.store.put(SUMS, "".join(f"{_sha256(data)}  {name}\n" for name, data in kept.items()).encode())
        return sorted(edited)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def note_digest(store: Store, path: str, data: bytes) -> None:
    """Write beside a frozen file the digest of its bytes."""
    beside, digest = digest_file(path), f"{_sha256(data)}\n".encode()
    if store.get(beside) != digest:
        store.put(beside, digest)


def read_summaries(store: Store) -> dict[str, StepSummary]:
    """Return the summaries of a folder's finished steps by name. A damaged one counts as missing."""
    decoded = (StepSummary.decode(store.get(path) or b"") for path in store.list("steps"))
    return {summary.step: summary for summary in decoded if summary is not None}


def read_clock(store: Store) -> tuple[float, bool] | None:
    """Return the seconds that a run was at work, and whether its last session ended by itself; None where its
    clock is damaged or gone. An earlier version's has no checksum."""
    try:
        clock = read_json(store.get(CLOCK) or b"")
        if clock.pop("checksum", None) not in (None, _checksum(clock)):
            return None
        return finite(clock["seconds"]), bool(clock["ended"])
    except MALFORMED:
        return None


def _checksum(clock: Mapping[str, object]) -> str:
    return _sha256(json.dumps(clock).encode())[:16]


def worked_seconds(summaries: Iterable[StepSummary]) -> float:
    """Return what finished steps took: the last of an iteration says it of the whole iteration."""
    return sum(one.seconds.get("wall", 0.0) for one in summaries if one.kind not in LEADING)


def _refuse_disk(path: Path) -> None:
    """Raise StoreError when the disk of ``path`` is read-only or full. ``path`` need not exist, and is not
    made."""
    existing = path.absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        free = os.statvfs(existing)
    except OSError as error:
        raise unusable(path, error) from None
    if free.f_flag & os.ST_RDONLY:
        raise unusable(path, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    if free.f_bavail * free.f_frsize < MIN_FREE_BYTES:
        raise StoreError(
            f"the disk is full: less than {MIN_FREE_BYTES >> 20} MiB free",
            where=str(path),
            fix="Free space, or name a folder on another disk with -o",
        )


def _locked(path: Path) -> int:
    """Return an open file descriptor that holds DIR's lock. Raises StoreError when another run holds it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unusable(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise unusable(path, error) from None
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
    lines = [
        line.partition("  ")
        for line in (Store.open(str(path)).get(SUMS) or b"").decode(errors="replace").splitlines()
    ]
    files = [(digest, Path(path, Path(name).name)) for digest, _, name in lines]
    return [one.name for digest, one in files if _digest_of(one) != digest] or ([] if files else [SUMS])


def _digest_of(file: Path) -> str:
    """Return the digest of a file; empty where there is none, or one so long that nobody wrote it."""
    if not file.is_file() or file.stat().st_size > MAX_BLOB_BYTES:
        return ""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
