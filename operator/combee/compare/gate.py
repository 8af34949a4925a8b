"""Scores by example of the gate half, which is what pairs two strategies.

``combee run`` looks at gate once, at its end, for its best playbook; when nothing scored above the
start on select it does not look at all. A comparison needs that cell's score too: it is the start's,
asked here with the cell's own models and memo and kept beside its folder.
"""

from __future__ import annotations

import json
from pathlib import Path

from combee.clients.store.store import Store
from combee.compare.cells import Cell
from combee.errors import DataError
from combee.local.flags import StandInFlags
from combee.local.session import context_on, prepare
from combee.local.sources import parse_stand_ins
from combee.plan.gatescores import gate_sides
from combee.work.context import held_out_split
from combee.work.passages import start_of
from combee.work.rollouts import closing_scores

Scores = dict[str, dict[str, float]]
"""``baseline`` and ``best``: example id -> score in [0, 1]."""


def start_file(cell: Cell) -> Path:
    """Return the file that keeps the start's scores on gate."""
    return cell.folder.with_name(f"{cell.folder.name}.gate.json")


async def score_start(cell: Cell, given: StandInFlags) -> None:
    """Score the start of a cell on gate, unless that is done. Raises UserErrors as ``combee run`` does."""
    if start_file(cell).exists():
        return
    prepared = prepare(cell.manifest, parse_stand_ins(cell.flags(given)))
    async with context_on(prepared, cell.folder) as context:
        method, spec = context.method, context.spec
        start = await start_of(context, prepared.facts.digests["train"])
        shown = method.render(start, budget_tokens=spec.method.render_token_budget, verify=spec.verify)
        _, gate = await held_out_split(context)
        scores = await closing_scores(context, context.asker(), gate, shown.shown, stage="gate baseline")
    text = json.dumps({"baseline": scores.by_cluster, "best": scores.by_cluster}, sort_keys=True)
    Store.open(str(cell.folder.parent)).put(start_file(cell).name, text.encode())


def read_scores(cell: Cell, record: str, store: Store) -> Scores:
    """Return the cell's scores: of its own look at gate (``record`` is the digest of evaluate's), else, where
    that is empty, the start's."""
    if not record:
        kept: Scores = json.loads(start_file(cell).read_bytes())
        return kept
    try:
        return gate_sides(record, store.get_blob)
    except KeyError:
        raise DataError(
            "this run was made by a version that kept no scores by example",
            where=str(cell.folder),
            fix="Delete the folder and run the same command again",
        ) from None
