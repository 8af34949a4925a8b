"""The whole comparison: cells, run them, collect, write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from combee.algo.latency import H200, LatencyLaw
from combee.api.cluster import check_cluster
from combee.api.load import parse_run
from combee.clients.store.store import Store
from combee.compare.cells import (
    Cell,
    CompareTask,
    as_text,
    common_grid,
    derived,
    derived_for_cluster,
    make_cells,
    read_tasks,
    write_manifest,
)
from combee.compare.collect import collect
from combee.compare.facts import CellFacts
from combee.compare.gate import score_start
from combee.compare.launch import Launcher
from combee.compare.page import ALL, Terms, html_page, markdown_page
from combee.compare.plot import plot
from combee.compare.strategies import Strategy
from combee.compare.table import Row, make_rows, to_json
from combee.errors import ManifestError, NotAvailableError, UserError
from combee.local.flags import StandInFlags
from combee.local.session import prepare_run
from combee.local.sources import parse_stand_ins, with_engine_models
from combee.report.text import count

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What ``combee compare`` was asked for. ``engines``: NAME -> URLs, dealt over the seeds in order."""

    manifests: Sequence[Path]
    strategies: Sequence[Strategy]
    seeds: Sequence[int]
    out: Path
    engines: Mapping[str, Sequence[str]]
    given: StandInFlags = field(default_factory=StandInFlags)
    """the other flags of ``combee run``; its engines are empty."""
    jobs: int = 1
    slots: Sequence[int] = ()
    """of modelled time; none: each manifest's concurrency."""
    evaluate_every: int | None = None
    law: LatencyLaw = H200
    methods: Sequence[str] = ()
    """base methods to compare; none: each manifest's own."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The outcome of a comparison."""

    rows: Sequence[Row]
    markdown: str


def prepare_cells(request: Request) -> tuple[list[CompareTask], list[Cell], int]:
    """Check everything before any work, and write the derived manifests. Raises only UserErrors."""
    flags = replace(request.given, engines=[f"{name}={urls[0]}" for name, urls in request.engines.items()])
    given = parse_stand_ins(flags)
    tasks = [replace(task, run=with_engine_models(task.run, given)) for task in read_tasks(request.manifests)]
    grid = request.evaluate_every or common_grid(tasks, request.strategies)
    cells = make_cells(
        tasks, request.strategies, request.seeds, request.out, request.engines, request.methods, request.slots
    )
    for task in tasks:
        _refuse_container(task)
        prepare_run(task.run, task.path.resolve().parent, given)
    _refuse_foreign(request.out)
    for cell in (one for one in cells if one.seed == request.seeds[0]):
        parse_run(derived(cell, given, grid), f"--strategies {cell.label}")
    for cell in cells:
        write_manifest(cell, given, grid)
    return tasks, cells, grid


def write_runs(request: Request, comparison: str) -> list[Path]:
    """Write every cell as a manifest for ``kubectl apply -f`` into ``request.out``, and return the files in
    order. Raises UserErrors for what a cluster refuses; runs nothing."""
    tasks = read_tasks(request.manifests)
    grid = request.evaluate_every or common_grid(tasks, request.strategies)
    cells = make_cells(
        tasks, request.strategies, request.seeds, request.out, {}, request.methods, request.slots
    )
    if request.out.is_dir() and any(one.suffix != ".yaml" for one in request.out.iterdir()):
        raise UserError(
            "the folder holds files that are not manifests",
            where=str(request.out),
            fix="Name an empty or a new folder with -o",
        )
    made = {}
    for cell in cells:
        _refuse_container(cell.task)
        manifest = derived_for_cluster(cell, comparison, grid)
        for error in check_cluster(parse_run(manifest, f"--strategies {cell.label}")):
            raise ManifestError(error.what, where=f"{cell.task.path}: {error.where}", fix=error.fix)
        made[f"{manifest['metadata']['name']}.yaml"] = as_text(cell, manifest)
    store = Store.open(str(request.out))
    for name, text in made.items():
        store.put(name, text.encode())
    return [request.out / name for name in made]


def _refuse_container(task: CompareTask) -> None:
    if task.run.spec.task.container is not None:
        raise NotAvailableError(
            "comparing a task in a container is not available in this version",
            where="spec.task.custom.container",
            fix="Run each manifest by itself with combee run",
        )


def _refuse_foreign(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()) and not (out / "cells").is_dir():
        raise UserError(
            "the folder holds files that are not a comparison's",
            where=str(out),
            fix="Name an empty or a new folder with -o",
        )


async def compare(request: Request, tell: Tell) -> Compared:
    """Run what is not finished, then write compare.json, compare.md, compare.html and the plots.

    Raises UserErrors (``CellError`` when a cell did not finish). Cancelled, its cells stop cleanly.
    """
    tasks, cells, grid = await asyncio.to_thread(prepare_cells, request)
    by = f"{len(request.methods)} methods x " if request.methods else ""
    tell(f"{len(cells)} cells: {by}{len(request.strategies)} strategies x {len(request.seeds)} seeds")
    note = shared_server(request)
    if note:
        tell(note)
    launcher = Launcher(
        request.given, request.jobs, lambda cell, done, total: tell(f"{done}/{total} {cell.name}")
    )
    await launcher.run(cells)
    slots = {task.name: tuple(request.slots) or (task.run.spec.workers.concurrency,) for task in tasks}
    by_cell = [await _facts(cell, slots[cell.task.name], request.law, request.given) for cell in cells]
    facts = [one for cell_facts in by_cell for one in cell_facts]
    terms = Terms({task.name: task.run.spec.task.type for task in tasks}, slots, grid, request.law, note)
    return await asyncio.to_thread(write_pages, request.out, facts, terms)


async def _facts(cell: Cell, slots: Sequence[int], law: LatencyLaw, given: StandInFlags) -> list[CellFacts]:
    """Return a cell's facts. If it found nothing better it did not look at gate: score the start there."""
    outputs = json.loads((cell.folder / "result.json").read_bytes())
    if (outputs.get("heldOut") or {}).get("gate") is None:
        await score_start(cell, given)
    return await asyncio.to_thread(collect, cell, slots, law)


def shared_server(request: Request) -> str:
    """Return what to say when seeds share a server; empty when each has its own."""
    servers = min((len(urls) for urls in request.engines.values()), default=1)
    if servers >= len(request.seeds) or len(request.seeds) == 1:
        return ""
    return (
        f"{len(request.seeds)} seeds share {count(servers, 'server')}: a server that answers equal requests "
        "equally makes seeds differ in order, shuffle and tree only; give --engine once per seed to vary the "
        "model too"
    )


def write_pages(out: Path, facts: Sequence[CellFacts], terms: Terms) -> Compared:
    """Write compare.json, compare.md, compare.html and the plots into ``out``. Of several numbers of slots
    the plots are of the last."""
    rows = make_rows(facts)
    text = markdown_page(rows, terms)
    store = Store.open(str(out))
    data = to_json(rows, law=terms.law, slots=terms.last, evaluate_every=terms.evaluate_every)
    store.put("compare.json", (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
    store.put("compare.md", text.encode())
    panels = {
        name: ([row for row in rows if row.task == name and row.slots == terms.last[name]], kind)
        for name, kind in terms.types.items()
    }
    plots = {name: plot([panel]) for name, panel in panels.items()}
    if len(panels) > 1:
        plots[ALL] = plot(list(panels.values()))
    for name, (svg, png) in plots.items():
        picture = f"plot-{name}" if name != ALL else "plot"
        store.put(f"{picture}.svg", svg.encode())
        store.put(f"{picture}.png", png)
    store.put(
        "compare.html", html_page(rows, terms, {name: svg for name, (svg, _) in plots.items()}).encode()
    )
    return Compared(rows, text)
