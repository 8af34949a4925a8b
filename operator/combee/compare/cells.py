"""Cells: one derived manifest and one run folder for each (task, method, strategy, seed).

A derived manifest differs from the one given in the strategy, the batch size, the seed, the slots (where
several are compared and it chooses its sizes by them) and what equal terms ask for: no budget, no early
stop (so every strategy sees the whole epoch), and heldOut scored at the same example counts. Everything
else (prompts, models, render budget, verification) is the manifest's and so the same for all. Every cell
has a store of its own, so no strategy gets another's answers for nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from combee.api.local import INITIAL_PLAYBOOK, sources
from combee.api.run import PromptLearningRun
from combee.assembly.manifest import read_run
from combee.compare.strategies import Strategy
from combee.errors import UserError
from combee.local.flags import StandInFlags
from combee.local.sources import StandIns, locate
from combee.names import CELL_ANNOTATION, LABEL_COMPARISON

NO_PATIENCE = 1000
"""evaluations without a gain before stopping: more than any epoch has."""


@dataclass(frozen=True, slots=True)
class CompareTask:
    """A manifest of the comparison."""

    name: str
    path: Path
    run: PromptLearningRun


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the comparison. ``engines``: NAME -> URL of the servers it asks."""

    task: CompareTask
    strategy: Strategy
    seed: int
    folder: Path
    engines: Mapping[str, str]
    method: str | None = None
    """the base method, where methods are compared; None: the manifest's."""

    @property
    def learns_by(self) -> str:
        """The base method that the cell learns by."""
        return self.method or self.task.run.spec.method.type

    @property
    def label(self) -> str:
        """The strategy as it is written, after its method where methods are compared."""
        return f"{self.method} {self.strategy.label}" if self.method else self.strategy.label

    @property
    def name(self) -> str:
        """The name of the cell's folder."""
        return self.folder.name

    @property
    def manifest(self) -> Path:
        """The derived manifest, beside the folder: a run folder holds only what a run writes."""
        return self.folder.with_name(f"{self.folder.name}.yaml")

    def flags(self, given: StandInFlags) -> StandInFlags:
        """Return its flags of ``combee run``: servers, their keys and secrets. Its manifest has the rest."""
        engines = [f"{name}={url}" for name, url in self.engines.items()]
        return StandInFlags(engines=engines, engine_keys=given.engine_keys, secrets=given.secrets)


def read_tasks(paths: Sequence[Path]) -> list[CompareTask]:
    """Read the manifests, each under a name of its own. Raises UserErrors as ``combee run`` does."""
    tasks = [CompareTask(run.name, path, run) for path in paths for run in [read_run(path)]]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(
                f"two manifests are named {name}", where="-f", fix="Give each a metadata.name of its own"
            )
    return tasks


def common_grid(tasks: Sequence[CompareTask], strategies: Sequence[Strategy]) -> int:
    """Return the examples between two scorings of heldOut: the largest batch, so that every strategy can be
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
    methods: Sequence[str] = (),
    slots: Sequence[int] = (),
) -> list[Cell]:
    """Return every combination, seed by seed, so that an interrupted comparison has whole seeds. Without
    ``methods`` each task is learned by the method of its manifest. Of several ``slots`` each is a cell where
    the strategy chooses its sizes by them; other cells are timed on all."""
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
        for given in strategies
        for strategy in _on_slots(task, given, slots)
    ]


def _on_slots(task: CompareTask, strategy: Strategy, slots: Sequence[int]) -> list[Strategy]:
    fixed = strategy.size is not None or task.run.spec.batching.mode == "Fixed"
    return [strategy] if fixed or len(slots) < 2 else [replace(strategy, slots=number) for number in slots]


def _folder(task: CompareTask, method: str | None, strategy: Strategy, seed: int) -> str:
    named = f"{method.casefold()}-" if method else ""
    return f"{task.name}-{named}{strategy.slug}-s{seed}"


def derived(cell: Cell, given: StandIns, evaluate_every: int) -> dict[str, Any]:
    """Return the cell's manifest as data. It states no more than the given one states."""
    run, spec = cell.task.run, _spec(cell, "playbookRef", "store", "queue")
    base = cell.task.path.resolve().parent
    spec["task"]["data"] = {
        name: {"uri": _absolute(given.data.get(name) or locate(source.uri or "", base), given, name)}
        for name, source in sources(run).items()
    }
    initial = run.spec.task.initial_playbook
    if initial is not None:
        uri = given.data.get(INITIAL_PLAYBOOK) or locate(initial.uri or "", base)
        spec["task"]["initialPlaybook"] = {"uri": _absolute(uri, given, INITIAL_PLAYBOOK)}
    return _manifest(cell, {"name": run_name(cell)}, spec, evaluate_every)


def derived_for_cluster(cell: Cell, comparison: str, evaluate_every: int) -> dict[str, Any]:
    """Return the cell's manifest for ``kubectl apply``, as data. Data, store and queue are the given one's.
    What it learns is a version of the Playbook called like the comparison, which nobody serves, and of whose
    inputs nothing is asked: the comparison is what measures the serial baseline. An annotation says which
    cell it is."""
    spec = _spec(cell) | {"playbookRef": {"name": comparison}, "discipline": "Advisory"}
    noted = {
        "task": cell.task.name,
        "method": cell.method,
        "strategy": replace(cell.strategy, slots=None).label,
        "evaluateEvery": evaluate_every,
    }
    if cell.strategy.slots is not None:
        noted["slots"] = cell.strategy.slots
    metadata = {
        "name": run_name(cell, f"{comparison}-"),
        "labels": {LABEL_COMPARISON: comparison},
        "annotations": {CELL_ANNOTATION: json.dumps(noted, sort_keys=True)},
    }
    return _manifest(cell, metadata, spec, evaluate_every)


def _spec(cell: Cell, *left_out: str) -> dict[str, Any]:
    """Return what the given manifest states, without these fields and those that no cell takes over."""
    spec = cell.task.run.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    given = ("suspend", "discipline", "budget", "serialBaseline", *left_out)
    return {key: spec[key] for key in spec if key not in given}


def _manifest(
    cell: Cell, metadata: Mapping[str, Any], spec: Mapping[str, Any], evaluate_every: int
) -> dict[str, Any]:
    """Return the manifest with what a cell sets in a spec, wherever it runs."""
    own: dict[str, Any] = {"seed": cell.seed}
    given = cell.task.run.spec.method
    if cell.learns_by != given.type:
        own["method"] = {"type": cell.learns_by, "epochs": given.epochs}
    own["aggregation"] = spec.get("aggregation", {}) | cell.strategy.aggregation()
    if cell.strategy.size is not None:
        reason = "one strategy of a comparison at a stated size"
        own["batching"] = {"mode": "Fixed", "size": cell.strategy.size, "reason": reason}
    if cell.strategy.slots is not None:
        own["workers"] = spec.get("workers", {}) | {"concurrency": cell.strategy.slots}
    stated = {name: value for name, value in spec.get("stopping", {}).items() if name != "targetScore"}
    own["stopping"] = stated | {"patience": NO_PATIENCE, "evaluateEvery": evaluate_every}
    run = cell.task.run
    return {"apiVersion": run.api_version, "kind": run.kind, "metadata": metadata, "spec": {**spec, **own}}


def _absolute(uri: str, given: StandIns, split: str) -> str:
    """Return an address that holds wherever the manifest lies; ``--data`` is relative to where we are."""
    if "://" in uri:
        return uri
    return str(Path(uri).resolve() if split in given.data else Path(uri).absolute())


def run_name(cell: Cell, before: str = "") -> str:
    """Return a valid name that tells the cell, of at most 63 characters."""
    name = re.sub(r"[^a-z0-9-]", "-", f"{before}{cell.name}".casefold()).strip("-")
    if len(name) <= 63:
        return name
    return f"{name[:54].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def write_manifest(cell: Cell, given: StandIns, evaluate_every: int) -> None:
    """Write the derived manifest. The run folder itself refuses another manifest than it began with."""
    cell.manifest.parent.mkdir(parents=True, exist_ok=True)
    text = as_text(cell, derived(cell, given, evaluate_every))
    if not cell.manifest.exists() or cell.manifest.read_text(encoding="utf-8") != text:
        cell.manifest.write_text(text, encoding="utf-8")


def as_text(cell: Cell, manifest: Mapping[str, Any]) -> str:
    """Return a derived manifest as the text of its file."""
    head = f"# Derived from {cell.task.path.name} by `combee compare`: {cell.label}, seed {cell.seed}.\n"
    return head + yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)
