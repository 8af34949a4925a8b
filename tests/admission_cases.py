"""The manifests of ``cluster/admission/``: what must be accepted or refused, and how, and what may change."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "cluster" / "admission"
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One change of a good manifest, and what is said to it."""

    name: str
    manifest: Manifest
    before: Manifest
    says: str = ""
    operator: bool = False
    """whether only the operator can refuse it."""
    reason: str = ""
    started: bool = False


@cache
def _read(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load((FOLDER / file).read_text()))


def good() -> list[Manifest]:
    """Manifests that are fine."""
    return copy.deepcopy(_read("good.yaml"))


def base(kind: str) -> Manifest:
    """The first good manifest of ``kind``."""
    return next(manifest for manifest in _read("good.yaml") if manifest["kind"] == kind)


@cache
def bad() -> tuple[Case, ...]:
    """Manifests that are not, with what must be said."""
    return _cases("bad.yaml", {})


@cache
def changes() -> tuple[Case, ...]:
    """Changes of an object that is there; what is said is empty where the change is allowed."""
    return _cases("changes.yaml", {"spec.budget": {"rollouts": 4000, "tokens": 50_000_000}})


def _cases(file: str, always: dict[str, Any]) -> tuple[Case, ...]:
    return tuple(_case(index, row, always) for index, row in enumerate(_read(file)))


def _case(index: int, row: dict[str, Any], always: dict[str, Any]) -> Case:
    kind = row.get("kind", "PromptLearningRun")
    before = base(kind)
    if kind == "PromptLearningRun":
        before = changed(before, always)
    manifest = changed(before, row.get("set", {}), row.get("remove"))
    where = " ".join([*row.get("set", {}), row.get("remove", "")]).strip()
    return Case(
        name=f"{index}-{kind}-{where}",
        manifest=manifest,
        before=before,
        says=row.get("says", ""),
        operator=row.get("where") == "operator",
        reason=row.get("reason", ""),
        started=row.get("started", False),
    )


def changed(manifest: Manifest, values: dict[str, Any], removed: str | None = None) -> Manifest:
    """``manifest`` with values set at dotted paths, and one path removed."""
    manifest = copy.deepcopy(manifest)
    if removed:
        at, last = _parent(manifest, removed)
        del at[last]
    for path, value in values.items():
        at, last = _parent(manifest, path)
        at[last] = copy.deepcopy(value)
    return manifest


def _parent(manifest: Manifest, path: str) -> tuple[Any, str | int]:
    at: Any = manifest
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        at = at[part] if isinstance(part, int) else at.setdefault(part, {})
    return at, last
