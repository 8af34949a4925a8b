"""Cells: one derived manifest and one run folder for each (task, method, strategy, seed).

A derived manifest differs from the user's in the strategy, the batch size, the seed and what equal
terms require: no budget, no early stop (so every strategy sees the whole epoch), and heldOut scored at
the same example counts. Everything else (prompts, models, render budget, verification, slots) is the
user's and so the same for all. Every cell has its own store, so that no strategy gets the answers that
another one paid for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from combee.api.local import INITIAL_PLAYBOOK, sources
from combee.api.methods import MethodType
from combee.api.run import PromptLearningRun
from combee.assembly.manifest import read_run
from combee.compare.strategies import Strategy
from combee.errors import UserError
from combee.local.sources import StandIns, locate
from combee.names import CELL_ANNOTATION, LABEL_COMPARISON

NO_PATIENCE = 1000
"""The evaluations without a gain before stopping: more than any epoch has."""


@dataclass(frozen=True, slots=True)
class CompareTask:
    """A manifest of the comparison, as read."""

    name: str
    path: Path
    run: PromptLearningRun


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the comparison. ``engines``: NAME -> URL of the servers that it uses."""

    task: CompareTask
    strategy: Strategy
    seed: int
    folder: Path
    engines: Mapping[str, str]
    method: MethodType | None = None
    """The base method, where methods are compared; None: the manifest's."""

    @property
    def learns_by(self) -> MethodType:
        """The base method of the cell."""
        return self.method or self.task.run.spec.method.type

    @property
    def label(self) -> str:
        """The strategy's label, after the method's name where methods are compared."""
        return f"{self.method} {self.strategy.label}" if self.method else self.strategy.label

    @property
    def name(self) -> str:
        """The name of the cell's folder."""
        return self.folder.name

    @property
    def manifest(self) -> Path:
        """The path of the derived manifest, beside the folder: a run folder holds only what a run writes."""
        return self.folder.with_name(f"{self.folder.name}.yaml")


def read_tasks(paths: Sequence[Path]) -> list[CompareTask]:
    """Read the manifests, which must have different names. Raises the UserErrors of ``combee run``."""
    tasks = [CompareTask(run.name, path, run) for path in paths for run in [read_run(path)]]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"two manifests are named {name}", where="-f", fix="Give each a metadata.name of its own"
            )
    return tasks


def common_grid(tasks: Sequence[CompareTask], strategies: Sequence[Strategy]) -> int:
    """Return the examples between two scorings of heldOut: the largest batch, so that every strategy is
    scored at the counts that the coarsest one reaches."""
    sizes = [strategy.size for strategy in strategies if strategy.size is not None]
    if any(strategy.size is None for strategy in strategies):
        batchings = [task.run.spec.batching for task in tasks]
        sizes += [batching.size or max(batching.sizes) for batching in batchings]
    return max(sizes)


def make_cells(
    tasks: Sequence[CompareTask],
    strategies: Sequence[Strategy],
    seeds: Sequence[int],
    out: Path,
    engines: Mapping[str, Sequence[str]],
    methods: Sequence[MethodType] = (),
) -> list[Cell]:
    """Return a cell for every combination, seed by seed, so that an interrupted comparison has whole seeds.
    Without ``methods`` each task is learned by its manifest's method."""
    return [
        Cell(
            task,
            strategy,
            seed,
            out / "cells" / _folder(task, method, strategy, seed),
            {name: urls[index % len(urls)] for name, urls in engines.items()},
            method,
        )
        for index, seed in enumerate(seeds)
        for task in tasks
        for method in methods or (None,)
        for strategy in strategies
    ]


def _folder(task: CompareTask, method: MethodType | None, strategy: Strategy, seed: int) -> str:
    named = f"{method.casefold()}-" if method else ""
    return f"{task.name}-{named}{strategy.slug}-s{seed}"


def derived(cell: Cell, stand_ins: StandIns, evaluate_every: int) -> dict[str, Any]:
    """Return the cell's manifest as data. It states only fields that the user's manifest states, and the
    cell's own."""
    run = cell.task.run
    spec = run.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    for field in ("playbookRef", "suspend", "budget", "store", "queue", "serialBaseline"):
        spec.pop(field, None)
    base = cell.task.path.resolve().parent
    spec["task"]["data"] = {
        name: {"uri": _absolute(stand_ins.data.get(name) or locate(source.uri or "", base), stand_ins, name)}
        for name, source in sources(run).items()
    }
    initial = run.spec.task.initial_playbook
    if initial is not None:
        uri = stand_ins.data.get(INITIAL_PLAYBOOK) or locate(initial.uri or "", base)
        spec["task"]["initialPlaybook"] = {"uri": _absolute(uri, stand_ins, INITIAL_PLAYBOOK)}
    return {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "metadata": {"name": run_name(cell)},
        "spec": spec | _own(cell, spec, evaluate_every),
    }


def derived_for_cluster(cell: Cell, comparison: str, evaluate_every: int) -> dict[str, Any]:
    """Return the cell's manifest for ``kubectl apply`` as data; data, store and queue are the user's. The run
    learns versions of a Playbook named like the comparison, which nobody serves, and an annotation names its
    cell."""
    run = cell.task.run
    spec = run.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    for field in ("suspend", "budget", "serialBaseline"):
        spec.pop(field, None)
    spec["playbookRef"] = {"name": comparison}
    annotation = {
        "task": cell.task.name,
        "method": cell.method,
        "strategy": cell.strategy.label,
        "evaluateEvery": evaluate_every,
    }
    return {
        "apiVersion": run.api_version,
        "kind": run.kind,
        "metadata": {
            "name": run_name(cell, f"{comparison}-"),
            "labels": {LABEL_COMPARISON: comparison},
            "annotations": {CELL_ANNOTATION: json.dumps(annotation, sort_keys=True)},
        },
        "spec": spec | _own(cell, spec, evaluate_every),
    }


def _own(cell: Cell, spec: Mapping[str, Any], evaluate_every: int) -> dict[str, Any]:
    """Return the fields that a cell sets in a spec, on a laptop and on a cluster."""
    own: dict[str, Any] = {"seed": cell.seed}
    base_method = cell.task.run.spec.method
    if cell.learns_by != base_method.type:
        own["method"] = {"type": cell.learns_by, "epochs": base_method.epochs}
    own["aggregation"] = spec.get("aggregation", {}) | cell.strategy.aggregation()
    if cell.strategy.size is not None:
        reason = "one strategy of a comparison at a stated size"
        own["batching"] = {"mode": "Fixed", "size": cell.strategy.size, "reason": reason}
    own["stopping"] = spec.get("stopping", {}) | {"patience": NO_PATIENCE, "evaluateEvery": evaluate_every}
    return own


def _absolute(uri: str, stand_ins: StandIns, split: str) -> str:
    """Return an absolute path, so that the derived manifest may lie anywhere; ``--data`` is relative to the
    current folder."""
    if "://" in uri:
        return uri
    return str(Path(uri).resolve() if split in stand_ins.data else Path(uri).absolute())


def run_name(cell: Cell, before: str = "") -> str:
    """Return a valid name that identifies the cell, at most 63 characters."""
    name = re.sub(r"[^a-z0-9-]", "-", f"{before}{cell.name}".casefold()).strip("-")
    if len(name) <= 63:
        return name
    return f"{name[:54].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_manifest(cell: Cell, stand_ins: StandIns, evaluate_every: int) -> None:
    """Write the derived manifest, if it changed. The run folder refuses a manifest other than its first
    one."""
    cell.manifest.parent.mkdir(parents=True, exist_ok=True)
    text = as_text(cell, derived(cell, stand_ins, evaluate_every))
    if not cell.manifest.exists() or cell.manifest.read_text(encoding="utf-8") != text:
        cell.manifest.write_text(text, encoding="utf-8")


def as_text(cell: Cell, manifest: Mapping[str, Any]) -> str:
    """Return the text of a derived manifest's file."""
    head = f"# Derived from {cell.task.path.name} by `combee compare`: {cell.label}, seed {cell.seed}.\n"
    return head + yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)
