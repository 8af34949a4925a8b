"""The frozen files of a run's folder: the plans, and what the clocks showed when they were decided. Beside
each stands the digest of its bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from combee.clients.store.folder import Folder
from combee.clients.store.store import DIGEST
from combee.errors import DamagedError, UserError
from combee.plan.types import Clocks, IterationPlan

PLANS, CLOCKS = "plans", "clocks"
_T = TypeVar("_T")


def plan_file(iteration: int) -> str:
    """Return the path, in a run's folder, of the plan of an iteration."""
    return f"{PLANS}/i{iteration:03d}.json"


def clocks_file(iteration: int) -> str:
    """Return the path, in a run's folder, of what the clocks showed before an iteration."""
    return f"{CLOCKS}/i{iteration:03d}.json"


def digest_file(path: str) -> str:
    """Return the path of the digest of a frozen file."""
    return f"{path.removesuffix('.json')}.sha256"


def read_plans(folder: Path, *, but: int | None = None) -> dict[int, IterationPlan]:
    """Return the plans ``i*.json`` of a folder by iteration, ``but`` one. Raises DamagedError, a UserError,
    for one that is damaged, and UserError for one that cannot be read."""
    plans = _frozen(folder, IterationPlan.from_json, but)
    for number, plan in plans.items():
        if plan.iteration != number:
            where = str(folder / f"i{number:03d}.json")
            raise DamagedError(f"the plan of iteration {plan.iteration + 1}", where=where, fix=_COPY)
    return plans


def read_clocks(folder: Path, *, but: int | None = None) -> dict[int, Clocks]:
    """Return what the clocks showed at each decision, by iteration, ``but`` one; nothing of earlier versions.
    Raises as ``read_plans`` does."""
    return _frozen(folder / CLOCKS, Clocks.from_json, but)


def _frozen(folder: Path, read: Callable[..., _T], but: int | None) -> dict[int, _T]:
    numbers = {int(path.stem[1:]) for path in folder.glob("i*.json") if path.stem[1:].isdigit()} - {but}
    return {number: _one(folder / f"i{number:03d}.json", read) for number in sorted(numbers)}


def _one(path: Path, read: Callable[..., _T]) -> _T:
    try:
        data = Folder(path.parent).get(path.name)
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})",
            where=str(path),
            fix="Give the folder `plans` of an earlier run",
        ) from None
    data, stated = data or b"", stated_digest(path)
    if stated and hashlib.sha256(data).hexdigest() != stated:
        raise DamagedError(
            "not the file that was frozen: its bytes have another digest",
            where=str(path),
            fix=f"{_COPY}; if you changed it, remove {path.stem}.sha256",
        )
    try:
        return read(data, where=str(path))
    except UserError as error:
        if stated:
            raise
        raise DamagedError(error.what, where=str(path), fix=error.fix) from None


_COPY = "Take it from a copy of the folder"


def stated_digest(path: Path) -> str:
    """Return the digest that stands beside a frozen file; empty where none does: an earlier version left
    none, and one that is damaged is none."""
    beside = Folder(path.parent).get(digest_file(path.name)) or b""
    stated = beside.decode(errors="replace").strip()
    return stated if DIGEST.fullmatch(stated) else ""


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
