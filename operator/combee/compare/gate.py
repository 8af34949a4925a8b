"""Scores by example on the gate half, by which two strategies are paired.

``combee run`` looks at gate once, at its end, for its best playbook; when nothing scored above the
start on select it does not look at all. A comparison needs the score of such a cell too. It is the
start's, which is computed here with the cell's own models and memo, and kept beside its folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from combee.clients.store.store import Store
from combee.compare.cells import Cell
from combee.errors import DataError
from combee.local.session import context_on, prepare
from combee.local.sources import parse_stand_ins
from combee.work.rollouts import evaluate
from combee.work.splits import held_out_split

Scores = dict[str, dict[str, float]]
"""The scores of ``baseline`` and of ``best``: example id -> score in [0, 1]."""


def start_file(cell: Cell) -> Path:
    """Return the path of the start's scores on gate."""
    return cell.folder.with_name(f"{cell.folder.name}.gate.json")


async def score_start(cell: Cell, secrets: Sequence[str]) -> None:
    """Score the start of a cell on gate, unless that was done before. Raises the UserErrors of ``combee
    run``."""
    if start_file(cell).exists():
        return
    engines = [f"{name}={url}" for name, url in cell.engines.items()]
    prepared = prepare(cell.manifest, parse_stand_ins(engines, secrets, []))
    async with context_on(prepared, cell.folder) as context:
        method, spec = context.method, context.spec
        start = method.initial(context.initial_playbook) if context.initial_playbook else method.empty()
        rendering = start.render(budget_tokens=spec.method.render_token_budget, verify=spec.verify)
        _, gate = await held_out_split(context)
        evaluation = await evaluate(context, context.asker(), gate, rendering.shown, stage="gate baseline")
    text = json.dumps({"baseline": evaluation.by_id, "best": evaluation.by_id}, sort_keys=True)
    Store.open(str(cell.folder.parent)).put(start_file(cell).name, text.encode())


def read_scores(cell: Cell, record: dict[str, object] | None, store: Store) -> Scores:
    """Return the cell's scores: those of its own look at gate (``record`` is the evaluate step's), else the
    start's.

    Raises DataError when the run kept no scores by example.
    """
    if record is not None:
        digests = record.get("scores")
        if not isinstance(digests, dict) or "gate" not in digests:
            raise DataError(
                "this run was made by a version that kept no scores by example",
                where=str(cell.folder),
                fix="Delete the folder and run the same command again",
            )
        own_scores: Scores = json.loads(store.get_blob(digests["gate"]))
        return own_scores
    start_scores: Scores = json.loads(start_file(cell).read_bytes())
    return start_scores
