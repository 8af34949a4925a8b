"""Which runs a Playbook makes from ``spec.learn.template``, and which finished ones it deletes.

A run is named by the hash of what it learns from, so that making it twice makes it once. There is one run at
a time: what falls due while one is under way waits for it, or, on a schedule, is left out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from combee.algo.schedule import next_time
from combee.api.digests import canonical
from combee.api.discipline import TEMPLATE, lacking, refusal
from combee.api.playbook import Learn
from combee.api.run import RunSpec
from combee.errors import ManifestError
from combee.plan.cluster.hardware import with_hardware
from combee.plan.playbook.board import Board
from combee.plan.playbook.datawatch import remembered
from combee.plan.playbook.memory import MAX_MADE
from combee.plan.playbook.types import Happened, RunWish

NO_RUN = "no run is made: "
"""How the warning of a template begins that does not state its inputs."""
_ROOM = 40
"""The most characters of a Playbook's name in a run's name."""


@dataclass(frozen=True, slots=True)
class Learning:
    """What is to be done about runs."""

    wishes: tuple[RunWish, ...] = ()
    prune: tuple[str, ...] = ()
    next_time: float = 0.0
    """the schedule's next time, in seconds since 1970; 0 without one."""
    warning: str = ""
    latest: str = ""
    """the run made last."""


def learning(board: Board) -> Learning:
    """Return the runs to make and to delete, and note on the board what was dealt with."""
    learn = board.about.spec.learn
    if learn is None:
        return Learning()
    runs = sorted(board.seen.runs, key=lambda run: (run.created, run.name), reverse=True)
    finished = [run.name for run in runs if run.over]
    prune = tuple(finished[learn.history_limit :])
    _remember(board, learn, [run.name for run in reversed(runs)])
    board.memory = remembered(board.memory, learn, board.seen.data_marks)
    busy = any(not run.over for run in runs)
    try:
        name, coming = _due(board, learn, busy=busy)
    except ManifestError as error:
        return Learning(prune=prune, warning=str(error))
    latest = runs[0].name if runs else board.before.run_name
    template, unknown = with_hardware(learn.template, board.about.nodes), board.about.nodes.unknown
    refused = refusal(template, board.about.discipline, TEMPLATE, unknown)
    warning = lacking(template, TEMPLATE, unknown) if refused is None else f"{NO_RUN}{refused[1]}"
    if refused is not None and warning not in board.before.warnings:
        board.events.append(Happened("Warning", "MissingInput", warning))
    if not name or busy or refused is not None:
        return Learning(prune=prune, next_time=coming, warning=warning, latest=latest)
    return Learning((RunWish(name, _spec(board, learn)),), prune, coming, warning, latest=name)


def _remember(board: Board, learn: Learn, names: list[str]) -> None:
    """Count runs as made once they are seen, so that a wish that came to nothing comes again."""
    new = [name for name in names if name not in board.memory.made]
    board.memory = replace(board.memory, made=(*board.memory.made, *new)[-MAX_MADE:])
    for name in new if board.before.observed_generation else ():
        message = f"run {name} learns for it ({learn.trigger})"
        board.events.append(Happened("Normal", "RunCreated", message))


def _due(board: Board, learn: Learn, *, busy: bool) -> tuple[str, float]:
    """Return the name of the run that is due ("" for none), and when the next one is."""
    about, made = board.about, _made(board)
    base = f"{about.name[:_ROOM].rstrip('-.')}-{template_hash(learn, board.memory.change)}"
    if about.learn_request and about.learn_request != board.memory.request:
        name = f"{base}-{hashlib.sha256(about.learn_request.encode()).hexdigest()[:6]}"
        if name not in made:
            return name, 0.0
        board.memory = replace(board.memory, request=about.learn_request)
    if learn.trigger == "OnChange":
        return "" if base in made else base, 0.0
    if learn.trigger == "Manual" or learn.schedule is None:
        return "", 0.0
    return _scheduled(board, learn.schedule, base, busy=busy)


def _made(board: Board) -> set[str]:
    """Return the runs that are not made again: those seen before, and those that made a present version."""
    learned = {r.seen.spec.run_ref.name for r in board.records.values() if r.seen.spec.run_ref}
    return learned.union(board.memory.made)


def _scheduled(board: Board, text: str, base: str, *, busy: bool) -> tuple[str, float]:
    now = board.seen.now
    since = board.memory.scheduled or now
    due = next_time(text, since)
    name = f"{base}-{int(due // 60):x}" if due is not None and due <= now else ""
    if name in _made(board) or (name and busy):
        # The run was made, or is left out; of several that were missed, only one is made up for.
        name, since = "", now
    board.memory = replace(board.memory, scheduled=since)
    coming = next_time(text, now) or 0.0
    if coming:
        board.wakes.append(coming)
    return name, coming


def template_hash(learn: Learn, change: str) -> str:
    """Return eight digits that change with the template, and with each ``change`` of its data."""
    text = json.dumps([canonical(learn.template), change], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _spec(board: Board, learn: Learn) -> RunSpec:
    return RunSpec.model_validate({**learn.template.dump(), "playbookRef": {"name": board.about.name}})
