"""``kubectl combee compare NAME``: the runs of a comparison on a cluster, as one table and one plot.

``combee compare --for-cluster NAME`` wrote them; each says in an annotation which cell it is. What a run
recorded is read by a short-lived pod, as for ``report``, and kept: the same command on the same folder
fetches only what is new.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from combee.algo.clusters import sides_by_cluster
from combee.algo.latency import H200, LatencyLaw
from combee.api.digests import manifest_digest
from combee.api.methods import METHOD_NAMES
from combee.cli.cluster.place import Here, LiveRun, found_in, note, on_cluster, say
from combee.cli.cluster.report import fetched, written
from combee.cli.compare import parse_law, parse_slots
from combee.cli.options import CompareFlags
from combee.cli.where import Place
from combee.compare.cells import Cell, CompareTask
from combee.compare.collect import read_steps, timed
from combee.compare.facts import CellFacts
from combee.compare.gate import Scores
from combee.compare.launch import FINISHED_OUTCOMES, finished_digest
from combee.compare.page import Terms
from combee.compare.run import write_pages
from combee.compare.strategies import parse_strategies
from combee.errors import UserError
from combee.names import CELL_ANNOTATION, LABEL_COMPARISON, RUN_KIND
from combee.objects.results import CALLS
from combee.report.bundle import GATE_FILE, RESULT_FILE, calls_file
from combee.report.result import read_result
from combee.work.asker import decode_rows

SHARED = "Runs on a cluster: what their seeds share depends on their engines"
NAMED = 5


@dataclass(frozen=True, slots=True)
class Member:
    """A run of a comparison. ``every``: the examples between two scorings of heldOut."""

    run: LiveRun
    cell: Cell
    every: int


def run_collected(flags: CompareFlags, place: Place) -> int:
    """Fetch what is missing, write the pages and print the table."""
    name, out, wait_seconds = flags.name or "", flags.output, flags.timeout

    async def work(here: Here) -> int:
        slots = parse_slots(flags.slots) if flags.slots else []
        law = parse_law(flags.latency_law) if flags.latency_law else H200
        members = await _members(here, name, out)
        for number, member in enumerate(members, start=1):
            if not _is_here(member):
                note(f"{number}/{len(members)} {member.run.name}")
                files = await fetched(here, member.run, wait_seconds, also=CALLS)
                await asyncio.to_thread(written, files, member.cell.folder)
        compared = await asyncio.to_thread(_compared, members, out, slots, law)
        say(compared)
        return 0

    return on_cluster(place, work)


async def _members(here: Here, name: str, out: Path) -> list[Member]:
    """Return the runs of the comparison. Raises UserError when there is none, or one without a result."""
    raw = await here.kube.list(RUN_KIND, here.namespace, labels=f"{LABEL_COMPARISON}={name}")
    if not raw:
        raise UserError(
            f"no run of a comparison {name!r} in the namespace {here.namespace}",
            fix=f"Write them with combee compare --for-cluster {name} -o runs, then kubectl apply -f runs",
        )
    members = [_member(found_in(one), out) for one in raw]
    _refuse_unfinished(members, here)
    return sorted(members, key=lambda one: (one.cell.seed, one.cell.task.name, one.cell.label))


def _member(run: LiveRun, out: Path) -> Member:
    manifest = run.parsed()
    try:
        noted = json.loads(run.raw["metadata"].get("annotations", {}).get(CELL_ANNOTATION, ""))
        (written,) = parse_strategies(str(noted["strategy"]), [])
        strategy = replace(written, slots=int(noted["slots"]) if "slots" in noted else None)
        method = noted["method"]
        if method is not None and method not in METHOD_NAMES.words():
            raise KeyError(method)
        task = CompareTask(str(noted["task"]), Path(f"{noted['task']}.yaml"), manifest)
        every = int(noted["evaluateEvery"])
    except (KeyError, TypeError, ValueError, UserError):
        raise UserError(
            "its annotation does not say which cell of a comparison it is",
            where=f"{run.name}: metadata.annotations[{CELL_ANNOTATION}]",
            fix="Write the folder again with combee compare --for-cluster, and apply it",
        ) from None
    cell = Cell(task, strategy, manifest.spec.seed, out / "cells" / run.name, {}, method)
    return Member(run, cell, every)


def _refuse_unfinished(members: Sequence[Member], here: Here) -> None:
    waiting = [one.run for one in members if one.run.status.phase not in FINISHED_OUTCOMES]
    if waiting:
        shown = ", ".join(f"{one.name} is {one.status.phase or 'Pending'}" for one in waiting[:NAMED])
        raise UserError(
            f"{len(waiting)} of {len(members)} runs have no result to compare: {shown}",
            fix=f"See what the first waits for or died of: {here.command(f'why {waiting[0].name}')}",
        )


def _is_here(member: Member) -> bool:
    """Return whether the folder has the result of this run's manifest, with its calls."""
    same = finished_digest(member.cell) == manifest_digest(member.run.parsed())
    return same and (member.cell.folder / "calls").is_dir()


def _compared(members: Sequence[Member], out: Path, slots: Sequence[int], law: LatencyLaw = H200) -> str:
    tasks = {one.cell.task.name: one.cell.task.run.spec for one in members}
    at = {
        name: tuple(slots) or _own_slots(members, name) or (spec.workers.concurrency,)
        for name, spec in tasks.items()
    }
    starts = _starts(members)
    facts = [one for member in members for one in _facts(member.cell, at[member.cell.task.name], law, starts)]
    types = {name: spec.task.type for name, spec in tasks.items()}
    terms = Terms(types, at, max(one.every for one in members), law, SHARED)
    return write_pages(out, facts, terms).markdown


def _own_slots(members: Sequence[Member], task: str) -> tuple[int, ...]:
    """Return the slots that runs of a task were made for, where several were asked for."""
    own = {one.cell.strategy.slots for one in members if one.cell.task.name == task}
    return tuple(sorted(number for number in own if number is not None))


def _starts(members: Sequence[Member]) -> dict[tuple[str, int], Scores]:
    """Return (task, seed) -> the start's scores on gate, by a cell that looked there."""
    starts: dict[tuple[str, int], Scores] = {}
    for member in members:
        scores = _scores(member.cell)
        if scores is not None:
            start = scores["baseline"]
            starts.setdefault((member.cell.task.name, member.cell.seed), {"baseline": start, "best": start})
    return starts


def _scores(cell: Cell) -> Scores | None:
    try:
        return sides_by_cluster(json.loads((cell.folder / GATE_FILE).read_bytes()))
    except FileNotFoundError:
        return None


def _facts(
    cell: Cell, slots: Sequence[int], law: LatencyLaw, starts: dict[tuple[str, int], Scores]
) -> list[CellFacts]:
    """Return a cell's facts. If it did not look at gate, its scores are another cell's of the start."""
    file = cell.folder / RESULT_FILE
    result = read_result(file.read_bytes(), where=str(file))
    scores = _scores(cell) or starts.get((cell.task.name, cell.seed))
    if scores is None:
        cells = f"cell of {cell.task.name} with seed {cell.seed}"
        raise UserError(
            f"no {cells} found anything better, so none looked at gate",
            where=cell.name,
            fix="Compare a strategy with them that learns, or compare on a laptop, which looks by itself",
        )
    steps = read_steps(cell.folder)
    rows = {step.step: decode_rows((cell.folder / calls_file(step.step)).read_bytes()) for step in steps}
    return timed(cell, result, steps, rows, scores, slots, law)
